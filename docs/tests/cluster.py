"""The hosts of the guides' example, and the first tier on them as docs/haproxy.md says."""

import csv
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from docs.tests.guide import Guide
from docs.tests.host import Host, Network
from tests.harness import ROOT

CONFIG = "/etc/haproxy/haproxy.cfg"
CHANGE = "4. Let HAProxy ask the agents"
WATCH = "3. Send HAProxy's log to the agents, and watch"
INSTALL = "1. Install the agent on every node"
CONFIGURE = "2. Configure the agent"
OBEY = "6. Let HAProxy obey"
OBSERVED = re.compile(r'^mode = "observe" .*\n', re.MULTILINE)
HAPROXYS = sorted(ROOT.glob(".tools/haproxy-*/bin/haproxy"))
FRONTEND = "frontend web\n    bind :80\n    default_backend queries\n"


@dataclass
class Nodes:
    """Two of them, which serve on port 8080."""

    hosts: tuple[Host, Host]

    @staticmethod
    def make(network: Network) -> "Nodes":
        nodes = Nodes((network.host("node1", "192.0.2.11"), network.host("node2", "192.0.2.12")))
        for host in nodes.hosts:
            host.start("service", "/usr/bin/python3", str(ROOT / "docs/tests/service.py"), host.name, "8080")
        return nodes

    def write(self, text: str) -> None:
        """The agents' configuration, which guides have for node 1."""
        for host in self.hosts:
            own = re.sub(
                r'((?:listen|address)"? = "(?:udp://)?)192\.0\.2\.11:', rf"\g<1>{host.address}:", text
            )
            own = own.replace("node1", host.name)
            host.write("/etc/plimsoll/agent.toml", own)

    def run(self, script: str) -> None:
        with ThreadPoolExecutor() as both:
            list(both.map(lambda host: host.run(script), self.hosts))

    def ready(self) -> None:
        for host in self.hosts:
            host.wait(
                "the agent", lambda host=host: host.status(f"http://{host.address}:9464/readyz") == "200"
            )


def start_redis(
    network: Network, *words: str, address: str = "192.0.2.5", before: str = "", host: Host | None = None
) -> Host:
    """With more words on its command line, after a script, at a host that may be there."""
    host = host or network.host(f"redis{address[-1]}", address)
    host.run(before)
    server = f"redis-server --dir /tmp --bind {address} --protected-mode no".split()
    host.start("redis", *server, "--save", "", *words)
    host.wait("Redis", lambda: "PONG" in host.run(f"redis-cli -h {address} ping || true"))
    return host


def install_agents(guide: Guide, nodes: Nodes) -> str:
    """Steps 1 and 2 of docs/haproxy.md; the agents' configuration, as it is once HAProxy obeys."""
    script, text = guide.take(INSTALL, "sh"), guide.take(CONFIGURE, "toml")
    nodes.run(script)
    nodes.write(text)
    nodes.run(guide.take(CONFIGURE, "sh"))
    nodes.ready()
    obeyed, observed = OBSERVED.subn("", text)
    assert observed == 1
    return obeyed


def without_source(text: str) -> str:
    """Of step 2's configuration, whose last table it is, so that another one can take its place."""
    return text.split("[service.source]", maxsplit=1)[0]


def rows(proxy: Host, backend: str = "queries") -> dict[str, dict[str, str]]:
    """HAProxy's view of the backend's servers."""
    text = proxy.run(f"echo 'show stat {backend} 4 -1' | socat stdio /run/haproxy/admin.sock")
    return {row["svname"]: row for row in csv.DictReader(text.removeprefix("# ").splitlines())}


def wait_servers(proxy: Host, backend: str = "queries", **expected: str) -> None:
    def all_are() -> bool:
        found = rows(proxy, backend)
        return len(found) == 2 and all(expected.items() <= row.items() for row in found.values())

    proxy.wait(f"servers as {expected}", all_are)


def configure(proxy: Host, backend: str, frontend: str = "", rest: str = "", more: str = "") -> None:
    """The package's configuration of HAProxy, with `more` in `global` and these sections.

    No version warns of it."""
    packaged = proxy.read("/usr/share/packaged/haproxy.cfg").replace("global\n", f"global\n{more}", 1)
    proxy.write(CONFIG, f"{packaged}\n{FRONTEND}{frontend}\n{backend}\n{rest}")
    said = proxy.run("".join(f"{program} -c -f {CONFIG} 2>&1\n" for program in ("haproxy", *HAPROXYS)))
    assert not re.search("warning|alert", said, re.IGNORECASE), said


def node_of(proxy: Host, path: str) -> str:
    return proxy.curl(
        f"-D - -o /dev/null 'http://127.0.0.1{path}' | tr -d '\\r' | sed -n 's/^x-node: //p'"
    ).strip()


def first_tier(proxy: Host, nodes: Nodes) -> tuple[str, str]:
    """The agents' configuration and HAProxy's backend."""
    guide = Guide("haproxy.md")
    _, backend = guide.take(CHANGE, "haproxy"), guide.take(CHANGE, "haproxy")
    text = install_agents(guide, nodes)
    configure(proxy, backend)
    proxy.run("systemctl start haproxy")
    wait_servers(proxy, agent_status="CHECKED")
    nodes.run(guide.take(OBEY, "sh"))
    wait_servers(proxy, agent_status="L7OK")
    return text, backend
