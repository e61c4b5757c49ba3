//! Findings about versions.

use std::collections::BTreeMap;

use crate::{Code, Finding, snapshot::Snapshot};

const MIN_HAPROXY: (u32, u32) = (2, 6);
const MIN_ENVOY: (u32, u32) = (1, 34);
const MIN_REDIS: (u32, u32) = (7, 0);

pub fn findings(seen: &Snapshot) -> Vec<Finding> {
    let mut found = Vec::new();
    let agents = seen.agents.iter().map(|it| (&it.at, &it.version));
    found.extend(differ("agent", agents, Some(&seen.own_version)));
    let proxies = || seen.haproxys.iter().map(|it| (&it.at, &it.version));
    found.extend(differ("HAProxy", proxies(), None));
    let envoys = || seen.envoys.iter().map(|it| (&it.at, &it.version));
    found.extend(differ("Envoy", envoys(), None));
    let redis = seen.redis.iter().map(|it| (&it.at, &it.version));
    for (at, version) in proxies() {
        found.extend(unsupported("HAProxy", at, version, MIN_HAPROXY));
    }
    for (at, version) in envoys() {
        found.extend(unsupported("Envoy", at, version, MIN_ENVOY));
    }
    for (at, version) in redis {
        found.extend(unsupported("Redis", at, version, MIN_REDIS));
    }
    found
}

/// Findings for programs whose version differs from `own`, else from the most common one.
fn differ<'a>(
    what: &str,
    all: impl Iterator<Item = (&'a String, &'a String)>,
    own: Option<&'a String>,
) -> Vec<Finding> {
    let all: Vec<_> = all.collect();
    let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
    for (_, version) in &all {
        *counts.entry(version).or_default() += 1;
    }
    let most = counts.iter().max_by_key(|(_, count)| **count);
    let Some(right) = own.or(most.map(|(version, _)| *version)) else {
        return Vec::new();
    };
    let whose = match own {
        Some(_) => "this program",
        None => "most others",
    };
    let others = all.iter().filter(|(_, version)| *version != right);
    let told = others.map(|(at, version)| {
        Finding::new(
            Code::VersionsDiffer,
            *at,
            format!("{what} {version}, {whose}: {right}"),
            "finish the upgrade; with hashing, versions may place keys on different nodes",
        )
    });
    told.collect()
}

fn unsupported(what: &str, at: &str, version: &str, least: (u32, u32)) -> Option<Finding> {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<u32>().ok();
    let has = (number()?, number()?);
    if has >= least {
        return None;
    }
    Some(Finding::new(
        Code::VersionUnsupported,
        at,
        format!("{what} {version}, needs {}.{} or later", least.0, least.1),
        format!("upgrade {what}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Agent, Haproxy};

    fn told(agents: &[&str], haproxys: &[&str]) -> Vec<String> {
        let agent = |version: &&str| Agent {
            version: (*version).to_owned(),
            ..Agent::default()
        };
        let haproxy = |version: &&str| Haproxy {
            version: (*version).to_owned(),
            ..Haproxy::default()
        };
        let seen = Snapshot {
            own_version: "0.2.0".to_owned(),
            agents: agents.iter().map(agent).collect(),
            haproxys: haproxys.iter().map(haproxy).collect(),
            ..Snapshot::default()
        };
        let found = findings(&seen).into_iter();
        found
            .map(|it| format!("{}: {}", it.code.word(), it.found))
            .collect()
    }

    #[test]
    fn versions_are_compared() {
        assert!(told(&["0.2.0"], &["3.2.26-1", "3.2.26-1"]).is_empty());
        let found = told(&["0.2.0", "0.1.0"], &["2.6.12-1+deb12u4"]);
        assert_eq!(found, ["versions-differ: agent 0.1.0, this program: 0.2.0"]);
        let found = told(&[], &["2.4.22", "2.4.22", "3.0.1"]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(
            found[0],
            "versions-differ: HAProxy 3.0.1, most others: 2.4.22"
        );
        assert_eq!(
            found[1],
            "version-unsupported: HAProxy 2.4.22, needs 2.6 or later"
        );
        assert!(told(&[], &["unreadable"]).is_empty());
    }
}
