//! Validation of configuration fields.

use plimsoll_wire::{MAX_CONFIGURED_NAME_BYTES, is_configured_name, is_name};

use crate::part::Part;

/// Maximum length of a proxy's name. Process and worker are appended, and readers accept 128.
const MAX_PROXY_BYTES: usize = 100;

/// Checks the fields common to the two positions that call agents.
pub fn check_common(
    cluster: &str,
    proxy: Option<&str>,
    agents: &str,
    token: Option<&str>,
) -> Result<(), String> {
    check_cluster(cluster)?;
    if !proxy.is_none_or(is_proxy) {
        return Err(format!(
            "proxy: must be 1..{MAX_PROXY_BYTES} of A-Za-z0-9._:/-"
        ));
    }
    if agents.is_empty() {
        return Err("agents: must be the name of an Envoy cluster".to_owned());
    }
    let printable = |token: &str| token.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if !token.is_none_or(printable) {
        return Err("token: must be printable ASCII characters".to_owned());
    }
    Ok(())
}

pub fn checked(field: &str, part: Option<Part>) -> Result<Option<Part>, String> {
    match &part {
        Some(Part::Header(name)) if !is_header(name) => Err(format!(
            "{field}.header: must be a header's name, in lower-case letters"
        )),
        Some(Part::Query(name)) if name.is_empty() => {
            Err(format!("{field}.query: must be a parameter's name"))
        }
        Some(Part::PathSegment(number)) if !(1.0..=100.0).contains(number) => Err(format!(
            "{field}.path_segment: must be within 1..100, the first is 1"
        )),
        _ => Ok(part),
    }
}

pub fn within(field: &str, value: f64, low: f64, high: f64, unit: &str) -> Result<f64, String> {
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    Err(format!(
        "{field}: must be a number within {low}..{high}{unit}, is {value}"
    ))
}

pub fn whole(field: &str, value: f64, low: f64, high: f64) -> Result<usize, String> {
    if value.fract() == 0.0 && (low..=high).contains(&value) {
        return Ok(value as usize);
    }
    Err(format!(
        "{field}: must be a whole number within {low}..{high}, is {value}"
    ))
}

/// Checks the name of a cluster by the agents' rules.
pub fn check_cluster(name: &str) -> Result<(), String> {
    match is_configured_name(name) {
        true => Ok(()),
        false => Err(format!(
            "cluster: must be 1..{MAX_CONFIGURED_NAME_BYTES} of A-Za-z0-9._:/-"
        )),
    }
}

/// Whether `name` is a valid name of a proxy.
pub fn is_proxy(name: &str) -> bool {
    name.len() <= MAX_PROXY_BYTES && is_name(name)
}

pub fn is_header(name: &str) -> bool {
    let good =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (1..=100).contains(&name.len()) && name.bytes().all(good)
}
