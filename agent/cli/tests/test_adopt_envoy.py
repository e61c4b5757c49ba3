"""`plimsoll adopt` on Envoy bootstraps like those that people have, checked by the real Envoy."""

import contextlib
import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from agent.cli.tests.adopting import HISTOGRAM, adopt
from tests.harness import programs
from tests.harness.envoy import examples

MANAGER = (
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)
ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
ADMIN = "admin:\n  address: { socket_address: { address: 127.0.0.1, port_value: 9901 } }\n"
LISTENER = f"""\
static_resources:
  listeners:
  - name: listener_0
    address:
      socket_address: {{ address: 127.0.0.1, port_value: 10000 }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {MANAGER}
          stat_prefix: ingress_http
          codec_type: AUTO
          route_config:
            name: local_route
            virtual_hosts:
            - name: backend
              domains: ["*"]
              routes:
              - match: {{ prefix: "/" }}
                route: {{ cluster: app }}
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": {ROUTER}
"""
ENDPOINTS = """\
    load_assignment:
      cluster_name: app
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              socket_address:
                address: 127.0.0.11
                port_value: 80
        - endpoint:
            address:
              socket_address:
                address: 127.0.0.12
                port_value: 80
"""
TCP = """\
static_resources:
  listeners:
    - address:
        socket_address:
          address: 0.0.0.0
          port_value: 10000
      filter_chains:
        - filters:
          - name: envoy.filters.network.tcp_proxy
            typed_config:
              '@type': 'type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy'
              cluster: app
              stat_prefix: tcp_proxy
"""
TLS = """\
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: app.example
"""
HTTP2 = """\
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
"""


def site(keys: str = "", *, top: str = ADMIN + LISTENER, endpoints: str = ENDPOINTS, rest: str = "") -> str:
    return f"{top}  clusters:\n  - name: app\n    connect_timeout: 1s\n{keys}{endpoints}{rest}"


def upper(text: str) -> str:
    """Keys as the JSON of protocol buffers has them."""
    return re.sub(r"(?<=[a-z])_([a-z])(?=\w*:)", lambda found: found[1].upper(), text)


PLAIN = site()
BY_NAME = ENDPOINTS.replace("127.0.0.11", "localhost").replace("127.0.0.12", "server9002")
# The public repository where it was seen, if in one, our own file with that trait, and what becomes of it:
# words of the diff, or of the refusal, which begins with a line's number.
TRAITS: dict[str, tuple[str | None, str, str]] = {
    "endpoints by address": (None, PLAIN, "+    type: EDS"),
    "strict_dns and round_robin in lower case, tcp_proxy, a name for each server": (
        "knoxknox/dev-labs",
        site("    type: strict_dns\n    lb_policy: round_robin\n", top=TCP, endpoints=BY_NAME),
        "tcp_proxy stays",
    ),
    "logical_dns": (
        "aile96/honeypot",
        site("    type: logical_dns\n"),
        "30: type LOGICAL_DNS uses one name",
    ),
    "a cluster of its own kind": (
        "aile96/honeypot",
        site(
            "    lb_policy: CLUSTER_PROVIDED\n    cluster_type:\n"
            "      name: envoy.clusters.dynamic_forward_proxy\n"
            "      typed_config:\n        '@type': type.googleapis.com/envoy.extensions.clusters."
            "dynamic_forward_proxy.v3.ClusterConfig\n        dns_cache_config: { name: c }\n",
            endpoints="",
        ),
        "31: cluster_type: this type of cluster discovers",
    ),
    "everything from a control plane": (
        "kubernetes-sigs/wg-ai-gateway",
        "node: { id: a, cluster: b }\n"
        "dynamic_resources:\n  cds_config: { path_config_source: { path: /dev/null } }\n"
        + TCP.replace("cluster: app", "cluster: xds")
        + "  clusters:\n  - name: xds\n    type: STRICT_DNS\n"
        + HTTP2
        + ENDPOINTS,
        'no cluster "app"; the clusters are xds; those of dynamic_resources.cds_config',
    ),
    "TLS passed through, one name": (
        "seongpyoHong/TIL",
        site(
            "    type: STRICT_DNS\n",
            top=TCP,
            endpoints="    load_assignment: { cluster_name: app, endpoints: [{ lb_endpoints: [{ endpoint: { "
            "address: { socket_address: { address: localhost, port_value: 443 } } } }] }] }\n",
        ),
        "refusals only to HTTP requests",
    ),
    "keys in camelCase": (
        None,
        upper(
            site(
                "    lb_policy: LEAST_REQUEST\n"
                "    circuit_breakers:\n      thresholds:\n      - max_retries: 9\n"
            )
        ),
        "LEAST_REQUEST stays",
    ),
    "circuit breakers and outlier detection of its own": (
        None,
        site(
            "    circuit_breakers:\n      thresholds:\n      - priority: DEFAULT\n        max_requests: 100\n"
            "    outlier_detection: { consecutive_5xx: 5 }\n"
        ),
        "max_requests 100 stays",
    ),
    "HTTP/2 and TLS upstream": (None, site(HTTP2 + TLS), "transport_socket stays"),
    "ring hash": (
        None,
        site("    lb_policy: RING_HASH\n    ring_hash_lb_config: { minimum_ring_size: 1024 }\n"),
        "+    eds_cluster_config:",
    ),
    "a policy by name": (
        None,
        site(
            "    load_balancing_policy:\n      policies:\n      - typed_extension_config:\n"
            "          name: envoy.load_balancing_policies.random\n          typed_config:\n            "
            "'@type': type.googleapis.com/envoy.extensions.load_balancing_policies.random.v3.Random\n"
        ),
        "load_balancing_policy stays",
    ),
    "health checks at a port of their own": (
        None,
        PLAIN.replace(
            "- endpoint:\n", "- endpoint:\n            health_check_config: { port_value: 81 }\n", 1
        ),
        '35: endpoints have "health_check_config"',
    ),
    "failover to another priority": (
        None,
        site(endpoints=ENDPOINTS + ENDPOINTS.split("endpoints:\n", 1)[1].replace(
            "- lb_endpoints", "- priority: 1\n        lb_endpoints").replace("127.0.0.1", "127.0.1.1")),
        "44: nodes of priority 1",
    ),
    "one host, two ports": (
        None,
        re.sub(r"127.0.0.12(\n +port_value: )80", r"127.0.0.11\g<1>81", PLAIN),
        "39: 127.0.0.11 occurs before, with port 80",
    ),
    "a Unix socket": (
        None,
        re.sub(r"socket_address:\n +address: 127.0.0.12\n.*80", "pipe: { path: /run/app.sock }", PLAIN),
        "39: this endpoint has no socket_address",
    ),
    "weights in a canary": (
        None,
        site(
            top=ADMIN + LISTENER.replace(
                "{ cluster: app }",
                "{ weighted_clusters: { clusters: [{ name: app, weight: 9 }, { name: other, weight: 1 }] } }",
            ),
            rest="  - name: other\n    load_assignment: { cluster_name: other }\n",
        ),
        "+          local_reply_config:",
    ),
    "shared by an anchor": (
        None,
        site(
            "    health_checks: &checks\n    - { timeout: 1s, interval: 5s, unhealthy_threshold: 3, "
            "healthy_threshold: 1, tcp_health_check: {} }\n"
            "    common_lb_config: &lb { healthy_panic_threshold: { value: 0 } }\n",
            rest="  - name: other\n    health_checks: *checks\n    common_lb_config: *lb\n"
            "    load_assignment: { cluster_name: other }\n",
        ),
        "common_lb_config stays",
    ),
    "endpoints shared by an anchor": (
        None,
        site(
            endpoints=ENDPOINTS.replace("endpoints:\n", "endpoints: &all\n"),
            rest="  - name: other\n    load_assignment: { cluster_name: other, endpoints: *all }\n",
        ),
        "33: this anchor is used elsewhere",
    ),
    "JSON within YAML": (None, json.dumps(yaml.safe_load(PLAIN)) + "\n", "type: EDS, eds_cluster_config: {"),
    "a template that nobody filled in": (
        "gardener/gardener",
        PLAIN.replace("127.0.0.11", "{{ .address }}"),
        '37: "" is not an IP address',
    ),
    "two clusters of one name": (None, PLAIN + "  - name: app\n" + ENDPOINTS, "44: duplicate cluster"),
}  # fmt: skip


@pytest.fixture
def config(tmp_path) -> Path:
    file = tmp_path / "envoy.yaml"
    file.write_text(PLAIN)
    return file


def test_bootstraps_like_those_that_people_have(tmp_path):
    for number, (trait, (_, text, expected)) in enumerate(TRAITS.items()):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        refused = re.match(r"\d+: |no cluster", expected) is not None
        said = adopt(file, "--write", program=programs.envoy(), fails=refused)
        assert expected in said.replace(f"{file}:", ""), f"{trait}: {said}"
        if refused:
            assert file.read_text() == text, trait
            continue
        assert "Checked: " in said and "New warnings" not in said, f"{trait}: {said}"
        again = adopt(file, "--no-check")
        assert "Nothing to change" in again and "@@" not in again, f"{trait}: {again}"
        assert "Restart Envoy" in adopt(file, "--undo")
        assert file.read_text() == text, trait


def test_what_the_examples_of_the_guide_have_is_all_of_it():
    for name in ("eds-fc-prop.yaml", "eds-fc-hash.yaml", "eds-ring-hash.yaml"):
        said = adopt(examples()[name], "--cluster", "queries", "--sla", "1s", *HISTOGRAM, "--no-check")
        assert 'Nothing to change: "queries"' in said and "@@" not in said, f"{name}: {said}"


def test_nothing_is_written_unless_asked(config: Path, tmp_path):
    said = adopt(config, "--agents", str(tmp_path / "agents"))
    assert "Nothing written" in said and config.read_text() == PLAIN
    agents = [tmp_path / "agents" / f"127.0.0.{node}.toml" for node in (11, 12)]
    assert sorted((tmp_path / "agents").iterdir()) == agents
    for agent in agents:
        agent.write_text(agent.read_text().replace("/var/lib/plimsoll", str(tmp_path)))
        check = [programs.agent(), "agent", "--check-config", "--config", agent]
        subprocess.run(check, check=True, stdout=subprocess.DEVNULL)
    patched = subprocess.run(
        ["patch", "-o", "-", str(config)], input=said, capture_output=True, text=True, check=True
    )
    adopt(config, "--write")
    assert patched.stdout == config.read_text()


def test_undo_refuses_what_was_changed_since(config: Path):
    adopt(config, "--write")
    written = config.read_text()
    config.write_text(written + "# mine\n")
    assert "was changed since" in adopt(config, "--undo", fails=True)
    config.write_text(written)
    adopt(config, "--undo")
    assert config.read_text() == PLAIN and list(config.parent.iterdir()) == [config]


def test_what_does_not_fit_is_refused(config: Path, tmp_path):
    json_file, haproxy = tmp_path / "envoy.json", tmp_path / "haproxy.cfg"
    for file in (json_file, haproxy):
        file.write_text("{}\n")
    assert "only as YAML (.yaml or .yml)" in adopt(json_file, fails=True)
    assert "does not end in .yaml or .yml" in adopt(haproxy, "--envoy", programs.envoy(), fails=True)
    assert "has the extension of an Envoy bootstrap" in adopt(config, "--haproxy", "/bin/true", fails=True)
    without = ["--cluster", "app", "--sla", "1s"]
    assert "--metrics, --histogram: required, since Envoy" in adopt(config, *without, fails=True)
    words = [*without, "--metrics", "soon", "--histogram", "x"]
    assert '--metrics: "soon": ' in adopt(config, *words, fails=True)
    unasked = subprocess.run(
        [programs.agent(), "adopt", config],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert "--cluster: required; one of\n  app (line 28, STATIC, 127.0.0.11:80 127.0.0.12" in unasked.stderr
    config.write_text(PLAIN.replace("    connect_timeout: 1s\n", "\tconnect_timeout: 1s\n"))
    assert f"{config}:28: column 11: " in adopt(config, fails=True)


def read_all(end: int) -> bytes:
    """What a terminal shows whose programs have ended."""
    shown = b""
    with contextlib.suppress(OSError):
        while more := os.read(end, 4096):
            shown += more
    return shown


def test_asks_on_a_terminal(config: Path):
    end, theirs = pty.openpty()
    os.write(end, b"nobody\napp\n1s\nhttp://127.0.0.1:80/metrics\nseconds\n")
    done = subprocess.run(
        [programs.agent(), "adopt", config],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        check=True,
    )
    os.close(theirs)
    asked = read_all(end).decode()
    os.close(end)
    assert "app (line 28, STATIC" in asked and 'There is no "nobody".' in asked
    assert 'url = "http://127.0.0.1:80/metrics"\nhistogram = "seconds"' in done.stdout
