"""docs/adopt.md, from its text, on hosts with the real programs."""

import re

from docs.tests.cluster import CONFIG, FRONTEND, INSTALL, Nodes, configure, node_of, rows, wait_servers
from docs.tests.guide import Guide
from docs.tests.host import HERE, Network
from tests.harness import programs

BACKEND = """\
backend queries
    # Both have the same size.
    balance roundrobin
    option httpchk GET /healthz
    server node1 192.0.2.11:8080 check weight 10 maxconn 500   # the old one
    server node2 192.0.2.12:8080 check weight 10 maxconn 500
"""
ENVOY = "/etc/envoy/envoy.yaml"
CLUSTERS = """\
  clusters:
    # Both have the same size.
    - name: queries
      connect_timeout: 1s
      load_assignment:
        cluster_name: queries
        endpoints:
          - lb_endpoints:
              - endpoint: { address: { socket_address: { address: 192.0.2.11, port_value: 8080 } } }
              - endpoint: { address: { socket_address: { address: 192.0.2.12, port_value: 8080 } } }
      health_checks:
        - { timeout: 0.5s, interval: 1s, unhealthy_threshold: 2, healthy_threshold: 2, tcp_health_check: {} }
    - name: writes
      load_assignment: { cluster_name: writes }
"""


def test_docs_adopt_md(network):
    proxy = network.host("lb1", "192.0.2.2")
    nodes = Nodes.make(network)
    configure(proxy, BACKEND)
    proxy.run("systemctl start haproxy")
    wait_servers(proxy, status="UP", weight="10", agent_status="", slim="500")
    before = proxy.read(CONFIG)
    install = Guide("haproxy.md").take(INSTALL, "sh")
    proxy.run(install)
    nodes.run(install)
    with Guide("adopt.md") as guide:
        said = proxy.run(guide.take("1. Look", "sh"))
        assert "Checked: " in said and "Nothing written" in said and proxy.read(CONFIG) == before
        assert "haproxy.cfg.before-plimsoll" not in proxy.run("ls /etc/haproxy")

        start = guide.take("2. Start the agents", "sh")
        for host in nodes.hosts:
            host.write("/etc/plimsoll/agent.toml", proxy.read(f"/root/agents/{host.name}.toml"))
        nodes.run(start)
        nodes.ready()

        write = guide.take("3. Write", "sh")
        proxy.run(write)
        wait_servers(proxy, status="UP", weight="100", agent_status="CHECKED", slim="500")
        assert "# Both have the same size.\n" in proxy.read(CONFIG)
        assert {node_of(proxy, "/x") for _ in range(4)} == {"node1", "node2"}
        node1 = nodes.hosts[0]
        seen = r"^  delay +[\d.]+ s of 1 s$"

        def sees_the_delay() -> bool:
            node_of(proxy, "/x")
            return re.search(seen, node1.run("plimsoll node status"), re.MULTILINE) is not None

        node1.wait("a delay from the log", sees_the_delay)
        nodes.run(guide.take("4. Let HAProxy obey", "sh"))
        wait_servers(proxy, agent_status="L7OK")
        assert "Nothing to change" in proxy.run(write)
        enforce = guide.take("4. Let HAProxy obey", "sh")
        proxy.run(enforce)
        assert "maxconn" not in proxy.read(CONFIG).split("backend queries")[1]
        wait_servers(proxy, status="UP", weight="100", agent_status="L7OK")
        node1.run("plimsoll node force weight 30 && plimsoll node force bound 8")
        proxy.wait(
            "weight and maxconn",
            lambda: (rows(proxy)["node1"]["weight"], rows(proxy)["node1"]["slim"]) == ("30", "8"),
        )
        assert rows(proxy)["node2"]["weight"] == "100"
        # The next reload must not come amid this one.
        worker = re.compile(r"^Pid: (\d+)$", re.MULTILINE)
        asked = "echo 'show info' | socat stdio /run/haproxy/admin.sock"
        last = worker.findall(proxy.run(asked))
        assert "Nothing to change" in proxy.run(enforce)
        proxy.wait("a new worker", lambda: worker.findall(proxy.run(asked)) != last)

        undo = guide.take("Undo", "sh")
        proxy.run(undo)
        assert proxy.read(CONFIG) == before and FRONTEND in before
        wait_servers(proxy, status="UP", weight="10", agent_status="", slim="500")

        adopt_envoy(network, guide, nodes)


def adopt_envoy(network: Network, guide: Guide, nodes: Nodes) -> None:
    """The page's second part, on the same nodes."""
    proxy = network.host("lb2", "192.0.2.3")
    proxy.run(Guide("haproxy.md").take(INSTALL, "sh"))
    proxy.run(f"ln -s {programs.envoy()} /usr/local/bin/envoy && mkdir -p /etc/envoy")
    unit = "[Service]\nExecStart=/usr/local/bin/envoy -c /etc/envoy/envoy.yaml --log-level warning\n"
    proxy.write("/etc/systemd/system/envoy.service", unit)
    before = (HERE / "envoy.yaml").read_text() + CLUSTERS
    proxy.write(ENVOY, before)
    proxy.run("systemctl start envoy")

    def served_by() -> set[str]:
        return {node_of(proxy, "/x") for _ in range(6)}

    both = {"node1", "node2"}
    proxy.wait("answers of both nodes", lambda: served_by() == both)
    said = proxy.run(guide.take("Look at Envoy's file", "sh"))
    assert "Checked: " in said and "Nothing written" in said and proxy.read(ENVOY) == before
    nodes.run("systemctl stop plimsoll")
    for host in nodes.hosts:
        host.write("/etc/plimsoll/agent.toml", proxy.read(f"/root/agents/{host.address}.toml"))
    nodes.run(Guide("adopt.md").take("2. Start the agents", "sh"))
    nodes.ready()

    write = guide.take("Write Envoy's file", "sh")
    proxy.run(write)
    assert "# Both have the same size.\n" in proxy.read(ENVOY)
    proxy.wait("answers of both nodes, by the agents", lambda: served_by() == both)
    nodes.run(Guide("adopt.md").take("4. Let HAProxy obey", "sh"))
    node1 = nodes.hosts[0]
    node1.run("plimsoll node drain")
    proxy.wait("the drain", lambda: served_by() == {"node2"})

    proxy.run(guide.take("Undo in Envoy's file", "sh"))
    assert proxy.read(ENVOY) == before
    proxy.wait("answers of both nodes again", lambda: served_by() == both)
