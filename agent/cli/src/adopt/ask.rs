//! Asks on a terminal for arguments missing from the command line.

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use anyhow::{Context, bail};

fn terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

fn line(question: &str) -> anyhow::Result<String> {
    eprint!("{question} ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    if std::io::stdin().read_line(&mut answer)? == 0 {
        bail!("no answer");
    }
    Ok(answer.trim().to_owned())
}

/// Returns the given backend or cluster if it exists, otherwise asks for one, listing the choices with their details.
pub fn name(
    given: Option<String>,
    what: &str,
    choices: &[(String, String)],
) -> anyhow::Result<String> {
    if let Some(name) = given {
        return Ok(name);
    }
    if choices.is_empty() {
        bail!("no {what} with servers in this file");
    }
    let list: String = choices
        .iter()
        .map(|(name, detail)| format!("  {name} ({detail})\n"))
        .collect();
    if !terminal() {
        bail!("--{what}: required; one of\n{}", list.trim_end());
    }
    eprint!("Choices:\n{list}");
    loop {
        let answer = line(&format!("Which {what} should get agents?"))?;
        if choices.iter().any(|(name, _)| *name == answer) {
            return Ok(answer);
        }
        eprintln!("There is no \"{answer}\".");
    }
}

/// Returns the given text, otherwise asks for it; `missing` is the error where there is no terminal.
pub fn text(
    given: Option<String>,
    question: &str,
    missing: &'static str,
) -> anyhow::Result<String> {
    if let Some(text) = given {
        return Ok(text);
    }
    if !terminal() {
        bail!(missing);
    }
    loop {
        let answer = line(question)?;
        if !answer.is_empty() {
            return Ok(answer);
        }
    }
}

/// Returns the delay as written in the agent's configuration, with its duration.
pub fn sla(given: Option<String>) -> anyhow::Result<(String, Duration)> {
    if let Some(text) = given {
        let duration = delay(&text)?;
        return Ok((text, duration));
    }
    if !terminal() {
        bail!("--sla: required; the delay that clients are promised, such as 500ms or 1s");
    }
    loop {
        let text = line("Which delay does its SLA promise (such as 500ms or 1s)?")?;
        match delay(&text) {
            Ok(duration) => return Ok((text, duration)),
            Err(error) => eprintln!("{error:#}"),
        }
    }
}

fn delay(text: &str) -> anyhow::Result<Duration> {
    let duration = humantime::parse_duration(text).with_context(|| format!("--sla: \"{text}\""))?;
    if duration < Duration::from_millis(1) || duration > Duration::from_secs(86_400) {
        bail!("--sla: \"{text}\" is not between 1ms and 1day");
    }
    Ok(duration)
}
