//! What the command line left open, asked on a terminal.

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use anyhow::{Context, bail};
use plimsoll_adopt::{Config, adoptable};

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

/// The backend's name.
pub fn backend(given: Option<String>, config: &Config) -> anyhow::Result<String> {
    if let Some(name) = given {
        return Ok(name);
    }
    let found = adoptable(config);
    if found.is_empty() {
        bail!("no backend of this file has servers");
    }
    let list = || {
        found
            .iter()
            .map(|(section, line, mode)| format!("  {} (line {line}, mode {mode})\n", section.name))
    };
    if !terminal() {
        bail!(
            "--backend: name one of\n{}",
            list().collect::<String>().trim_end()
        );
    }
    eprint!("Backends:\n{}", list().collect::<String>());
    loop {
        let answer = line("Which one gets agents?")?;
        if found.iter().any(|(section, ..)| section.name == answer) {
            return Ok(answer);
        }
        eprintln!("There is no \"{answer}\".");
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
