"""docs/haproxy-lua.md and docs/placement.md, from their text, on hosts with the real programs."""

import re
from dataclasses import dataclass

from docs.tests.cluster import Nodes, configure, first_tier, node_of, start_redis, wait_servers
from docs.tests.guide import Guide, merged
from docs.tests.host import Host

LUA = "/etc/haproxy/plimsoll.lua"
AGENT = "http://192.0.2.11:9464"
METRICS = "http://127.0.0.1:8404"


def before_servers(backend: str, lines: str) -> str:
    head, servers = backend.split("    server ", 1)
    return f"{head}{lines}    server {servers}"


@dataclass
class Site:
    guide: Guide
    proxy: Host
    nodes: Nodes
    backend: str
    # Of `global`, the backend, and a frontend for metrics.
    load: str
    lines: str
    stats: str

    def configure(self, lines: str, frontend: str = "", rest: str = "") -> None:
        configure(self.proxy, before_servers(self.backend, lines), frontend, self.stats + rest, self.load)

    def reload(self) -> None:
        self.proxy.run("systemctl reload haproxy")


def try_the_ring(site: Site) -> None:
    guide, proxy, node1 = site.guide, site.proxy, site.nodes.hosts[0]
    owner = guide.says("plimsoll ring owner --url http://192.0.2.11:9464 KEY")
    keys = [f"S{number}" for number in range(16)]
    told = node1.run(owner.replace("KEY", " ".join(keys)))
    owners = dict(line.split() for line in told.splitlines())
    assert set(owners.values()) == {"node1", "node2"}
    # Each thread begins for itself.
    proxy.wait("the ring's places", lambda: {key: node_of(proxy, f"/x/{key}") for key in keys} == owners)
    assert "plimsoll_admitted_total{" in proxy.curl(f"{METRICS}/plimsoll/metrics")
    assert "haproxy_process_" in proxy.curl(f"{METRICS}/metrics")


def try_classes(site: Site) -> None:
    key, other = [line + "\n" for line in site.lines.splitlines() if "lua.plimsoll_admit" in line]
    lines = site.lines.replace(other, "").replace(key, site.guide.take("Important requests first", "haproxy"))
    site.configure(lines)
    site.reload()
    for words in ("http://127.0.0.1/x/S1", "-H 'x-retry: 1' http://127.0.0.1/reports/S1"):
        site.proxy.wait("an answer", lambda words=words: site.proxy.status(words) == "200")


def try_writes(site: Site, primaries: Guide) -> None:
    """In a second backend, while the first passes on what its nodes say of their jobs."""
    guide, proxy, node1 = site.guide, site.proxy, site.nodes.hosts[0]
    (old,) = [line for line in site.lines.splitlines() if "set-var-fmt(txn.plimsoll_done)" in line]
    lines = site.lines.replace(old + "\n", guide.take("How load is learned", "haproxy"))
    servers = "".join(f"    server {host.name} {host.address}:8080\n" for host in site.nodes.hosts)
    backend = "\nbackend transactions\n" + guide.take("Writes at primaries", "haproxy") + servers
    alone = guide.take("Writes at primaries", "lua")
    proxy.write(LUA, alone.replace("  placement =", '  backend = "queries",\n  placement ='))
    site.configure(lines, "    use_backend transactions if METH_POST\n", backend)
    site.reload()

    nameless = "-X POST http://127.0.0.1/buy"
    wrote = f"-H 'x-object-set: A17' {nameless}"
    proxy.wait("a refusal of what has no name", lambda: proxy.status(nameless) == "400")
    proxy.wait("a primary", lambda: proxy.status(wrote) == "200")
    show = primaries.says("plimsoll placement show")
    assert re.search(r"dispatcher lb1-[0-9a-f]{8}/1#", node1.run(f"{show} --url {AGENT}"))
    move = primaries.says("plimsoll placement move =A17 node2")
    for node in ("node1", "node2"):
        node1.run(f"{move.replace('node2', node)} --url {AGENT}")
        proxy.wait(f"A17 at {node}", lambda node=node: f"x-node: {node}" in proxy.curl(f"-D - {wrote}"))


def check_the_feed(site: Site) -> None:
    """HAProxy takes it, alone; the test of docs/freshness.md has it at work."""
    settings = Guide("freshness.md").take("A feed that cannot be told", "lua")
    site.proxy.write("/etc/haproxy/plimsoll-updates.lua", settings)
    load = site.load.replace("plimsoll.lua", "plimsoll-updates.lua")
    feed = site.guide.take("Pushed updates", "haproxy")
    configure(site.proxy, site.backend, rest=feed + "\nbackend quotes\n", more=load)
    site.proxy.run("haproxy -c -f /etc/haproxy/haproxy.cfg")


def test_docs_haproxy_lua_md_and_placement_md(network):
    proxy = network.host("lb1", "192.0.2.2")
    nodes = Nodes.make(network)
    redis = start_redis(network)
    with Guide("haproxy-lua.md") as guide, Guide("placement.md") as primaries:
        text, backend = first_tier(proxy, nodes)
        # Already with placement, whose start waits for a lease and a limit; nothing runs long here.
        placement = primaries.take("Setting it up", "toml")
        assert 'request_limit = "60s"' in placement
        placement = placement.replace('request_limit = "60s"', 'request_limit = "1s"\nlease = "3s"')
        nodes.write(merged(text, guide.take("Agents", "toml"), placement))
        nodes.run(guide.says("systemctl restart plimsoll"))
        nodes.ready()
        node1 = nodes.hosts[0]
        shown = guide.says(f"plimsoll ring show --url {AGENT}")
        node1.wait("both nodes in the ring", lambda: "node2" in node1.run(f"{shown} || true"))

        proxy.run(guide.take("HAProxy", "sh"))
        proxy.write(LUA, guide.take("HAProxy", "lua"))
        load, lines = guide.take("HAProxy", "haproxy").removeprefix("global\n").split("\nbackend queries\n")
        site = Site(guide, proxy, nodes, backend, load, lines, guide.take("Metrics", "haproxy"))
        site.configure(lines)
        proxy.run(guide.take("HAProxy", "sh"))
        try_the_ring(site)
        try_classes(site)
        try_writes(site, primaries)
        primaries.leave("What nodes check", "sql", "the nodes of tests/harness/primaries.py run it")
        redis.write("/tmp/more.conf", primaries.take("A Redis that is replicated", ""))
        redis.run("redis-server /tmp/more.conf --port 0 --unixsocket /tmp/more --daemonize yes --save ''")
        redis.wait(
            "NOREPLICAS", lambda: "NOREPLICAS" in redis.run("redis-cli -s /tmp/more set a b 2>&1 || true")
        )
        check_the_feed(site)

        configure(proxy, backend)
        site.reload()
        nodes.write(text)
        nodes.run("systemctl restart plimsoll")
        nodes.ready()
        wait_servers(proxy, agent_status="L7OK")
        assert proxy.status("http://127.0.0.1/x/S1") == "200"
        left = guide.says("plimsoll:{stocks}:…").removesuffix("…")
        keys = redis.run("redis-cli -h 192.0.2.5 --raw keys '*'").split()
        assert keys and all(key.startswith(left) for key in keys), keys
