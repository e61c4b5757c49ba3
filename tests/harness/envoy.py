"""Envoy, stock or with the filter, and changes of its example configurations."""

import http.client
import json
import subprocess
import urllib.request
from collections.abc import Iterable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, Self

import yaml

from tests.harness import programs
from tests.harness.envoy_filter import FILTERS, configuration_of, statistic, with_built
from tests.harness.eventually import eventually
from tests.harness.ports import answers, free_ports
from tests.harness.process import Program

START_S = 30


def examples() -> dict[str, Path]:
    """All configurations, by name."""
    found = [path for kind in FILTERS.values() for path in kind.examples.glob("*.yaml")]
    return {path.name: path for path in sorted(found)}


def example(name: str) -> dict[str, Any]:
    return yaml.safe_load(with_built(examples()[name].read_text()))


def endpoints(ports: Iterable[int], host: str = "127.0.0.1") -> dict[str, Any]:
    socket = lambda port: {"socket_address": {"address": host, "port_value": port}}  # noqa: E731
    return {"lb_endpoints": [{"endpoint": {"address": socket(port)}} for port in ports]}


def manager_of(listener: dict[str, Any]) -> dict[str, Any]:
    """The HTTP connection manager of a listener."""
    return listener["filter_chains"][0]["filters"][0]["typed_config"]


def filter_of(listener: dict[str, Any]) -> dict[str, Any]:
    """The configuration of Plimsoll's filter in a listener."""
    filters = manager_of(listener)["http_filters"]
    return configuration_of(next(entry for entry in filters if entry["name"].startswith("plimsoll")))


def set_filter(listener: dict[str, Any], **settings: Any) -> None:
    """Changes settings of the filter."""
    value = filter_of(listener)
    value["value"] = json.dumps(json.loads(value["value"]) | settings)


def set_policy(cluster: dict[str, Any], /, **settings: Any) -> None:
    """Changes settings of the module's load balancing policy, where the cluster has that."""
    for policy in cluster.get("load_balancing_policy", {}).get("policies", []):
        found = policy["typed_extension_config"]["typed_config"]
        if "lb_policy_config" in found:
            found["lb_policy_config"]["value"] = json.dumps(settings)


class Envoy(Program):
    """An Envoy whose first listener, and the admin interface, are at ports of their own."""

    def __init__(
        self,
        stack: ExitStack | AsyncExitStack,
        directory: Path,
        config: dict[str, Any],
        concurrency: int,
        words: tuple[str, ...] = (),
    ) -> None:
        self.concurrency = concurrency
        self.port, self.admin = free_ports(2)
        listener = config["static_resources"]["listeners"][0]
        listener["address"]["socket_address"]["port_value"] = self.port
        config["admin"]["address"]["socket_address"]["port_value"] = self.admin
        directory.mkdir(exist_ok=True)
        self.file = directory / "envoy.yaml"
        if "dynamic_resources" in config:
            path = directory / "listeners.yaml"
            config["dynamic_resources"]["lds_config"] = {"path_config_source": {"path": str(path)}}
            self.put_listeners(config["static_resources"].pop("listeners"))
        self.file.write_text(yaml.safe_dump(config))
        options = ["-c", str(self.file), "--concurrency", str(concurrency), "-l", "info", *words]
        super().__init__(stack, [programs.envoy(), *options], directory / "envoy.log")

    def put_listeners(self, listeners: list[dict[str, Any]]) -> None:
        """Other listeners, where the configuration has `dynamic_resources`."""
        kind = "type.googleapis.com/envoy.config.listener.v3.Listener"
        new = self.file.with_name("listeners.new")
        new.write_text(yaml.safe_dump({"resources": [{"@type": kind} | listener for listener in listeners]}))
        new.rename(self.file.with_name("listeners.yaml"))

    def start(self, *words: str) -> Self:
        self.begin(*words)
        self.eventually("envoy", lambda: answers(f"http://127.0.0.1:{self.admin}/ready"), START_S)
        return self

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        """Without waiting for it."""
        return super().start(*(words or ["--disable-hot-restart"])).process

    def stats(self, what: str = "plimsoll") -> dict[str, float]:
        """Counters and gauges of that name, without what is common to the filter's."""
        url = f"http://127.0.0.1:{self.admin}/stats?format=json&filter={what}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            found = json.load(answer)["stats"]
        return {statistic(stat["name"]): stat["value"] for stat in found if "value" in stat}

    def counts(self) -> tuple[float, float, float]:
        """Requests admitted, refused and left to the fallback policy so far."""
        stats = self.stats()
        return tuple(stats.get(name, 0) for name in ("admitted_total", "refused_total", "undecided_total"))

    def connections(self) -> list[float]:
        """Cumulative connections of each worker."""
        stats = self.stats("worker_.*downstream_cx_total")
        return [value for name, value in sorted(stats.items()) if f"_{self.port}." in name]

    def counted(self, before: tuple[float, ...], requests: int) -> tuple[float, ...]:
        """Increase of `counts`, once it has grown by this many requests."""
        grew: tuple[float, ...] = ()

        def is_all() -> bool:
            nonlocal grew
            grew = tuple(now - then for now, then in zip(self.counts(), before, strict=True))
            return sum(grew) >= requests

        eventually(f"{requests} requests in the counters", is_all)
        return grew

    def get(self, path: str, headers: Iterable[tuple[str, str]] = ()) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.putrequest("GET", path)
            for name, value in headers:
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            answer.read()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()

    def node_of(self, key: str) -> str:
        status, headers = self.get(f"/stock/{key}")
        assert status == 200
        return headers["x-node"]
