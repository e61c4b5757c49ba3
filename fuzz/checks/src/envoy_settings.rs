use envoy_policy::{
    config::{Config, PrimarySettings, Settings, parse, parse_balancer},
    naming::{changes, cost, object_set},
    part::Part,
};
use plimsoll_core::dispatch::MAX_COST;
use plimsoll_wire::is_configured_name;

/// The settings of the filter in the first line, and in each further one a request's path.
pub fn envoy_settings(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let text = lines.next().unwrap_or_default();
    if let Ok(cluster) = parse_balancer(text) {
        assert!(is_configured_name(&cluster));
    }
    match parse(text) {
        Ok(Config::Downstream(settings)) => check(&settings),
        Ok(Config::Primary(settings)) => {
            assert!(is_configured_name(&settings.cluster) && !settings.agents.is_empty());
            lines.for_each(|path| check_request(&settings, path));
        }
        Ok(Config::Upstream) | Err(_) => {}
    }
}

fn check(settings: &Settings) {
    assert!(is_configured_name(&settings.cluster) && !settings.agents.is_empty());
    assert!((0.1..=60.0).contains(&settings.period));
    assert!(settings.lease >= 2.0 * settings.period && settings.lease <= 3600.0);
    assert!((0.01..=60.0).contains(&settings.timeout));
    assert!((1e-6..=MAX_COST).contains(&settings.default_cost));
    assert!(settings.alternatives <= 8 && settings.routes <= 1_000_000);
    let headers = [
        &settings.items_header,
        &settings.jobs_header,
        &settings.load_header,
    ];
    for header in headers
        .into_iter()
        .flatten()
        .chain([&settings.hosts_header])
    {
        let is_good = |byte: u8| byte.is_ascii_lowercase() || b"-_0123456789".contains(&byte);
        assert!(!header.is_empty() && header.bytes().all(is_good));
    }
}

fn check_request(settings: &PrimarySettings, path: &[u8]) {
    let part = &settings.object_set;
    let headers = [
        (":path".to_owned(), path.to_vec()),
        ("x-set".to_owned(), path.to_vec()),
        ("X_Object-Set".to_ascii_lowercase(), b"forged".to_vec()),
    ];
    assert!((0.0..=MAX_COST).contains(&cost(settings, &headers)));
    let Some(name) = object_set(part, &headers) else {
        return;
    };
    if let Some((removed, told)) = changes(part, &headers, &name) {
        assert!(removed.contains(&"x_object-set"));
        assert!(told.is_none_or(|told| told.as_bytes() == name));
    }
    // The canonical spelling of a name is its own.
    let own = |path: Vec<u8>| object_set(part, &[(":path".to_owned(), path)]);
    match part {
        Part::Header(_) => assert_eq!(name, path),
        Part::Query(key) if key.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            let path = [b"/?", key.as_bytes(), b"=", &name].concat();
            assert_eq!(own(path), Some(name));
        }
        Part::PathPrefix(_) => assert_eq!(own(name.clone()), Some(name)),
        Part::PathSegment(number) => {
            let before = "/x".repeat(*number as usize - 1);
            let path = [before.as_bytes(), b"/", &name].concat();
            assert_eq!(own(path), Some(name));
        }
        Part::Query(_) => {}
    }
}
