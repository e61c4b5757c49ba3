"""docs/haproxy.md, from its text, on hosts with the real programs."""

from docs.tests.cluster import CHANGE, Nodes, configure, install_agents, node_of, rows, wait_servers
from docs.tests.guide import Guide, merged
from docs.tests.host import Host

LOG = "No histogram: HAProxy's log"


def go_back_without_a_reload(guide: Guide, proxy: Host, node1: Host) -> None:
    node1.run(guide.says("plimsoll node drain"))
    proxy.wait("the drain", lambda: rows(proxy)["node1"]["status"].startswith("DRAIN"))
    proxy.run(guide.take("Roll back", "sh"))
    assert {key: rows(proxy)["node1"][key] for key in ("status", "weight", "slim")} == {
        "status": "UP",
        "weight": "100",
        "slim": "64",
    }
    again = guide.says("enable agent queries/node1")
    proxy.run(f"echo {again} | socat stdio /run/haproxy/admin.sock")
    proxy.wait("the drain", lambda: rows(proxy)["node1"]["status"].startswith("DRAIN"))
    node1.run(guide.says("plimsoll node ready"))
    wait_servers(proxy, status="UP", weight="50")


def test_docs_haproxy_md(network):
    proxy = network.host("lb1", "192.0.2.2")
    nodes = Nodes.make(network)
    node1 = nodes.hosts[0]
    with Guide("haproxy.md") as guide:
        before, after = guide.take(CHANGE, "haproxy"), guide.take(CHANGE, "haproxy")
        configure(proxy, before)
        proxy.run("systemctl start haproxy")
        wait_servers(proxy, status="UP", weight="1", agent_status="")

        text = install_agents(guide, nodes)
        watch = guide.take("3. Watch before HAProxy obeys", "sh")

        def watched() -> bool:
            node_of(proxy, "/x")
            return '"finished": 0' not in (told := node1.run(watch)) and '"source_error": null' in told

        node1.wait("a finished request in the answer to step 3", watched)

        reload = guide.take(CHANGE, "sh")
        configure(proxy, after)
        proxy.run(reload)
        wait_servers(proxy, status="UP", weight="50", slim="64", agent_status="L7OK")
        see = guide.take("5. See it work", "sh")
        on_proxy, on_node = see.split("plimsoll node status", 1)
        stats = proxy.run(on_proxy)
        for field in ("svname", "status", "weight", "slim", "agent_status", "last_agt"):
            assert stats.count(f".{field}.") == 2, stats
        assert "via agent : up (" in stats
        assert "queries/node1" in node1.run("plimsoll node status" + on_node)
        assert {node_of(proxy, "/x") for _ in range(4)} == {"node1", "node2"}

        go_back_without_a_reload(guide, proxy, node1)
        nodes.run(guide.says("systemctl reload plimsoll"))

        hashed = guide.take("The same key to the same node", "haproxy")
        assert "    balance roundrobin\n" in after
        configure(proxy, after.replace("    balance roundrobin\n", hashed), guide.take(LOG, "haproxy"))
        proxy.run(reload)
        logged = guide.take(LOG, "toml")
        nodes.write(merged(text.split("[[service]]")[0], logged))
        nodes.run(guide.says("systemctl restart plimsoll"))
        nodes.ready()
        wait_servers(proxy, status="UP", weight="50", agent_status="L7OK")
        url = "http://192.0.2.11:9464/v1/node"

        def read_from_the_log() -> bool:
            owners = [{node_of(proxy, f"/x/{key}") for _ in range(2)} for key in range(6)]
            assert all(len(owner) == 1 for owner in owners), owners
            return node1.json(url)["services"]["queries"]["finished"] > 0

        node1.wait("a finished request in HAProxy's log", read_from_the_log)

        configure(proxy, before)
        proxy.run(reload)
        wait_servers(proxy, status="UP", weight="1", agent_status="", slim="")
