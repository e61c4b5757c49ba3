"""docs/failover.md, from its text, on hosts with the real programs; the lab's scenarios kill them."""

import json
import re
from typing import Any

import yaml

from docs.tests import postgres
from docs.tests.cluster import Nodes, configure, install_agents, node_of, wait_servers
from docs.tests.guide import Guide, merged
from docs.tests.host import Host
from tests.harness import programs

SECTION = "The master of a replicated database"
ETCD = "http://192.0.2.11:2379"
ROLE = "http://{}:9464/v1/role?takes=writes"


def patroni(host: Host, bootstrap: dict[str, Any]) -> str:
    """The rest of its configuration; JSON is YAML."""
    inside = [
        "local all all peer",
        *(f"host {what} 192.0.2.0/24 trust" for what in ("replication all", "all all")),
    ]
    return json.dumps(
        bootstrap
        | {
            "scope": "ledger",
            "name": host.name,
            "restapi": {"listen": "0.0.0.0:8008", "connect_address": f"{host.address}:8008"},
            "etcd3": {"host": ETCD.removeprefix("http://")},
            "postgresql": {
                "listen": f"{host.address}:5432",
                "connect_address": f"{host.address}:5432",
                "data_dir": postgres.DATA,
                "bin_dir": programs.postgres("postgres").rpartition("/")[0],
                "authentication": {
                    "superuser": {"username": "postgres"},
                    "replication": {"username": "replicator"},
                },
                "pg_hba": inside,
                "use_unix_socket": True,
                "parameters": {
                    "unix_socket_directories": "/run/postgresql",
                    "dynamic_shared_memory_type": "mmap",
                    "fsync": "off",
                },
                "basebackup": [{"checkpoint": "fast"}, "no-sync"],
            },
        }
    )


def start_database(nodes: Nodes, bootstrap: dict[str, Any]) -> None:
    """A primary at node 1, and a standby at node 2."""
    node1 = nodes.hosts[0]
    at = f"--listen-client-urls {ETCD} --advertise-client-urls {ETCD} --data-dir /tmp/etcd"
    node1.start("etcd", programs.etcd(), *at.split())
    for host in nodes.hosts:
        host.run("chown postgres: /run/postgresql")
        host.write("/etc/patroni.yml", patroni(host, bootstrap))
        host.start("patroni", "runuser", "-u", "postgres", "--", programs.patroni(), "/etc/patroni.yml")
        kind = "primary" if host is node1 else "replica"
        host.wait(
            f"a {kind}", lambda host=host, kind=kind: host.status(f"http://127.0.0.1:8008/{kind}") == "200"
        )


def test_docs_failover_md(network):
    proxy = network.host("lb1", "192.0.2.2")
    nodes = Nodes.make(network)
    node1, node2 = nodes.hosts
    with Guide("failover.md") as guide:
        bootstrap = yaml.safe_load(guide.take(SECTION, "yaml"))
        start_database(nodes, bootstrap)
        in_force = node1.json("http://127.0.0.1:8008/config")
        assert in_force == bootstrap["bootstrap"]["dcs"]

        role = guide.take(SECTION, "toml")
        postgres.sql(node1, re.search("CREATE ROLE .*", role)[0])
        text = install_agents(Guide("haproxy.md"), nodes).replace('"queries/', '"reads/')
        nodes.write(merged(text, role))
        nodes.run("systemctl restart plimsoll")
        nodes.ready()
        node1.wait("a primary", lambda: node1.status(f"'{ROLE.format(node1.address)}'") == "200")
        assert node1.status(f"'{ROLE.format(node2.address)}'") == "503"

        frontend = "    use_backend writes if METH_POST\n    use_backend reads if TRUE\n"
        configure(proxy, "backend queries\n", frontend, guide.take(SECTION, "haproxy"))
        proxy.run("haproxy -c -f /etc/haproxy/haproxy.cfg && systemctl start haproxy")
        wait_servers(proxy, "reads", status="UP", agent_status="L7OK")
        proxy.wait("reads at both", lambda: {node_of(proxy, "/x") for _ in range(4)} == {"node1", "node2"})
        # Before its first check HAProxy sends to anyone.
        wrote = "-D - -X POST http://127.0.0.1/x"
        proxy.wait(
            "writes at the primary", lambda: all("x-node: node1" in proxy.curl(wrote) for _ in range(4))
        )
