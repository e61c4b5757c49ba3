use std::{path::Path, time::Duration};

use plimsoll_scatter::gather::GatherConfig;

use crate::config::{Config, Parts};

/// A configuration of the agent, or of `plimsoll gather`.
pub fn agent_toml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // No files of this machine are read, the authorities that it trusts among them.
    if text.contains("_file") || text.to_lowercase().contains("https:") {
        return;
    }
    let path = Path::new("fuzz.toml");
    match Config::parse(path, text) {
        Ok(config) => check(&config),
        Err(error) => check_place(&error.to_string(), text),
    }
    match GatherConfig::parse(path, text) {
        Ok(config) => {
            assert!((1..=256).contains(&config.at_once));
            assert!(config.deadline <= config.max_deadline);
            let mut nodes = config.partitions.iter().map(|it| it.nodes.len());
            assert!(nodes.len() > 0 && nodes.all(|count| count > 0));
        }
        Err(error) => check_place(&error.to_string(), text),
    }
}

fn check(config: &Config) {
    assert!(config.period >= Duration::from_millis(10));
    assert!((0.0..=0.5).contains(&config.jitter));
    assert!(!config.services.is_empty());
    for service in &config.services {
        let sla = service.settings.sla;
        let seconds = [sla.delay.get(), sla.settling.get()];
        assert!(seconds.iter().all(|it| it.is_finite() && *it > 0.0));
        let limits = service.settings.limits;
        assert!(limits.min.get() > 0.0 && limits.min <= limits.max);
        let nominal = limits.nominal.unwrap_or(limits.max);
        assert!(nominal >= limits.min && nominal <= limits.max);
    }
    let outputs = config.output_settings();
    assert_eq!(outputs.services().len(), config.services.len());
    drop(Parts::new(config));
}

/// `fuzz.toml:LINE: …` names a line that there is.
fn check_place(error: &str, text: &str) {
    let rest = error.strip_prefix("fuzz.toml").unwrap();
    let line = rest.strip_prefix(':').and_then(|rest| rest.split_once(':'));
    if let Some(line) = line.and_then(|(line, _)| line.parse::<usize>().ok()) {
        let count = 1 + text.bytes().filter(|byte| *byte == b'\n').count();
        assert!((1..=count).contains(&line), "{error}");
    }
}
