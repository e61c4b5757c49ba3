//! What the command line left open, asked on a terminal.

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

/// The name of a backend or cluster, of those that are there with what is to know of them.
pub fn name(
    given: Option<String>,
    what: &str,
    choices: &[(String, String)],
) -> anyhow::Result<String> {
    if let Some(name) = given {
        return Ok(name);
    }
    if choices.is_empty() {
        bail!("this file has no {what} with servers");
    }
    let list: String = choices
        .iter()
        .map(|(name, detail)| format!("  {name} ({detail})\n"))
        .collect();
    if !terminal() {
        bail!("--{what}: name one of\n{}", list.trim_end());
    }
    eprint!("There are:\n{list}");
    loop {
        let answer = line(&format!("Which {what} gets agents?"))?;
        if choices.iter().any(|(name, _)| *name == answer) {
            return Ok(answer);
        }
        eprintln!("There is no \"{answer}\".");
    }
}

/// A text; `missing` is said where nobody can be asked.
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

/// The delay as the agent's configuration has it, and how long that is.
pub fn sla(given: Option<String>) -> anyhow::Result<(String, Duration)> {
    if let Some(text) = given {
        let duration = delay(&text)?;
        return Ok((text, duration));
    }
    if !terminal() {
        bail!("--sla: the delay that clients were promised, as 500ms or 1s");
    }
    loop {
        let text = line("Which delay were its clients promised (as 500ms or 1s)?")?;
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
