"""A Prometheus beside the lab: it scrapes what a policy runs, and stays up after the run."""

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from compose.lab import machine
from compose.lab.errors import LabError
from compose.lab.processes import answers, free_ports, start_tied, wait_until
from compose.lab.render import Policy
from compose.lab.stack import Plan
from compose.lab.topology import ROOT, Topology

# As often as agents and nodes change what they show.
INTERVAL = "1s"
CLUSTER = "stocks"
RULES = ROOT / "dashboards" / "rules"
# Path of each kind of program's metrics.
PATHS = {
    "plimsoll": "/metrics",
    "plimsoll-gather": "/metrics",
    "stocks": "/metrics",
    "haproxy": "/metrics",
    "haproxy-lua": "/plimsoll/metrics",
    "envoy": "/stats/prometheus",
    "lab": "/metrics",
}
READY_SECONDS = 30
STOP_SECONDS = 10


@dataclass(frozen=True)
class Target:
    job: str
    instance: str
    address: str

    def entry(self, policy: str) -> dict[str, Any]:
        """As Prometheus' file_sd wants it. An instance is a name, since ports change with each policy."""
        labels = {"job": self.job, "instance": self.instance, "cluster": CLUSTER, "policy": policy}
        if self.job in ("plimsoll", "stocks"):
            labels["node"] = self.instance
        return {"targets": [self.address], "labels": labels}


def targets(policy: Policy, topology: Topology, plan: Plan, collector: str) -> list[Target]:
    ports = plan.ports
    found = [Target("stocks", topology.master.name, f"127.0.0.1:{ports.master}")]
    for index, node in enumerate(topology.slaves):
        found.append(Target("stocks", node.name, ports.node(index)))
        if plan.has_agents:
            found.append(Target("plimsoll", node.name, f"127.0.0.1:{ports.agents[index]}"))
    found += [
        Target("plimsoll-gather", f"gather{number + 1}", f"127.0.0.1:{port}")
        for number, port in enumerate(ports.gathers)
    ]
    # HAProxy shows what Lua has to tell in a place of its own.
    jobs = ["haproxy", "haproxy-lua"] if policy.proxy == "haproxy" and policy.has_ring else [policy.proxy]
    found += [
        Target(job, name, f"127.0.0.1:{proxy.metrics}")
        for name, proxy in plan.proxies.items()
        for job in jobs
    ]
    return [*found, Target("lab", "lab", collector)]


def configuration(directory: Path) -> dict[str, Any]:
    jobs = [
        {
            "job_name": job,
            "metrics_path": path,
            "file_sd_configs": [{"files": [str(directory / "targets" / f"{job}.json")]}],
        }
        for job, path in PATHS.items()
    ]
    return {
        "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": "5s"},
        "rule_files": [str(RULES / "*.yaml")],
        "scrape_configs": jobs,
    }


class Prometheus:
    """Ends with the lab, however that ends, unless it was told to stay by `keep`."""

    def __init__(self, port: int | None = None) -> None:
        self._program = machine.prometheus()
        if port is not None:
            require_free(port)
        self._port = port or free_ports(1)[0]
        self._directory = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def start(self, results: Path) -> None:
        """Starts it, its data below `results`."""
        self._directory = results / "prometheus"
        (self._directory / "targets").mkdir(parents=True)
        self._show([], "")
        (self._directory / "prometheus.yml").write_text(yaml.safe_dump(configuration(self._directory)))
        # Targets are looked at once in five seconds otherwise.
        options = ["--web.enable-remote-write-receiver", "--scrape.discovery-reload-interval=1s"]
        self._process = start_tied(self._command("prometheus.yml", *options), {}, self._log)
        self._wait()

    def generator(self, policy: str) -> tuple[list[str], dict[str, str]]:
        """Arguments and environment that make k6 send what it sees."""
        labels = {"job": "k6", "instance": "k6", "cluster": CLUSTER, "policy": policy}
        arguments = ["--out", "experimental-prometheus-rw", "--system-tags", "name,status"]
        for name, value in labels.items():
            arguments += ["--tag", f"{name}={value}"]
        environment = {
            "K6_PROMETHEUS_RW_SERVER_URL": f"{self.url}/api/v1/write",
            "K6_PROMETHEUS_RW_PUSH_INTERVAL": INTERVAL,
            "K6_PROMETHEUS_RW_TREND_STATS": "avg,p(50),p(95),p(99)",
            # Or a policy's last figures would last for five minutes into the next.
            "K6_PROMETHEUS_RW_STALE_MARKERS": "true",
        }
        return arguments, environment

    def watch(self, policy: str, watched: Iterable[Target], check: Callable[[], None]) -> None:
        """Scrapes these from now on, once each of them has answered."""
        watched = list(watched)
        self._show(watched, policy)
        for target in watched:
            wait_until(
                f"the scraping of {target.job}/{target.instance}",
                lambda wanted=(target.job, target.instance, policy): wanted in self._healthy(),
                READY_SECONDS,
                lambda: self._alive(check),
            )

    def unwatch(self) -> None:
        self._show([], "")

    def keep(self) -> int:
        """Serves what was recorded from now on, also after the lab; returns the process to end then."""
        self._stop()
        (self._directory / "serve.yml").write_text("{}\n")
        with self._log.open("ab") as out:
            # Not tied: it is to outlive the lab.
            process = self._process = subprocess.Popen(
                self._command("serve.yml"),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._wait()
        (self._directory / "prometheus.pid").write_text(f"{process.pid}\n")
        self._process = None
        return process.pid

    @property
    def _log(self) -> Path:
        return self._directory / "prometheus.log"

    def _command(self, config: str, *options: str) -> list[str]:
        return [
            self._program,
            f"--config.file={self._directory / config}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            # A run is kept for as long as its directory is.
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--log.level=warn",
            *options,
        ]

    def _show(self, watched: list[Target], policy: str) -> None:
        for job in PATHS:
            entries = [target.entry(policy) for target in watched if target.job == job]
            path = self._directory / "targets" / f"{job}.json"
            # Prometheus must not read half a file.
            fresh = path.with_suffix(".new")
            fresh.write_text(json.dumps(entries, indent=1) + "\n")
            fresh.replace(path)

    def _healthy(self) -> set[tuple[str, str, str]]:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/targets?state=active", timeout=2) as answer:
                active = json.load(answer)["data"]["activeTargets"]
        except (OSError, urllib.error.URLError, ValueError, KeyError):
            return set()
        return {
            (target["labels"]["job"], target["labels"]["instance"], target["labels"]["policy"])
            for target in active
            if target["health"] == "up"
        }

    def _wait(self) -> None:
        wait_until("Prometheus", lambda: answers(f"{self.url}/-/ready"), READY_SECONDS, self._alive)

    def _alive(self, check: Callable[[], None] = lambda: None) -> None:
        check()
        if self._process is None or self._process.poll() is not None:
            lines = self._log.read_text(errors="replace").splitlines()[-3:]
            raise LabError("\n  ".join([f"Prometheus ended: {self._log}", *lines]))

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def require_free(port: int) -> None:
    with socket.socket() as listener:
        # As Prometheus listens: what closed connections leave behind is no hindrance.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise LabError(
                f"--observe {port}: 127.0.0.1:{port} is taken: {os.strerror(error.errno)}"
            ) from None
