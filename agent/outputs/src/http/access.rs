//! Which endpoint needs which role.

use axum::response::Response;
use plimsoll_net::{Endpoint, Refusal, Role};
use plimsoll_wire::PlacementOperation;
use prometheus::IntCounterVec;

use super::{observe, partition};

/// Proxies' exchanges.
pub const OBSERVE: &str = "/v1/observe";
/// Queries in this node's partitions.
pub const PARTITION_QUERY: &str = "/v1/partition-query";
/// The table of primaries.
pub const PLACEMENT: &str = "/v1/placement";

/// All endpoints; docs/http-api.md has the same table. Probes carry no token.
pub const ENDPOINTS: [Endpoint; 14] = [
    Endpoint("GET", "/", Some(Role::Read)),
    Endpoint("GET", "/metrics", Some(Role::Read)),
    Endpoint("GET", "/healthz", None),
    Endpoint("GET", "/readyz", None),
    Endpoint("GET", "/v1/node", Some(Role::Read)),
    Endpoint("GET", "/v1/ring", Some(Role::Read)),
    Endpoint("GET", "/v1/updates", Some(Role::Read)),
    Endpoint("GET", "/v1/role", Some(Role::Read)),
    Endpoint("GET", "/v1/orca", Some(Role::Read)),
    Endpoint("POST", OBSERVE, Some(Role::Observe)),
    Endpoint("GET", PLACEMENT, Some(Role::Read)),
    Endpoint("POST", PLACEMENT, Some(Role::Observe)),
    Endpoint("POST", PARTITION_QUERY, Some(Role::Write)),
    Endpoint("POST", "/v3/discovery:endpoints", Some(Role::Read)),
];

/// Role that a message to the keeper requires.
pub fn role_of(operation: PlacementOperation) -> Role {
    match operation {
        PlacementOperation::Join | PlacementOperation::Report | PlacementOperation::Leave => {
            Role::Observe
        }
        PlacementOperation::Forget | PlacementOperation::Move => Role::Write,
    }
}

/// The response to a request that is refused for its token, in the form of its endpoint.
pub fn refuse(path: &str, refusal: Refusal, exchanged: &IntCounterVec) -> Response {
    if path == PARTITION_QUERY {
        return partition::refused(refusal);
    }
    if path == OBSERVE {
        exchanged.with_label_values(&["unauthorized"]).inc();
    }
    observe::refused(refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_table_has_these_endpoints_and_roles() {
        let page = include_str!("../../../../docs/http-api.md");
        let rows = page.lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split(" | ");
            let endpoint = cells.next()?.strip_suffix('`')?;
            let (method, path) = endpoint.split_once(" /")?;
            Some((format!("{method} /{path}"), cells.next()?.to_owned()))
        });
        let documented: Vec<_> = rows.collect();
        let known: Vec<_> = ENDPOINTS
            .iter()
            .map(|Endpoint(method, path, role)| {
                let role = role.map_or("none".to_owned(), |role| format!("`{}`", role.word()));
                (format!("{method} {path}"), role)
            })
            .collect();
        assert_eq!(documented, known);
    }
}
