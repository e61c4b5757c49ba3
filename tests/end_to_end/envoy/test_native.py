"""The first tier on stock Envoy: weights, health and shedding by endpoint discovery, load reports by ORCA."""

import json
from contextlib import ExitStack

import pytest

from tests.end_to_end.envoy.native_site import NativeSite, Work, seen_by, share, until_shared
from tests.harness import programs
from tests.harness.envoy import endpoints, manager_of
from tests.harness.envoy_filter import WITH_LOAD_REPORTS, needs_envoy
from tests.harness.ports import free_ports


@pytest.fixture
def native(tmp_path):
    with ExitStack() as stack:
        yield NativeSite(tmp_path, stack)


def two_nodes(native: NativeSite, bounds: tuple[int, int] = (3000, 1000)):
    """Starts two nodes with an agent each, and returns the agents' ports."""
    ports = free_ports(2)
    peers = f"peers = {[f'http://127.0.0.1:{port}' for port in ports]}\nlease = '1s'"
    for name, port, bound in zip(("node1", "node2"), ports, bounds, strict=True):
        node = native.node(name)
        native.agent(name, f"127.0.0.1:{node.port}", port, peers, bound)
    return ports


@pytest.mark.parametrize("example", ["eds-fc-prop.yaml", "eds-fc-hash.yaml", "eds-ring-hash.yaml"])
def test_weights_move_traffic(native, example):
    agents = two_nodes(native)
    envoy = native.envoy(native.config(example, agents))
    many = 65 if example == "eds-fc-prop.yaml" else 60
    until_shared(envoy, "three to one", lambda found: many <= found["node1"] < 90 and found["node2"] >= 10)
    native.agents["node1"].node("force", "weight", "5")
    until_shared(envoy, "one to three and more", lambda found: found["node1"] <= 40 and found["node1"] > 0)
    native.agents["node1"].node("drain")
    until_shared(envoy, "nothing for a drained node", lambda found: found == {"node2": 100})
    native.agents["node1"].node("ready")
    native.agents["node2"].node("force", "down")
    until_shared(envoy, "nothing for one that is down", lambda found: found == {"node1": 100})
    stats = envoy.stats("cluster.queries.update")
    assert stats["cluster.queries.update_success"] > 0 and stats["cluster.queries.update_rejected"] == 0


def test_the_last_answer_stays_in_force_when_the_agents_die(native):
    agents = two_nodes(native)
    envoy = native.envoy(native.config("eds-fc-prop.yaml", agents))
    until_shared(envoy, "three to one", lambda found: found == {"node1": 75, "node2": 25})
    native.agents["node1"].kill()
    until_shared(envoy, "only what has an agent", lambda found: found == {"node2": 100})
    native.agents["node2"].kill()
    failed = envoy.stats("cluster.queries.update_failure")["cluster.queries.update_failure"]

    def many_fail(_found) -> bool:
        return envoy.stats("cluster.queries.update_failure")["cluster.queries.update_failure"] > failed + 10

    assert until_shared(envoy, "a dozen questions without an answer", many_fail) == {"node2": 100}


def test_the_last_valid_answer_stays_in_force_after_invalid_ones(native):
    (node,) = [native.node("node1")]
    good = {
        "version_info": "1",
        "type_url": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "resources": [{
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": "stocks",
            "endpoints": [endpoints([node.port])],
        }],
    }  # fmt: skip
    answer = [(200, json.dumps(good).encode())]
    agents = native.answering(lambda _method, _path: answer[0])
    envoy = native.envoy(native.config("eds-fc-prop.yaml", [agents.port]))
    until_shared(envoy, "a node", lambda found: found == {"node1": 100})
    other = json.dumps(good | {"version_info": "2", "resources": [{"@type": "x"}]})
    for status, body in [
        (200, b"garbage"),
        (200, b""),
        (200, b'{"resources": ['),
        (500, b""),
        (200, other.encode()),
    ]:
        failed = sum(envoy.stats("cluster.queries.update_(failure|rejected)").values())
        answer[0] = (status, body)

        def fails(_found, failed=failed) -> bool:
            return sum(envoy.stats("cluster.queries.update_(failure|rejected)").values()) > failed

        assert until_shared(envoy, f"{status} {body!r} fails", fails) == {"node1": 100}


def test_overload_is_shed_with_503_until_it_ends(native):
    node, second = native.node("node1"), native.node("node2")
    load = [seen_by(f"127.0.0.1:{second.port}", 9e6, 1e6, 9e5, 1e6)]
    peer = native.answering(lambda _method, _path: (200, load[0]))
    (http,) = free_ports(1)
    native.agent("node1", f"127.0.0.1:{node.port}", http, f"peers = ['http://127.0.0.1:{peer.port}']", 10**6)
    config = native.config("eds-fc-prop.yaml", [http])
    mapper = manager_of(config["static_resources"]["listeners"][0])["local_reply_config"]["mappers"][0]
    mapper["headers_to_add"].append({"header": {"key": "x-flags", "value": "%RESPONSE_FLAGS%"}})
    envoy = native.envoy(config)
    until_shared(envoy, "much is refused", lambda found: found["503"] > 40 and len(found) == 3)
    status, headers = next(answer for answer in iter(lambda: envoy.get("/stock/1"), None) if answer[0] == 503)
    assert (status, headers["retry-after"]) == (503, "1") and "plimsoll-reason" in headers
    assert headers["x-flags"] == "DO"
    load[0] = seen_by(f"127.0.0.1:{second.port}", 1e3, 1e3, 1e3, 1e6)
    until_shared(envoy, "nothing is refused", lambda found: found == {"node1": 50, "node2": 50})


def test_load_reports_weigh_nodes(native):
    needs_envoy(programs.envoy(), WITH_LOAD_REPORTS)
    orca, port = free_ports(2)
    config = native.config("orca-cswrr.yaml", [])
    cluster = next(c for c in config["static_resources"]["clusters"] if c["name"] == "queries")
    policy = cluster["load_balancing_policy"]["policies"][0]["typed_extension_config"]["typed_config"]
    policy |= {
        "oob_reporting_period": "0.2s", "blackout_period": "0.5s", "weight_update_period": "0.2s",
        "oob_reporting_config": {"port_value": orca},
    }  # fmt: skip
    group = cluster["load_assignment"]["endpoints"][0]
    group["lb_endpoints"] = []
    works = []
    # Both end as many requests a second, but one takes nine times as long for each.
    for name, host, seconds in [("node1", "127.0.0.2", 0.05), ("node2", "127.0.0.3", 0.45)]:
        native.node(name, host=host, port=port)
        works.append(Work(50, seconds))
        metrics = native.answering(works[-1])
        http = free_ports(1)[0]
        native.agent(name, f"{host}:{port}", http, f"orca_listen = '{host}:{orca}'", 10_000, metrics.port)
        group["lb_endpoints"] += endpoints([port], host)["lb_endpoints"]
    envoy = native.envoy(config)
    until_shared(envoy, "nine to one", lambda found: 84 <= found["node1"] <= 95)
    stats = envoy.stats("lb_orca_oob")
    assert any(value > 0 for value in stats.values()), stats
    works[0].seconds, works[1].seconds = 0.45, 0.05
    until_shared(envoy, "one to nine", lambda found: 84 <= found["node2"] <= 95)
    for agent in native.agents.values():
        agent.kill()
    assert sum(share(envoy).values()) == 100
