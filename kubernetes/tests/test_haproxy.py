"""HAProxy's configuration with real agents, at addresses that a name server gives and changes."""

import re
from contextlib import ExitStack
from pathlib import Path

from kubernetes.tests.manifests import files
from kubernetes.tests.name_server import NameServer
from tests.harness import programs
from tests.harness.haproxy import HAProxy
from tests.harness.http_server import Answering
from tests.harness.ports import free_ports
from tests.harness.process import run


def start_pod(stack: ExitStack, directory: Path, address: str, ports: dict[str, int]) -> None:
    """A service and the agent beside it."""
    service = Answering(lambda _method, _path: (200, address.encode()), address, ports["8080"])
    stack.callback(service.stop)
    own = directory / address
    own.mkdir()
    text = files("sidecar", "queries-agent")["agent.toml"].replace('"observe"', '"enforce"')
    text = re.sub("/(var/lib|run)/plimsoll", str(own), text)
    text = re.sub(r"\b(0\.0\.0\.0|127\.0\.0\.1):(\d+)", lambda found: f"{address}:{ports[found[2]]}", text)
    (own / "agent.toml").write_text(text)
    command = [programs.agent(), "agent", "--config", str(own / "agent.toml")]
    run(stack, command, own / "agent.log")


def test_agent_checks_follow_the_addresses_that_the_name_server_gives(tmp_path, stack, haproxy):
    port, http, check, clients, monitor = free_ports(5)
    ports = {"8080": port, "9464": http, "9101": check}
    names = NameServer("127.0.0.2", "127.0.0.3")
    stack.callback(names.stop)
    for address in ("127.0.0.2", "127.0.0.3", "127.0.0.4"):
        start_pod(stack, tmp_path, address, ports)

    text = files("haproxy", "queries-haproxy")["haproxy.cfg"]
    socket = f"stats socket {tmp_path}/haproxy.sock level admin"
    host = "queries.default.svc.cluster.local"
    for manifest, here in {
        "max-spread-checks 100": f"max-spread-checks 100\n    {socket}",
        "parse-resolv-conf": f"nameserver here 127.0.0.1:{names.port}",
        '"${QUERIES_HOST}.${NAMESPACE}.svc.${CLUSTER_DOMAIN}:8080"': f"{host}:{port}",
        "agent-port 9101": f"agent-port {check}",
        "bind :8080": f"bind 127.0.0.1:{clients}",
        "bind :8404": f"bind 127.0.0.1:{monitor}",
    }.items():
        assert text.count(manifest) == 1
        text = text.replace(manifest, here)
    proxy = HAProxy(stack, tmp_path, text, program=haproxy).start()

    def obeyed() -> set[str]:
        """Addresses of the servers that are up by their agents' answers."""
        return {
            server["addr"].partition(":")[0]
            for server in proxy.servers().values()
            if server["status"] == "UP" and server["agent_status"] == "L7OK"
        }

    proxy.eventually("both agents are obeyed", lambda: obeyed() == {"127.0.0.2", "127.0.0.3"})
    assert proxy.get("/")[0] == 200
    names.addresses = ["127.0.0.3", "127.0.0.4"]
    proxy.eventually("the new Pod's agent is obeyed", lambda: obeyed() == {"127.0.0.3", "127.0.0.4"})
    assert proxy.get("/")[0] == 200
