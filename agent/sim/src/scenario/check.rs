//! Validation of scenarios.

use super::{
    MAX_CACHED, MAX_CLIENTS, MAX_KEYS, MAX_NODES, MAX_SECONDS, MAX_WRITTEN, NodeSettings, Scenario,
    State, Tuning, Writes, check_updates,
};

impl Scenario {
    pub(super) fn check(&self) -> Result<(), (String, String)> {
        let wrong = |key: &str, problem: String| Err((key.to_owned(), problem));
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let range = |[low, high]: [f64; 2]| {
            low.is_finite() && low >= 0.0 && high >= low && high.is_finite()
        };
        let part = |value: f64| (0.0..=1.0).contains(&value);
        if !positive(self.sla_seconds) {
            return wrong("sla_seconds", "must be above 0".into());
        }
        if !(positive(self.seconds) && self.seconds <= MAX_SECONDS) {
            return wrong(
                "seconds",
                format!("must be above 0 and at most {MAX_SECONDS}"),
            );
        }
        if !(self.measured_from >= 0.0 && self.measured_from < self.seconds) {
            return wrong("measured_from", "must be before the end".into());
        }
        if self
            .event
            .is_some_and(|at| !(at >= 0.0 && at < self.seconds))
        {
            return wrong("event", "must be before the end".into());
        }
        if !(0.01..=3600.0).contains(&self.period) {
            return wrong("period", "must be within 0.01 and 3600 s".into());
        }
        if !(0.0..=10.0).contains(&self.network_seconds) {
            return wrong("network_seconds", "must be within 0 and 10".into());
        }
        if self.seeds == 0 || self.seeds > 1000 {
            return wrong("seeds", "must be within 1 and 1000".into());
        }
        if self.proxies == 0 || self.proxies > 1000 {
            return wrong("proxies", "must be within 1 and 1000".into());
        }
        if self.policies.is_empty() {
            return wrong("policies", "must name at least one".into());
        }
        let clients = &self.clients;
        if clients.count > MAX_CLIENTS {
            return wrong("clients.count", format!("must be at most {MAX_CLIENTS}"));
        }
        let items = |items: [f64; 2]| range(items) && items[0] > 0.0;
        if !items(clients.items)
            || clients
                .long
                .is_some_and(|long| !items(long.items) || !part(long.part))
        {
            return wrong(
                "clients.items",
                "must be two numbers above 0, the smaller first".into(),
            );
        }
        if clients.keys == 0 || clients.keys > MAX_KEYS {
            return wrong("clients.keys", format!("must be within 1 and {MAX_KEYS}"));
        }
        if !part(clients.queries) {
            return wrong("clients.queries", "must be within 0 and 1".into());
        }
        if !(clients.transaction_seconds.is_finite() && clients.transaction_seconds >= 0.0) {
            return wrong("clients.transaction_seconds", "must not be below 0".into());
        }
        if clients.patience.is_some_and(|patience| !positive(patience)) {
            return wrong("clients.patience", "must be above 0".into());
        }
        if clients.retries > 100 || !range(clients.retry_wait) {
            return wrong(
                "clients.retries",
                "must be at most 100, and retry_wait two numbers in order".into(),
            );
        }
        if clients.phases.first().is_none_or(|first| first.from != 0.0) {
            return wrong("clients.phases", "the first must be from 0".into());
        }
        for (i, phase) in clients.phases.iter().enumerate() {
            let key = format!("clients.phases[{i}]");
            let closed = clients.count > 0;
            let good = match (closed, phase.think, phase.load) {
                (true, Some(think), None) => range(think),
                (false, None, Some(load)) => load.is_finite() && load >= 0.0,
                _ => false,
            };
            if !good {
                let wanted = if closed {
                    "think = [from, to]"
                } else {
                    "load, as clients.count is 0"
                };
                return wrong(&key, format!("must have {wanted}"));
            }
            if i > 0 && phase.from <= clients.phases[i - 1].from {
                return wrong(&key, "must be after the one before".into());
            }
        }
        let count: usize = self.nodes.iter().map(|group| group.count as usize).sum();
        if count == 0 || count > MAX_NODES {
            return wrong("nodes", format!("must be within 1 and {MAX_NODES} in all"));
        }
        if let Some(Writes { apply }) = self.writes {
            if !part(apply) {
                return wrong("writes.apply", "must be within 0 and 1".into());
            }
            if count > MAX_WRITTEN {
                return wrong("writes", format!("takes at most {MAX_WRITTEN} nodes"));
            }
        }
        if let Some(updates) = &self.updates {
            check_updates(updates, &self.nodes)?;
        }
        for (i, node) in self.nodes.iter().enumerate() {
            let key = format!("nodes[{i}]");
            if node.cores == 0 || node.workers == 0 || node.backlog == 0 || node.weight == 0 {
                return wrong(
                    &key,
                    "cores, workers, backlog and weight must be at least 1".into(),
                );
            }
            if !positive(node.item_seconds) || !part(node.cache_saves) || node.cache_saves >= 1.0 {
                return wrong(
                    &key,
                    "item_seconds must be above 0, cache_saves within 0 and 1".into(),
                );
            }
            if !(node.contention.is_finite() && node.contention >= 0.0) {
                return wrong(&key, "contention must not be below 0".into());
            }
            if node.cache_keys > clients.keys {
                return wrong(&key, "cache_keys must be at most clients.keys".into());
            }
        }
        let cached = |group: &NodeSettings| u64::from(group.count) * u64::from(group.cache_keys);
        if self.nodes.iter().map(cached).sum::<u64>() > MAX_CACHED {
            return wrong(
                "nodes",
                format!("must cache at most {MAX_CACHED} keys in all"),
            );
        }
        for (i, change) in self.changes.iter().enumerate() {
            let key = format!("changes[{i}]");
            if !(change.at >= 0.0 && change.at <= self.seconds) {
                return wrong(&key, "at must be within the run".into());
            }
            if change.node as usize + change.count as usize > count {
                return wrong(&key, format!("there are only {count} nodes"));
            }
            let value = match change.to {
                State::Slow => change.value.is_some_and(positive),
                State::Failing => change.value.is_some_and(part),
                State::Contended => change
                    .value
                    .is_some_and(|value| value.is_finite() && value >= 0.0),
                _ => change.value.is_none(),
            };
            if !value {
                return wrong(
                    &key,
                    "slow needs a value above 0, failing one within 0 and 1, contended one from 0 on, others none".into(),
                );
            }
        }
        let Tuning {
            nominal,
            min,
            static_jobs,
            slots,
            spill,
        } = self.tuning;
        if !(positive(nominal)
            && positive(min)
            && min <= nominal
            && static_jobs >= 1.0
            && slots > 0
            && part(spill))
        {
            return wrong(
                "tuning",
                "numbers must be above 0, min at most nominal, spill within 0 and 1".into(),
            );
        }
        Ok(())
    }
}
