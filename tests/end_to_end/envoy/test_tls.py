"""Stock Envoy asks agents that want certificates, by the transport socket of docs/envoy-filter.md."""

import re
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from tests.end_to_end.envoy.native_site import NativeSite, until_shared
from tests.harness import ROOT, programs
from tests.harness.eventually import eventually
from tests.harness.ports import free_ports

pytestmark = programs.needs(programs.agent, programs.envoy)

CERTIFICATES = """
new='openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2'
$new -keyout ca.key -out ca.pem -subj /CN=ca
of="-CA ca.pem -CAkey ca.key -addext basicConstraints=critical,CA:FALSE"
$new -keyout agent.key -out agent.pem -subj /CN=agent $of -addext subjectAltName=IP:127.0.0.1
$new -keyout client.key -out client.pem -subj /CN=envoy $of
"""


def transport_socket(directory: Path) -> dict[str, Any]:
    """The guide's, with this directory's files and the agents on loopback."""
    page = (ROOT / "docs/envoy-filter.md").read_text()
    section = page.split("### Agents with certificates", 1)[1]
    block = re.search(r"^```yaml\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[1]
    block = block.replace("/etc/plimsoll/tls", str(directory)).replace("192.0.2.11", "127.0.0.1")
    return yaml.safe_load(block)["transport_socket"]


def tables(directory: Path) -> str:
    """The agent's, as docs/http-api.md has them."""
    page = (ROOT / "docs/http-api.md").read_text()
    found = re.search(r"^```toml\n(\[http\.tls\].*?)^```", page, re.MULTILINE | re.DOTALL)[1]
    return found.replace("/etc/plimsoll/tls", str(directory))


def test_envoy_finds_its_nodes_at_agents_with_certificates(tmp_path):
    subprocess.run(["bash", "-euc", CERTIFICATES], cwd=tmp_path, check=True, capture_output=True)
    with ExitStack() as stack:
        site = NativeSite(tmp_path, stack)
        node = site.node("node1")
        (port,) = free_ports(1)
        site.agent("a", f"127.0.0.1:{node.port}", port, "")
        file = tmp_path / "a.toml"
        file.write_text(file.read_text() + tables(tmp_path))
        site.agents["a"].process.send_signal(signal.SIGHUP)

        config = site.config("eds-fc-prop.yaml", [port])
        clusters = {cluster["name"]: cluster for cluster in config["static_resources"]["clusters"]}
        clusters["plimsoll_agents"]["transport_socket"] = transport_socket(tmp_path)
        envoy = site.envoy(config)
        until_shared(envoy, "requests at the node", lambda found: set(found) == {"node1"})
        handshakes = "cluster.plimsoll_agents.ssl.handshake"
        eventually("handshakes", lambda: envoy.stats(handshakes.replace(".", r"\."))[handshakes] > 0)
