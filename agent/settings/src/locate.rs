//! Finds the line of a wrong value.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

/// An error in a file, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    line: Option<usize>,
    key: String,
    problem: String,
}

impl ConfigError {
    /// An error of the file as a whole.
    pub fn whole_file(file: &Path, problem: String) -> Self {
        ConfigError {
            file: file.to_owned(),
            line: None,
            key: String::new(),
            problem,
        }
    }

    /// An error at a key; reads the file again to find the line.
    pub fn at(file: &Path, key: &str, problem: String) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let key = key.to_owned();
        point_at(file, &text, Wrong { key, problem })
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for ConfigError {}

/// A wrong value by its path: tables and keys by name, array members by number.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// Path of the key, such as `service[0].sla.delay`.
    pub key: String,
    /// Requirement, with the value found and the limit.
    pub problem: String,
}

/// Parses the text; reports errors of syntax and type, and unknown keys.
pub fn deserialize<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    let error = |key: String, error: &toml::de::Error| ConfigError {
        file: path.to_owned(),
        line: error
            .span()
            .map(|span| line_of(text, span.start))
            .or_else(|| line_of_key(text, &key)),
        problem: without_secrets(&key, error.message()),
        key,
    };
    let parsed = toml::Deserializer::parse(text).map_err(|e| error(String::new(), &e))?;
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(parsed, &mut track);
    T::deserialize(tracked).map_err(|e| error(key_of(track, e.message()), &e))
}

/// Reads a table that was kept unread until its kind was known. `path` is the table's.
pub fn section<T: DeserializeOwned>(path: &str, keys: toml::Table) -> Result<T, Wrong> {
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(keys, &mut track);
    T::deserialize(tracked).map_err(|error| {
        let key = joined(path, &key_of(track, error.message()));
        Wrong {
            problem: without_secrets(&key, error.message()),
            key,
        }
    })
}

/// The path, as users write it, to the key that the problem is about.
fn key_of(track: serde_path_to_error::Track, problem: &str) -> String {
    let path = track.path().to_string();
    let key = if path == "." { String::new() } else { path };
    let key = key.replace(".?", "");
    // The path of an unknown or missing key may end at its table.
    let rest = ["unknown field `", "missing field `"]
        .iter()
        .find_map(|start| problem.strip_prefix(start));
    match rest.and_then(|rest| rest.split('`').next()) {
        Some(name) if key.rsplit('.').next() != Some(name) => joined(&key, name),
        _ => key,
    }
}

fn joined(table: &str, key: &str) -> String {
    let dot = if table.is_empty() || key.is_empty() {
        ""
    } else {
        "."
    };
    format!("{table}{dot}{key}")
}

/// Hides a value of the wrong type if it may be a secret: under the key of a secret, or a text in place of a table,
/// which may be an address with a password.
fn without_secrets(key: &str, problem: &str) -> String {
    let found = problem
        .strip_prefix("invalid type: ")
        .or_else(|| problem.strip_prefix("invalid value: "));
    let parts = found.and_then(|found| found.rsplit_once(", expected "));
    let Some((value, expected)) = parts else {
        return problem.to_owned();
    };
    let kind = value.split(['`', '"']).next().unwrap_or_default();
    let name = key.rsplit('.').next().unwrap_or_default();
    let is_secret = ["password", "token"].iter().any(|it| name.contains(it));
    match is_secret || (kind.starts_with("string") && problem.starts_with("invalid type")) {
        true => format!("invalid type: {}, expected {expected}", kind.trim_end()),
        false => problem.to_owned(),
    }
}

/// Finds the line of a wrong value, or of the table that lacks it.
pub fn point_at(path: &Path, text: &str, wrong: Wrong) -> ConfigError {
    ConfigError {
        file: path.to_owned(),
        line: line_of_key(text, &wrong.key),
        key: wrong.key,
        problem: wrong.problem,
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// The line of the longest part of `key` that is in the file.
fn line_of_key(text: &str, key: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let mut table = root.get_ref();
    let mut offset = None;
    for part in key.split('.') {
        let (name, index) = match part.strip_suffix(']').and_then(|p| p.split_once('[')) {
            Some((name, index)) => (name, index.parse().unwrap_or(0)),
            None => (part, 0usize),
        };
        let found = table
            .iter()
            .find(|(known, _)| known.get_ref().as_ref() == name);
        let Some((key, value)) = found else {
            break;
        };
        offset = Some(key.span().start);
        let mut value = value;
        if let DeValue::Array(members) = value.get_ref() {
            let Some(member) = members.get(index) else {
                break;
            };
            offset = Some(member.span().start);
            value = member;
        }
        let DeValue::Table(inner) = value.get_ref() else {
            break;
        };
        table = inner;
    }
    offset.map(|offset| line_of(text, offset))
}

/// The keys that a parser's error about an unknown key lists, sorted.
pub fn expected(error: &str) -> Vec<String> {
    let (_, list) = error.split_once("expected").unwrap_or_default();
    let mut names: Vec<_> = list
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}
