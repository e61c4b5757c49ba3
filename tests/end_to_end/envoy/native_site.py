"""Stock Envoy with the configuration of an example, real agents, and nodes and peers that tests control."""

import http.client
import json
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.harness import agent
from tests.harness.agent import Agent
from tests.harness.envoy import Envoy, endpoints, example
from tests.harness.eventually import eventually
from tests.harness.http_server import Answering

HISTOGRAM = 'kind = "prometheus"\nurl = "http://127.0.0.1:{port}/metrics"\nhistogram = "work_seconds"'


class Work:
    """Metrics of a service that ends `requests` requests of `seconds` each between any two scrapes."""

    def __init__(self, requests: int, seconds: float) -> None:
        self.requests, self.seconds, self._count, self._lock = requests, seconds, 0, threading.Lock()

    def __call__(self, _method: str, _path: str) -> tuple[int, bytes]:
        with self._lock:
            self._count += self.requests
            count = self._count
        buckets = "".join(
            f'work_seconds_bucket{{le="{le}"}} {count if self.seconds <= float(le) else 0}\n'
            for le in ("0.01", "0.1", "1", "+Inf")
        )
        return 200, (
            f"# TYPE work_seconds histogram\n{buckets}"
            f"work_seconds_sum {count * self.seconds}\nwork_seconds_count {count}\n"
        ).encode()


def seen_by(address: str, admitted: float, ended: float, backlog: float, bound: float) -> bytes:
    """The answer of an agent to `/v1/node`, with these values of its node."""
    flow = {"admitted": admitted, "ended": ended, "backlog": backlog, "bound": bound}
    service = {
        "address": address, "health": "up", "override": {"drain": False, "health": None},
        "decision": {"bound": bound}, "weight_bound": bound, "backlog": backlog, "flow": flow,
        "shed": {"fraction": 0.0, "asked": False},
    }  # fmt: skip
    return json.dumps({"services": {"stocks": service}}).encode()


class NativeSite:
    """Nodes, agents and one Envoy."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory, self.stack = directory, stack
        self.agents: dict[str, Agent] = {}

    def answering(self, say: Callable[[str, str], tuple[int, bytes]], **where: Any) -> Answering:
        server = Answering(say, **where)
        self.stack.callback(server.stop)
        return server

    def node(self, name: str, **where: Any) -> Answering:
        """A node that answers with its name."""
        return self.answering(lambda _method, _path: (200, name.encode()), **where)

    def agent(
        self, name: str, address: str, http: int, envoy: str, bound: int = 1000, metrics: int = 9
    ) -> None:
        service = agent.service(bound, f'address = "{address}"', HISTOGRAM.format(port=metrics))
        config = f"[envoy]\n{envoy}\n{service}"
        made = Agent(self.stack, self.directory, name, config, http=http, period="100ms")
        self.agents[name] = made.start().wait_ready()

    def config(self, name: str, agents: list[int]) -> dict[str, Any]:
        """An example with these agents, polled often, and without checks that would compete with theirs."""
        config = example(name)
        clusters = {cluster["name"]: cluster for cluster in config["static_resources"]["clusters"]}
        for cluster in clusters.values():
            for key in ("health_checks", "outlier_detection"):
                cluster.pop(key, None)
        source = clusters["queries"].get("eds_cluster_config", {}).get("eds_config")
        if source:
            source["api_config_source"]["refresh_delay"] = "0.1s"
        if "plimsoll_agents" in clusters:
            clusters["plimsoll_agents"]["load_assignment"]["endpoints"] = [endpoints(agents)]
        return config

    def envoy(self, config: dict[str, Any]) -> Envoy:
        return Envoy(self.stack, self.directory / "envoy", config, 1).start()


def share(envoy: Envoy, requests: int = 100, path: str = "/stock/{}") -> Counter[str]:
    """Sends requests with different keys, and counts them by node, or by status if it is not 200."""
    found: Counter[str] = Counter()
    connection = http.client.HTTPConnection("127.0.0.1", envoy.port, timeout=10)
    for number in range(requests):
        connection.request("GET", path.format(number))
        answer = connection.getresponse()
        body = answer.read().decode()
        found[body if answer.status == 200 else str(answer.status)] += 1
    connection.close()
    return found


def until_shared(envoy: Envoy, what: str, holds: Callable[[Counter[str]], bool]) -> Counter[str]:
    """Repeats `share` until the condition holds, and returns the last counts."""
    found: Counter[str] = Counter()

    def is_so() -> bool:
        nonlocal found
        found = share(envoy)
        return holds(found)

    try:
        eventually(what, is_so)
    except AssertionError as error:
        error.add_note(f"where requests went: {dict(found)}")
        raise
    return found
