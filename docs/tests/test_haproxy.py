"""docs/haproxy.md and docs/sources.md, from their text, on hosts with the real programs."""

import re

from docs.tests.cluster import (
    CHANGE,
    OBEY,
    WATCH,
    Nodes,
    configure,
    install_agents,
    node_of,
    rows,
    wait_servers,
    without_source,
)
from docs.tests.guide import Guide, merged
from docs.tests.host import Host

HISTOGRAM = "The application's own histogram"
SKIPPED = "Requests that should not count"


def watch_before_haproxy_asks(guide: Guide, proxy: Host, node1: Host) -> None:
    status = guide.take(WATCH, "sh")

    def watched() -> bool:
        node_of(proxy, "/x")
        return re.search(r"^  delay +[\d.]+ s of 1 s$", node1.run(status), re.MULTILINE) is not None

    node1.wait("a delay in the answer to step 3", watched)


def watch_before_haproxy_obeys(guide: Guide, proxy: Host, node1: Host) -> None:
    wait_servers(proxy, status="UP", weight="100", slim="", agent_status="CHECKED", last_agt="")
    status = guide.take("5. Watch before HAProxy obeys", "sh")
    told = r'^  proxy +\S+ as queries/node1: .*, told "# observe: would be up 100% maxconn:'
    node1.wait("the proxy", lambda: re.search(told, node1.run(status), re.MULTILINE) is not None)
    said = node1.run(status)
    assert "mode      observe: not applied by any proxy; would refuse 0/s" in said
    metrics = node1.curl(f"http://{node1.address}:9464/metrics")
    assert f'{guide.says("plimsoll_would_refuse_total")}{{service="queries"}} 0\n' in metrics
    assert "observe" in node1.run(f"plimsoll top --once http://{node1.address}:9464")
    assert node1.run(f"{guide.says('plimsoll node drain')} 2>&1 || true").endswith("no proxy would get it\n")
    wait_servers(proxy, status="UP", weight="100", slim="", agent_status="CHECKED", last_agt="")


def see_it_work(guide: Guide, proxy: Host, node1: Host) -> None:
    wait_servers(proxy, status="UP", weight="100", agent_status="L7OK")
    see = guide.take(OBEY, "sh")
    told = r'^  proxy +\S+ as queries/node1: \d+ jobs, asked [\d.]+ s ago, told "up 100% maxconn:\d+ # p95 '
    node1.wait("the proxy", lambda: re.search(told, node1.run(see), re.MULTILINE) is not None)
    for row in rows(proxy).values():
        assert int(row["slim"]) > 0 and row["last_agt"].startswith("via agent : up (p95 ")
    assert {node_of(proxy, "/x") for _ in range(4)} == {"node1", "node2"}


def go_back_without_a_reload(guide: Guide, proxy: Host, node1: Host) -> None:
    node1.run(guide.says("plimsoll node drain"))
    proxy.wait("the drain", lambda: rows(proxy)["node1"]["status"].startswith("DRAIN"))
    proxy.run(guide.take("Roll back", "sh"))
    found = {key: rows(proxy)["node1"][key] for key in ("status", "weight", "slim")}
    assert found == {"status": "UP", "weight": "100", "slim": ""}
    again = guide.says("enable agent queries/node1")
    proxy.run(f"echo {again} | socat stdio /run/haproxy/admin.sock")
    proxy.wait("the drain", lambda: rows(proxy)["node1"]["status"].startswith("DRAIN"))
    node1.run(guide.says("plimsoll node ready"))
    wait_servers(proxy, status="UP", agent_status="L7OK")


def lines(host: Host, result: str) -> int:
    """What the agent read in HAProxy's log."""
    metrics = host.curl(f"http://{host.address}:9464/metrics")
    found = re.search(rf'^plimsoll_source_lines_total\{{.*result="{result}".*\}} (\d+)$', metrics, re.M)
    return int(found[1]) if found else 0


def count_only_requests(proxy: Host, nodes: Nodes) -> None:
    """With health checks and streams among them; the agents have just started."""
    requests, checks, streams = 3, 4, 4
    for _ in range(4):
        assert proxy.status("http://127.0.0.1/healthz") == "200"
        assert node_of(proxy, "/events") == "node1"
    # Lines arrive in their order, so those before have been read with these.
    for _ in range(requests):
        assert node_of(proxy, "/x")

    def told() -> list[int]:
        of = ("finished", "excluded", "other_node")
        return [sum(lines(host, result) for result in of) for host in nodes.hosts]

    every = requests + checks + streams
    proxy.wait("the last request in the log", lambda: min(told()) >= every)
    assert told() == [every] * 2
    assert sum(lines(host, "finished") for host in nodes.hosts) == requests
    assert sum(lines(host, "excluded") for host in nodes.hosts) == checks


def test_docs_haproxy_md_and_sources_md(network):
    proxy = network.host("lb1", "192.0.2.2")
    nodes = Nodes.make(network)
    node1 = nodes.hosts[0]
    with Guide("haproxy.md") as guide, Guide("sources.md") as sources:
        before, after = guide.take(CHANGE, "haproxy"), guide.take(CHANGE, "haproxy")
        spread = guide.take(CHANGE, "haproxy").removeprefix("global\n")
        log = guide.take(WATCH, "haproxy")
        configure(proxy, before)
        proxy.run("systemctl start haproxy")
        wait_servers(proxy, status="UP", weight="1", agent_status="")
        text = install_agents(guide, nodes)
        node1.run("test -s /usr/share/man/man1/plimsoll.1")
        cost, skipped = sources.take("HAProxy's log", "haproxy"), sources.take(SKIPPED, "haproxy")
        log += cost + skipped
        streams = "backend streams\n    server node1 192.0.2.11:8080\n"
        configure(proxy, before, log, streams)
        reload = guide.take(WATCH, "sh")
        proxy.run(reload)
        proxy.wait("the new process", lambda: bool(rows(proxy, "streams")))
        count_only_requests(proxy, nodes)
        watch_before_haproxy_asks(guide, proxy, node1)

        configure(proxy, after, log, streams, spread)
        proxy.run(reload)
        watch_before_haproxy_obeys(guide, proxy, node1)
        nodes.run(guide.take(OBEY, "sh"))
        see_it_work(guide, proxy, node1)
        go_back_without_a_reload(guide, proxy, node1)
        nodes.run(guide.says("systemctl reload plimsoll"))

        hashed = guide.take("The same key to the same node", "haproxy")
        classes = guide.take("Important requests first", "haproxy")
        assert "    balance leastconn\n" in after
        configure(proxy, after.replace("    balance leastconn\n", hashed + classes), more=spread)
        proxy.run(reload)
        health = guide.take("Health checks", "toml")
        nodes.write(merged(without_source(text), sources.take(HISTOGRAM, "toml"), health))
        nodes.run(guide.says("systemctl restart plimsoll"))
        nodes.ready()
        wait_servers(proxy, status="UP", agent_status="L7OK")
        url = "http://192.0.2.11:9464/v1/node"

        def read_from_the_histogram() -> bool:
            owners = [{node_of(proxy, f"/x/{key}") for _ in range(2)} for key in range(6)]
            assert all(len(owner) == 1 for owner in owners), owners
            found = node1.json(url)["services"]["queries"]
            return found["finished"] > 0 and found["source_error"] is None

        node1.wait("a finished request in the histogram", read_from_the_histogram)

        configure(proxy, before)
        proxy.run(reload)
        wait_servers(proxy, status="UP", weight="1", agent_status="", slim="")
