"""An agent that only observes: no HAProxy changes anything by it, until a reload has it obeyed."""

import json
import re
import signal
import subprocess
import urllib.error
import urllib.request

import pytest

from tests.harness import programs
from tests.harness.agent import Agent, redis, ring, service
from tests.harness.haproxy import HAProxy
from tests.harness.ports import free_ports

CONFIG = """\
global
    stats socket {directory}/haproxy.sock mode 660 level admin
    max-spread-checks 100
defaults
    mode http
    timeout connect 500ms
    timeout client 10s
    timeout server 10s
frontend web
    bind 127.0.0.1:{port}
    default_backend queries
backend queries
    balance leastconn
    server node1 127.0.0.1:{nobody} weight 80 maxconn 33 agent-check agent-port {check} agent-inter 100ms \
agent-send "queries/node1\\n"
"""
OBSERVES = 'mode = "observe"'
IDENTITY = 'identities = ["queries/node1"]'
ANSWERED = r'^plimsoll_agent_checks_total\{answer="observe",service="stocks"\} (\d+)$'


class Site:
    def __init__(self, stack, directory, haproxy: str) -> None:
        port, self.nobody = free_ports(2)
        self.file = directory / "agent.toml"
        self.agent = Agent(stack, directory, "agent", self.config(OBSERVES)).start().wait_ready()
        text = CONFIG.format(directory=directory, port=port, nobody=self.nobody, check=self.agent.check_port)
        self.haproxy = HAProxy(stack, directory, text, program=haproxy).start()

    def config(self, mode: str) -> str:
        source = f'kind = "prometheus"\nurl = "http://127.0.0.1:{self.nobody}/metrics"\nhistogram = "seconds"'
        return service(18, f"{mode}\n{IDENTITY}", source) + "[service.output]\nfull_weight_bound = 36\n"

    def reload(self, mode: str) -> None:
        text = self.file.read_text()
        head = text[: text.index("[[service]]")]
        self.file.write_text(head + self.config(mode))
        self.agent.process.send_signal(signal.SIGHUP)

    def server(self) -> dict[str, str]:
        found = self.haproxy.servers()["node1"]
        return {key: found[key] for key in ("status", "weight", "slim")}

    def asked(self) -> int:
        found = re.search(ANSWERED, self.agent.get("/metrics"), re.MULTILINE)
        return int(found[1]) if found else 0

    def told(self) -> str:
        proxies = self.agent.json("/v1/node")["services"]["stocks"]["proxies"]
        return proxies[0]["told"] if proxies else ""

    def asked_again(self, times: int = 3) -> None:
        enough = self.asked() + times
        self.agent.eventually("more checks", lambda: self.asked() >= enough)


@pytest.fixture
def site(stack, tmp_path, haproxy) -> Site:
    return Site(stack, tmp_path, haproxy)


def test_nothing_changes_until_a_reload_has_it_obeyed(site):
    before = site.server()
    assert (before["weight"], before["slim"]) == ("80", "33")
    site.asked_again()
    assert site.server() == before
    site.agent.eventually(
        "what it would be", lambda: site.told().startswith("# observe: would be up 50% maxconn:18 # ")
    )
    assert "CHECKED" in site.haproxy.servers()["node1"]["agent_status"]

    # What operators set in HAProxy stays theirs.
    for command in ("set server queries/node1 state drain", "set maxconn server queries/node1 5"):
        site.haproxy.ask(command)
    theirs = site.server()
    assert theirs["status"].startswith("DRAIN") and theirs["slim"] == "5"
    site.asked_again()
    assert site.server() == theirs
    site.haproxy.ask("set server queries/node1 state ready")

    # An operator of the agent is not left to think that somebody heard.
    command = [programs.agent(), "node", "--socket", str(site.agent._socket), "drain"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    assert refused.returncode != 0 and "no proxy would get it" in refused.stderr

    site.reload("")
    site.agent.eventually("the limit", lambda: site.server()["slim"] == "18")
    assert site.server()["weight"] == "40"
    assert site.haproxy.servers()["node1"]["agent_status"].endswith("L7OK")
    site.agent.node("drain")
    site.agent.eventually("the drain", lambda: site.server()["status"].startswith("DRAIN"))

    # Back again: what was told last stays, but for the agent's own drain, which an operator may undo.
    site.reload(OBSERVES)
    site.asked_again()
    assert site.server()["status"].startswith("DRAIN")
    site.agent.node("ready")
    site.agent.eventually("no drain", lambda: not site.server()["status"].startswith("DRAIN"))
    site.asked_again()
    assert (site.server()["weight"], site.server()["slim"]) == ("40", "18")


def test_neither_ring_nor_envoy_hears_of_a_node_that_is_only_observed(stack, tmp_path, server):
    """Beside one that is obeyed, in one ring and one discovery."""
    server.client.flushdb()
    (nobody,) = free_ports(1)
    https = free_ports(2)
    source = f'kind = "prometheus"\nurl = "http://127.0.0.1:{nobody}/metrics"\nhistogram = "seconds"'
    peers = ", ".join(f'"http://127.0.0.1:{http}"' for http in https)
    agents = {}
    for name, mode, http in zip(("obeyed", "observed"), ("", OBSERVES), https, strict=True):
        address = f'{mode}\naddress = "127.0.0.1:{http}"'
        text = (
            redis(server.port) + f"[envoy]\npeers = [{peers}]\n" + service(18, address, source) + ring(name)
        )
        agents[name] = Agent(stack, tmp_path, name, text, http=http).start()
    obeyed, observed = (agents[name].wait_ready() for name in ("obeyed", "observed"))

    def owners(agent: Agent) -> set[str]:
        try:
            return set(agent.json("/v1/ring")["nodes"])
        except urllib.error.HTTPError:
            return set()

    for agent in (obeyed, observed):
        agent.eventually("the ring", lambda agent=agent: owners(agent) == {"obeyed"})

    def endpoints(agent: Agent) -> list[dict]:
        body = json.dumps({"resource_names": ["stocks"]}).encode()
        request = urllib.request.Request(f"{agent.url}/v3/discovery:endpoints", body)
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                found = json.load(answer)["resources"][0]
        except urllib.error.HTTPError:
            return []
        (drop,) = found["policy"]["drop_overloads"]
        assert drop["drop_percentage"]["numerator"] == 0
        return found["endpoints"][0]["lb_endpoints"]

    for agent in (obeyed, observed):
        agent.eventually("both nodes", lambda agent=agent: len(endpoints(agent)) == 2)
        found = endpoints(agent)
        assert {one["health_status"] for one in found} == {"HEALTHY"}
        # What is only observed has the mean of the others.
        assert len({one["load_balancing_weight"] for one in found}) == 1
    load = observed.get("/v1/orca")
    assert load == "TEXT application_utilization=0.0000,rps_fractional=0.000,eps=0.000"
    assert 'plimsoll_observes{service="stocks"} 1' in observed.get("/metrics")


def test_a_mode_that_there_is_not_is_refused(stack, tmp_path):
    agent = Agent(stack, tmp_path, "agent", service(18, 'mode = "dream"', 'kind = "partitions"'))
    agent.start()
    agent.eventually("the end", lambda: agent.process.poll() is not None)
    wanted = 'service[0].mode: must be one of "enforce", "observe", is "dream"'
    assert agent.process.returncode != 0 and wanted in agent.said(), agent.said()
