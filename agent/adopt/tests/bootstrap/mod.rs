//! A bootstrap of Envoy's, and the plan for its cluster `app`.

use std::net::IpAddr;

use plimsoll_adopt::{
    Plan, Problem,
    envoy::{Wish, plan},
};

/// A listener that leads to cluster `app`.
pub const LISTENER: &str = r#"static_resources:
  listeners:
  - name: web   # the only one
    address: { socket_address: { address: 0.0.0.0, port_value: 8080 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: { prefix: / }
                route: { cluster: app }
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
"#;
/// The nodes of `app`.
pub const ENDPOINTS: &str = "    load_assignment:
      cluster_name: app
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: 192.0.2.11, port_value: 80 } } }   # the first
        - endpoint: { address: { socket_address: { address: 192.0.2.12, port_value: 80 } } }
";
/// Health checks of `app`.
pub const CHECKED: &str = "    health_checks:
    - { timeout: 1s, interval: 5s, unhealthy_threshold: 3, healthy_threshold: 1, http_health_check: { path: / } }
";

/// A bootstrap with `app`, which has these keys as well.
pub fn cluster(keys: &str) -> String {
    format!(
        "{LISTENER}  clusters:\n  - name: app\n    connect_timeout: 1s\n{keys}{ENDPOINTS}{CHECKED}"
    )
}

/// The plan for `app`.
pub fn planned_to(text: &str, sla_milliseconds: f64, enforce: bool) -> Result<Plan, Vec<Problem>> {
    let resolve = |name: &str| -> Vec<IpAddr> {
        match name {
            "known" => vec![
                [192, 0, 2, 21].into(),
                "2001:db8::21".parse().expect("an address"),
            ],
            "many" => vec![[192, 0, 2, 31].into(), [192, 0, 2, 32].into()],
            _ => Vec::new(),
        }
    };
    plan(
        text.as_bytes(),
        &Wish {
            cluster: "app",
            sla: "1s",
            sla_milliseconds,
            metrics: "http://127.0.0.1:80/metrics",
            histogram: "seconds",
            gauge: Some("busy"),
            enforce,
            resolve: &resolve,
        },
    )
}
