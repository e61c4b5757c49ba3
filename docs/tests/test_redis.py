"""docs/redis.md, from its text, on hosts with the real programs."""

import re

from docs.tests.cluster import CHANGE, CONFIGURE, INSTALL, OBSERVED, Nodes, configure, start_redis
from docs.tests.guide import Guide, merged

PASSWORD = "a-password-of-this-test"
METRICS = "http://127.0.0.1:8404/plimsoll/metrics"
TLS = (
    "--tls-port 6380 --tls-cert-file /tls/own.pem --tls-key-file /tls/own.key --tls-ca-cert-file /tls/ca.pem"
)
CERTIFICATES = """
mkdir /tls; cd /tls; exec 2>&1
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 1 -subj /CN=ca
openssl req -newkey rsa:2048 -nodes -keyout own.key -out own.csr -subj /CN=redis
echo '{name}' >own.ext
openssl x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile own.ext -out own.pem
"""


def through_its_tls(proxy, guide: Guide, second: Guide) -> None:
    """HAProxy's Lua as its own user, by HAProxy's own TLS."""
    proxy.run(second.take("HAProxy", "sh"))
    settings = second.take("HAProxy", "lua")
    found = 'redis = { addresses = { "192.0.2.5:6379" } }'
    assert found in settings
    guide.says('addresses = { "127.0.0.1:6379" }')
    own = f'redis = {{ addresses = {{ "127.0.0.1:6379" }}, user = "haproxy", password = "{PASSWORD}" }}'
    proxy.write("/etc/haproxy/plimsoll.lua", settings.replace(found, own))
    load, lines = second.take("HAProxy", "haproxy").removeprefix("global\n").split("\nbackend queries\n")
    backend = Guide("haproxy.md").take(CHANGE, "haproxy")
    listen = guide.take("TLS", "haproxy")
    more = f"{second.take('Metrics', 'haproxy')}\n{listen}"
    configure(proxy, backend.replace("    server ", lines + "    server ", 1), rest=more, more=load)
    proxy.run("systemctl start haproxy")

    def placed() -> bool:
        proxy.status("http://127.0.0.1/x/S1")
        return re.search(r"plimsoll_admitted_total\{.*\} [1-9]", proxy.curl(METRICS)) is not None

    proxy.wait("a request that the ring placed", placed)


def test_docs_redis_md(network):
    proxy = network.host("lb1", "192.0.2.2")
    nodes = Nodes.make(network)
    node1, node2 = nodes.hosts
    node3 = network.host("node3", "192.0.2.13")
    first, second = Guide("haproxy.md"), Guide("haproxy-lua.md")
    with Guide("redis.md") as guide:
        redis = start_redis(
            network,
            *f"{TLS} --tls-auth-clients no".split(),
            before=CERTIFICATES.format(name=guide.says("subjectAltName = IP:192.0.2.5, DNS:redis.example")),
        )
        nodes.run(first.take(INSTALL, "sh"))
        proxy.run("install -d /etc/plimsoll")
        authority = redis.read("/tls/ca.pem")
        for host in (node1, proxy):
            host.write("/etc/plimsoll/redis-ca.pem", authority)
        for _ in range(2):
            redis.write("/tmp/rule", guide.take("Users", "").replace("PASSWORD", PASSWORD))
            assert redis.run("redis-cli -h 192.0.2.5 </tmp/rule") == "OK\n"

        # A node that is only observed is in no ring.
        obeyed = OBSERVED.sub("", first.take(CONFIGURE, "toml"))
        text = merged(obeyed, second.take("Agents", "toml"))
        node1.run(guide.take("Users", "sh").replace("PASSWORD", PASSWORD))

        def joins(part: str) -> None:
            """An agent that has the part, and nothing from before, gets a ring."""
            nodes.write(merged(text, part))
            node1.run("systemctl restart plimsoll")
            show = "plimsoll ring show --url http://192.0.2.11:9464"
            node1.wait(f"a ring, by {part}", lambda: "node1" in node1.run(f"{show} || true"))
            metrics = node1.curl("http://192.0.2.11:9464/metrics")
            assert not re.search(r"^plimsoll_redis_failures_total(\{.*\})? [1-9]", metrics, re.MULTILINE), (
                metrics
            )

        joins(guide.take("Users", "toml"))
        through_its_tls(proxy, guide, second)
        joins(guide.take("TLS", "toml"))

        for host in (node1, node2, node3):
            host.write(
                "/etc/sentinel.conf", "protected-mode no\nsentinel monitor mymaster 192.0.2.5 6379 2\n"
            )
            host.start("sentinel", "redis-server", "/etc/sentinel.conf", "--sentinel", "--bind", host.address)
            host.wait(
                "a sentinel",
                lambda host=host: "PONG" in host.run(f"redis-cli -h {host.address} -p 26379 ping || true"),
            )
        joins(guide.take("Sentinel", "toml"))

        redis.run("redis-cli -h 192.0.2.5 shutdown nosave")
        cluster = ("--cluster-enabled", "yes")
        members = [
            start_redis(network, *cluster, host=redis),
            start_redis(network, *cluster, address="192.0.2.6"),
        ]
        for member, slots in zip(members, ("0 8191", "8192 16383"), strict=True):
            member.run(f"redis-cli -h {member.address} cluster addslotsrange {slots}")
        redis.run("redis-cli -h 192.0.2.5 cluster meet 192.0.2.6 6379")
        for member in members:
            member.wait(
                "the cluster",
                lambda member=member: (
                    "cluster_state:ok" in member.run(f"redis-cli -h {member.address} cluster info")
                ),
            )
        joins(guide.take("Cluster", "toml"))
