"""docs/scatter.md, from its text, on hosts with the real programs."""

import json

from docs.tests import postgres
from docs.tests.cluster import INSTALL, Nodes, configure
from docs.tests.guide import Guide, merged
from tests.harness import ROOT

AGENT, GATHER = "Set-up of an agent", "Set-up of `plimsoll gather`"
ONE, ALL = "Ask one partition", "Ask all partitions"
TOKEN = "a-token-of-this-test"
ROWS = """
CREATE TABLE molecules (cid bigint, similarity double precision);
INSERT INTO molecules VALUES (4, 0.88), (17, 0.91), (5, 0.3);
"""


def test_docs_scatter_md(network):
    nodes = Nodes.make(network)
    node1, node2 = nodes.hosts
    gathers = [network.host("gather1", "192.0.2.20"), network.host("gather2", "192.0.2.21")]
    proxy = network.host("lb1", "192.0.2.2")
    install = Guide("haproxy.md").take(INSTALL, "sh")
    with Guide("scatter.md") as guide:
        guide.leave("One query to every partition", "indented", "a drawing")
        for host in (*nodes.hosts, *gathers):
            host.run(install)
            for name in ("token", "gather-token", "service-token"):
                host.write(f"/etc/plimsoll/{name}", TOKEN)

        postgres.start(node1, guide.take(AGENT, "pg_hba"), guide.take(AGENT, "pg_ident"))
        postgres.sql(node1, "CREATE DATABASE molecules_1")
        postgres.sql(node1, ROWS, "molecules_1")
        postgres.sql(node1, guide.take(AGENT, "sql"))
        agent = guide.take(AGENT, "toml")
        bound = guide.take("Backlog and bound", "toml")
        nodes.write(merged(agent, bound))
        # The other node's partition is a service's.
        service = guide.take("A partition that a service has", "toml")
        http = agent.split("[[partition]]")[0].replace(node1.address, node2.address)
        node2.write("/etc/plimsoll/agent.toml", merged(http, bound.split("[[partition]]")[0], service))
        node2.start("partition", "/usr/bin/python3", str(ROOT / "docs/tests/service.py"), "partition", "9200")
        nodes.run("systemctl enable --now plimsoll")
        nodes.ready()
        bearer = f"-H 'Authorization: Bearer {TOKEN}'"
        question = guide.take(ONE, "json").strip()
        asked = node1.curl(f"{bearer} -d '{question}' http://192.0.2.11:9464/v1/partition-query")
        assert asked == guide.take(ONE, "json")
        assert '"scatter"' in node1.curl("http://192.0.2.11:9464/v1/node")

        text, start = guide.take(GATHER, "toml"), guide.take(GATHER, "sh")
        for host in gathers:
            host.write("/etc/plimsoll/gather.toml", text.replace("192.0.2.20:", f"{host.address}:"))
            host.run(start)
        configure(proxy, "backend queries\n", "    use_backend gather\n", guide.take(GATHER, "haproxy"))
        proxy.run("haproxy -c -f /etc/haproxy/haproxy.cfg && systemctl start haproxy")
        question = guide.take(ALL, "json").strip()
        ask = f"{bearer} -d '{question}' http://127.0.0.1/v1/gather"
        proxy.wait("an answer", lambda: proxy.curl(ask).startswith('{"columns"'))
        *rows, end = proxy.curl(ask).splitlines()
        *wanted, last = guide.take(ALL, "json").splitlines()
        assert rows == wanted
        said, shown = json.loads(end)["end"], json.loads(last.replace(", …", ""))["end"]
        assert [part["name"] for part in said["partitions"]] == ["molecules-1", "molecules-2"]
        said["partitions"] = said["partitions"][:1]
        for one in (said, shown):
            assert one["partitions"][0].pop("delay_seconds") < 5
        assert said == shown
