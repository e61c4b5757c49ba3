"""docs/envoy.md, from its text, on hosts with the real programs."""

import re
import textwrap

from docs.tests.cluster import INSTALL, Nodes, node_of
from docs.tests.guide import Guide
from docs.tests.host import HERE
from tests.harness import programs

AGENT = "1. An agent on every node"
WATCH = "3. Watch before Envoy obeys"
OBEY = "4. Let Envoy obey"


def shape(text: str) -> str:
    return re.sub(r"[\d.]+", "N", text.strip())


def test_docs_envoy_md(network):
    proxy = network.host("lb1", "192.0.2.2")
    nodes = Nodes.make(network)
    node1 = nodes.hosts[0]
    with Guide("envoy.md") as guide:
        nodes.run(Guide("haproxy.md").take(INSTALL, "sh"))
        nodes.write(guide.take(AGENT, "toml"))
        nodes.run("systemctl enable --now plimsoll")
        ask = guide.take(AGENT, "sh")
        node1.wait(
            "what Envoy is told", lambda: all(f'"{host.address}"' in node1.run(ask) for host in nodes.hosts)
        )

        name = guide.take("2. Envoy", "yaml")
        clusters = guide.take("2. Envoy", "yaml") + guide.take("Writes at the primary", "yaml")
        whole = name + (HERE / "envoy.yaml").read_text() + textwrap.indent(clusters, "  ")
        proxy.write("/etc/envoy.yaml", whole)
        checked = proxy.run(f"{programs.envoy()} --mode validate -l warning -c /etc/envoy.yaml 2>&1")
        assert "[warning]" not in checked, checked
        proxy.start("envoy", programs.envoy(), "-c", "/etc/envoy.yaml", "--log-level", "warning")

        def served_by() -> set[str]:
            return {node_of(proxy, "/x") for _ in range(6)}

        proxy.wait("answers of both nodes", lambda: served_by() == {"node1", "node2"})
        # None of these nodes has a database, so there is no primary.
        assert proxy.status("-X POST http://127.0.0.1/x") == "503"
        drain = guide.says("plimsoll node drain")
        said = node1.run(guide.take(WATCH, "sh"))
        assert "mode      observe: not applied by any proxy; would refuse " in said
        assert node1.run(f"{drain} 2>&1 || true").endswith("no proxy would get it\n")
        assert "observed only" in node1.curl("http://192.0.2.11:9464/")
        nodes.run(guide.take(OBEY, "sh"))
        node1.wait("the mode", lambda: "  mode " not in node1.run("plimsoll node status"))
        node1.run(drain)
        proxy.wait("the drain", lambda: served_by() == {"node2"})

        orca = guide.take("Load reports (ORCA)", "indented")
        told = node1.curl("http://192.0.2.11:9464/v1/orca")
        assert shape(orca) == shape(f"endpoint-load-metrics: {told}")
