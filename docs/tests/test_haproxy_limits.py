"""docs/haproxy-limits.md, from its text, on hosts with the real programs."""

from docs.tests.cluster import Nodes, configure, first_tier, node_of, rows, start_redis, wait_servers
from docs.tests.guide import Guide, merged
from docs.tests.host import Host

SET_UP = "Setting it up"


def test_docs_haproxy_limits_md(network):
    proxy = network.host("lb1", "192.0.2.2")
    nodes = Nodes.make(network)
    redis = start_redis(network)
    node1 = nodes.hosts[0]
    with Guide("haproxy-limits.md") as guide:
        text, backend = first_tier(proxy, nodes)
        nodes.write(merged(text, Guide("haproxy-lua.md").take("Agents", "toml")))
        nodes.run("systemctl restart plimsoll")
        nodes.ready()
        proxy.run(guide.take(SET_UP, "sh"))
        proxy.write("/etc/haproxy/plimsoll.lua", guide.take(SET_UP, "lua"))
        more = guide.take(SET_UP, "haproxy").removeprefix("global\n")
        configure(proxy, backend, more=more)
        reload = guide.take(SET_UP, "sh")
        proxy.run(reload)
        # Not asked any more.
        wait_servers(proxy, status="UP", weight="100", agent_status="")
        shown = guide.says("plimsoll ring show --url http://192.0.2.11:9464")
        node1.wait("both nodes in the ring", lambda: "node2" in node1.run(f"{shown} || true"))
        assert {node_of(proxy, "/x") for _ in range(4)} == {"node1", "node2"}
        follow_operators(guide, proxy, node1)
        redis.run("redis-cli -h 192.0.2.5 shutdown nosave || true")
        wait_servers(proxy, status="UP", agent_status="L7OK")

        configure(proxy, backend)
        proxy.run(reload)
        wait_servers(proxy, status="UP", agent_status="L7OK")


def follow_operators(guide: Guide, proxy: Host, node1: Host) -> None:
    force = guide.says("plimsoll node force bound 20")
    node1.run(force)
    proxy.wait("the bound", lambda: rows(proxy)["node1"]["slim"] == "20")
    node1.run("plimsoll node force auto")
    node1.run(guide.says("plimsoll node drain"))
    proxy.wait("the drain", lambda: rows(proxy)["node1"]["status"].startswith("DRAIN"))
    assert {node_of(proxy, "/x") for _ in range(4)} == {"node2"}
    node1.run("plimsoll node ready")
    wait_servers(proxy, status="UP", agent_status="")
