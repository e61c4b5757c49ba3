//! Checks of values; errors name the key.

use std::{ops::RangeInclusive, path::Path, time::Duration};

use ipnet::IpNet;
use plimsoll_net::{Role, Tokens, network};

use crate::{HttpSection, Level, LogFormat, Wrong, one_of};

/// The checked value, or its error.
pub type Checked<T> = Result<T, Wrong>;

const DAY: Duration = Duration::from_secs(86_400);
/// A millisecond.
pub const MILLI: Duration = Duration::from_millis(1);
/// Timeout for reading metrics, unless the period is shorter.
pub const READ_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum length of a list of networks that may connect.
const MAX_NETWORKS: usize = 256;
/// Maximum length of a name; fits in an agent-check line together with the proxy's name.
pub const MAX_NAME: usize = 120;

/// An error at this key.
pub fn wrong<T>(key: impl Into<String>, problem: impl Into<String>) -> Checked<T> {
    Err(Wrong {
        key: key.into(),
        problem: problem.into(),
    })
}

/// The value, or its problem at this key.
pub fn at<T>(key: &str, value: Result<T, String>) -> Checked<T> {
    value.or_else(|problem| wrong(key, problem))
}

/// One of a few words; the default if there is none.
pub fn word<T: Copy>(key: &str, text: Option<&str>, default: T, words: &[(&str, T)]) -> Checked<T> {
    text.map_or(Ok(default), |text| at(key, one_of(text, words)))
}

/// `error` to `trace`; the default is `info`.
pub fn log_level(key: &str, text: Option<&str>) -> Checked<Level> {
    let levels = [
        ("error", tracing::Level::ERROR),
        ("warn", tracing::Level::WARN),
        ("info", tracing::Level::INFO),
        ("debug", tracing::Level::DEBUG),
        ("trace", tracing::Level::TRACE),
    ];
    word(key, text, tracing::Level::INFO, &levels).map(Level)
}

/// `text` or `json`; the default is `text`.
pub fn log_format(key: &str, text: Option<&str>) -> Checked<LogFormat> {
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    word(key, text, LogFormat::Text, &formats)
}

/// A duration from `least` to a day.
pub fn duration(
    key: &str,
    value: Option<Duration>,
    default: Duration,
    least: Duration,
) -> Checked<Duration> {
    let value = value.unwrap_or(default);
    if value < least || value > DAY {
        let shown = humantime::format_duration;
        return wrong(
            key,
            format!("must be from {} to 1day, is {}", shown(least), shown(value)),
        );
    }
    Ok(value)
}

/// A number within the range, ends included.
pub fn number(key: &str, value: f64, range: RangeInclusive<f64>) -> Checked<f64> {
    if range.contains(&value) {
        return Ok(value);
    }
    wrong(
        key,
        format!(
            "must be from {} to {}, is {value}",
            range.start(),
            range.end()
        ),
    )
}

/// A value that this kind requires.
pub fn required<'a>(key: String, value: Option<&'a String>, kind: &str) -> Checked<&'a String> {
    match value {
        Some(value) => Ok(value),
        None => wrong(key, format!("is required for kind = {kind:?}")),
    }
}

/// Refuses keys that belong to another kind.
pub fn only_for(table: &str, kind: &str, others: &[(&str, bool)]) -> Checked<()> {
    match others.iter().find(|(_, set)| *set) {
        Some((key, _)) => wrong(
            format!("{table}.{key}"),
            format!("does not apply to kind = {kind:?}"),
        ),
        None => Ok(()),
    }
}

/// A list of networks; an empty one is refused.
pub fn networks(key: &str, texts: Option<&[String]>) -> Checked<Option<Vec<IpNet>>> {
    let Some(texts) = texts else { return Ok(None) };
    if texts.is_empty() || texts.len() > MAX_NETWORKS {
        let problem = format!(
            "must name 1 to {MAX_NETWORKS} networks, names {}",
            texts.len()
        );
        return wrong(key, problem);
    }
    let network = |(index, text): (usize, &String)| at(&format!("{key}[{index}]"), network(text));
    let networks = texts.iter().enumerate().map(network);
    networks.collect::<Checked<_>>().map(Some)
}

/// The text of a file, without the line ends at its end.
pub fn secret(key: &str, file: &Path) -> Checked<String> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(error) => wrong(key, format!("{}: {error}", file.display())),
    }
}

/// A secret that may be sent in a header.
pub fn token(key: &str, file: Option<&Path>) -> Checked<Option<String>> {
    let Some(file) = file else { return Ok(None) };
    let token = secret(key, file)?;
    let fine = (16..=4096).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
    if !fine {
        // Not shown: it is a secret, if a bad one.
        let file = file.display();
        return wrong(
            key,
            format!("{file}: must hold 16 to 4096 printable ASCII characters without blanks"),
        );
    }
    Ok(Some(token))
}

/// The tokens of an HTTP server.
pub fn tokens(http: &HttpSection) -> Checked<Tokens> {
    let files = [
        ("http.token_file", Role::Write, &http.token_file),
        ("http.tokens.read_file", Role::Read, &http.tokens.read_file),
        (
            "http.tokens.observe_file",
            Role::Observe,
            &http.tokens.observe_file,
        ),
        (
            "http.tokens.write_file",
            Role::Write,
            &http.tokens.write_file,
        ),
    ];
    let mut found: Vec<(&str, Role, String)> = Vec::new();
    for (key, role, file) in files {
        let Some(token) = token(key, file.as_deref())? else {
            continue;
        };
        let same = found
            .iter()
            .find(|(_, other, text)| *text == token && *other != role);
        if let Some((other, ..)) = same {
            return wrong(key, format!("has the token of {other}, of another role"));
        }
        found.push((key, role, token));
    }
    let tokens = found.into_iter().map(|(_, role, token)| (role, token));
    Ok(Tokens::new(tokens.collect()))
}

/// A metric name that Prometheus accepts.
pub fn metric_name(key: &str, name: &str) -> Checked<()> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b':';
    if name.is_empty() || !name.bytes().all(fine) || name.as_bytes()[0].is_ascii_digit() {
        return wrong(key, format!("must be a metric name, is {name:?}"));
    }
    Ok(())
}
