"""docs/freshness.md, from its text, on hosts with the real programs."""

import json

from docs.tests.cluster import Nodes, configure, install_agents
from docs.tests.guide import Guide, merged
from tests.harness import programs

STOCKS = (
    "--listen 127.0.0.1:8001 --replication-listen 127.0.0.1:8199 --role master"
    " --data-dir /tmp/data --symbols 40 --history 3 --accounts 3 --workers 2"
)
FEED = "http://127.0.0.1:8081"


def test_docs_freshness_md(network):
    proxy = network.host("lb1", "192.0.2.2")
    nodes = Nodes.make(network)
    node1 = nodes.hosts[0]
    with Guide("freshness.md") as guide:
        # The lab's service shows its items as the guide wants it.
        for host in nodes.hosts:
            words = f"serve --name {host.name} {STOCKS}"
            host.start("stocks", programs.binary("stocks"), *words.split())
            host.wait("stocks", lambda host=host: host.status("http://127.0.0.1:8001/readyz") == "200")
        wanted = json.loads(guide.take("Set-up", "json").replace(", …", ""))
        shown = node1.json("http://127.0.0.1:8001/accesses")
        assert wanted.keys() <= shown.keys()
        assert wanted["items"][0].keys() <= shown["items"][0].keys()

        text = install_agents(Guide("haproxy.md"), nodes)
        nodes.write(merged(text, guide.take("Set-up", "toml")))
        nodes.run("systemctl restart plimsoll")
        nodes.ready()
        node1.wait(
            "what the feed is told", lambda: node1.status("http://192.0.2.11:9464/v1/updates") == "200"
        )
        watched = 'plimsoll_update_items{service="queries"} 40'
        node1.wait("the items", lambda: watched in node1.curl("http://192.0.2.11:9464/metrics"))

        second = Guide("haproxy-lua.md")
        proxy.run(second.take("HAProxy", "sh"))
        proxy.write("/etc/haproxy/plimsoll-updates.lua", guide.take("A feed that cannot be told", "lua"))
        load, _ = second.take("HAProxy", "haproxy").removeprefix("global\n").split("\nbackend queries\n")
        load = load.replace("plimsoll.lua", "plimsoll-updates.lua")
        service = guide.says("lua.plimsoll_update_metrics")
        head, rules = second.take("Pushed updates", "haproxy").split("    option http-buffer", 1)
        metrics = f"    http-request use-service {service} if {{ path /metrics }}\n"
        feed = f"{head}{metrics}    option http-buffer{rules}"
        backend = "backend quotes\n    server node1 192.0.2.11:8080\n"
        configure(proxy, "backend queries\n", rest=feed + backend, more=load)
        proxy.run("haproxy -c -f /etc/haproxy/haproxy.cfg && systemctl start haproxy")
        asked = "ss -Htan '( sport = :9464 and dst 192.0.2.2 )'"
        for host in nodes.hosts:
            host.wait("HAProxy, which asks", lambda host=host: host.run(asked) != "")
        answer = proxy.curl(f"-D - -X PUT -d 12.5 {FEED}/quote/S0001")
        assert answer.startswith("HTTP/1.1 200") and "plimsoll-update: passed" in answer
        passed = 'plimsoll_pushed_updates_total{outcome="passed"} 1'
        proxy.wait("the update in the metrics", lambda: passed in proxy.curl(f"{FEED}/metrics"))
