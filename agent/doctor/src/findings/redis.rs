//! Findings about Redis: durability settings and versions of the function libraries.

use plimsoll_core::placement::Replication;

use crate::{
    Code, Finding,
    snapshot::{Redis, Snapshot},
};

pub fn findings(seen: &Snapshot) -> Vec<Finding> {
    let Some(redis) = &seen.redis else {
        return Vec::new();
    };
    let libraries = redis.libraries.iter().filter_map(|it| library(redis, it));
    libraries.chain(hold(seen, redis)).collect()
}

fn hold(seen: &Snapshot, redis: &Redis) -> Option<Finding> {
    let lease = seen.agents.iter().filter_map(|agent| agent.hold).min()?;
    let told =
        |found: String, fix: &str| Some(Finding::new(Code::RedisCannotHold, &redis.at, found, fix));
    let (min_replicas, max_lag) = match redis.min_replicas {
        Some(known) => known,
        None if !redis.is_replaceable => return None,
        None => {
            return told(
                "min-replicas-to-write and min-replicas-max-lag cannot be read".to_owned(),
                "add +config|get to the rule of the agents' user: docs/redis.md#users",
            );
        }
    };
    let replication = Replication {
        is_replaceable: redis.is_replaceable,
        replicas: redis.replicas,
        min_replicas,
        max_lag,
    };
    let problem = replication.hold_margin(lease).err()?;
    told(
        problem.to_string(),
        "set them in redis.conf, and with CONFIG SET at run time: docs/placement.md#a-redis-that-is-replicated",
    )
}

fn library(redis: &Redis, (name, there, known): &(String, i64, i64)) -> Option<Finding> {
    let (found, fix) = if there > known {
        (
            format!("library {name} has version {there}, this program supports {known}"),
            "upgrade the agents and this program",
        )
    } else if *there != 0 && there < known {
        (
            format!("library {name} has version {there}, this program has {known}"),
            "upgrade the agents, which load their version; if they lack the permission, load it with plimsoll redis-functions: docs/redis.md#users",
        )
    } else {
        // Up to date, or missing: an agent that needs it loads it.
        return None;
    };
    Some(Finding::new(Code::RedisLibrary, &redis.at, found, fix))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::snapshot::Agent;

    fn told(hold: bool, redis: Redis) -> Vec<&'static str> {
        let agent = Agent {
            hold: hold.then_some(Duration::from_secs(10)),
            ..Agent::default()
        };
        let seen = Snapshot {
            agents: vec![agent],
            redis: Some(redis),
            ..Snapshot::default()
        };
        let found = findings(&seen).into_iter();
        found.map(|it| it.code.word()).collect()
    }

    fn replicated(min_replicas: Option<(u64, u64)>) -> Redis {
        Redis {
            replicas: 2,
            is_replaceable: true,
            min_replicas,
            ..Redis::default()
        }
    }

    #[test]
    fn a_redis_that_may_be_replaced_must_wait_for_its_replicas() {
        let cannot = ["redis-cannot-hold"];
        assert_eq!(told(true, replicated(Some((0, 10)))), cannot);
        assert_eq!(told(true, replicated(Some((1, 10)))), cannot);
        assert_eq!(told(true, replicated(None)), cannot);
        assert!(told(true, replicated(Some((1, 3)))).is_empty());
        assert!(told(false, replicated(Some((0, 10)))).is_empty());
        assert!(told(true, Redis::default()).is_empty());
    }

    #[test]
    fn libraries_of_another_version_are_told() {
        let with = |there| Redis {
            libraries: vec![("plimsoll".to_owned(), there, 3)],
            ..Redis::default()
        };
        assert!(told(false, with(3)).is_empty() && told(false, with(0)).is_empty());
        assert_eq!(told(false, with(2)), ["redis-library"]);
        assert_eq!(told(false, with(4)), ["redis-library"]);
    }
}
