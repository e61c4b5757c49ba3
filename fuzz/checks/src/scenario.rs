use plimsoll_sim::Scenario;

const MAX_SECONDS: f64 = 86_400.0;
const MAX_NODES: usize = 10_000;

/// A scenario of the simulator.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(scenario) = Scenario::parse("fuzz.toml", text) else {
        return;
    };
    assert_eq!(scenario.name, "fuzz");
    assert!(!scenario.policies.is_empty());
    assert!(scenario.seconds > 0.0 && scenario.seconds <= MAX_SECONDS);
    assert!(scenario.sla_seconds > 0.0 && scenario.sla_seconds.is_finite());
    let nodes: usize = scenario
        .nodes
        .iter()
        .map(|group| group.count as usize)
        .sum();
    assert!((1..=MAX_NODES).contains(&nodes));
    let mut changes = scenario.changes.iter();
    assert!(changes.all(|it| it.node as usize + it.count as usize <= nodes));
    let again = scenario.clone().choose(&scenario.policies);
    assert!(again.is_ok());
}
