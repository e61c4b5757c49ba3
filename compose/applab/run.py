"""Runs policies in turn on the same requests and writes a run directory."""

import contextlib
import datetime
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compose.applab import capacity, nodes, render
from compose.applab.arrivals import Arrivals, due
from compose.applab.policies import Policy
from compose.applab.render import Addresses
from compose.applab.sampler import Sampler
from compose.applab.scenario import NODES, PATIENCE_S, SLA_S, Scenario, rates
from compose.apps.catalog import App
from compose.apps.quota import Quota
from compose.lab import machine, scratch
from compose.lab.errors import LabError
from compose.lab.processes import (
    Processes,
    Program,
    answers,
    cpu_seconds,
    require_running,
    start_tied,
    stop,
    wait_until,
)
from compose.lab.progress import Progress, length
from compose.lab.proxy import Proxy
from compose.lab.run import point_latest
from compose.lab.scratch import own_directory
from compose.lab.stack import redis_programs
from compose.lab.topology import ROOT

SCRIPT = ROOT / "loadtests" / "k6" / "apps.js"
CAPACITY_S = {False: 8.0, True: 2.0}
GRACE_S = 30.0
# Seconds that a policy or a measurement takes beside its clients' time; 2 to 5 were measured on two cores.
AROUND_S = 4.0


@dataclass(frozen=True)
class Options:
    app: App
    scenario: Scenario
    seed: int
    quick: bool
    results: Path


@dataclass(frozen=True)
class Planned:
    """A policy's programs, written down and not started."""

    programs: dict[str, list[str] | Program]
    # Programs of each node: the application's, and its agent if it has one.
    by_node: dict[str, list[str]]
    addresses: Addresses
    # The proxy's program, and the proxy.
    proxy: str
    front: Proxy
    agents: list[int]


def plan(
    policy: Policy, options: Options, inside: Mapping[str, Quota], per_node: Mapping[str, float], run: Path
) -> Planned:
    addresses = Addresses.free()
    programs: dict[str, list[str] | Program] = {}
    by_node = {}
    for index, (name, made) in enumerate(nodes.programs(options.app, inside, addresses, run).items()):
        own = dict(made)
        if policy.source is not None:
            path = run / f"{name}.agent.toml"
            metrics = nodes.source(options.app, index, addresses)
            path.write_text(render.agent(policy, index, addresses, run, metrics, per_node[name]))
            own[f"{name}-agent"] = [machine.binary("plimsoll"), "agent", "--config", str(path)]
        by_node[name] = list(own)
        programs |= own
    if policy.base.has_ring:
        programs |= redis_programs(addresses.ports, run)
    front = render.proxy(policy, addresses, run)
    programs[policy.base.proxy] = front.command
    agents = addresses.ports.agents if policy.source else []
    return Planned(programs, by_node, addresses, policy.base.proxy, front, agents)


def wait_ready(options: Options, inside: Mapping[str, Quota], processes: Processes, planned: Planned) -> None:
    nodes.wait_ready(options.app, options.scenario.quotas(), inside, processes, planned.addresses)
    for number, port in enumerate(planned.agents, 1):
        url = f"http://127.0.0.1:{port}/readyz"
        wait_until(f"node{number}-agent", lambda url=url: answers(url), 10, processes.check)

    def servers_up() -> bool:
        servers = planned.front.servers().values()
        return len(servers) == NODES and all(server.up for server in servers)

    wait_until("the proxy", servers_up, 10, processes.check)


def measured(options: Options, inside: Mapping[str, Quota], log: Path) -> dict[str, float]:
    """Requests/s of each node, without a proxy."""
    log.mkdir(exist_ok=True)
    addresses = Addresses.free()
    with scratch.directory("plimsoll-lab-") as run:
        made = nodes.programs(options.app, inside, addresses, run)
        programs = {name: command for own in made.values() for name, command in own.items()}
        with Processes(programs, run, log) as processes:
            nodes.wait_ready(options.app, options.scenario.quotas(), inside, processes, addresses)
            ports = addresses.ports
            where = [(ports.host(index), port) for index, port in enumerate(ports.slaves)]
            found = capacity.measure(where, CAPACITY_S[options.quick], options.seed)
    return dict(zip(inside, found, strict=True))


def generator(
    options: Options, frontend: int, wanted: list[float], directory: Path
) -> subprocess.Popen[bytes]:
    """Starts k6, which writes its records to console.log."""
    steps = zip(options.scenario.steps, wanted, strict=True)
    environment = {
        "TARGET": f"http://127.0.0.1:{frontend}",
        "STEPS": ",".join(f"{rate:.4f}:{step.seconds:g}" for step, rate in steps),
        "SEED": str(options.seed),
        "PATIENCE": f"{PATIENCE_S:g}",
        "COST_MS": ",".join(f"{value:g}" for value in capacity.LIGHT_MS),
        "HEAVY_SHARE": f"{capacity.HEAVY_SHARE:g}",
        "HEAVY_TIMES": f"{capacity.HEAVY_TIMES:g}",
        "RETRIES": str(options.scenario.retries),
        "IMPORTANT_SHARE": f"{options.scenario.important:g}",
        "SUMMARY": str(directory / "k6-summary.json"),
        "K6_NO_USAGE_REPORT": "true",
        "K6_AUTO_EXTENSION_RESOLUTION": "false",
    }
    words = ["run", "--quiet", "--no-color", "--address", "", "--log-format", "raw"]
    console = ["--console-output", str(directory / "console.log")]
    return start_tied([machine.k6(), *words, *console, str(SCRIPT)], environment, directory / "k6.log")


@dataclass
class Attempt:
    """A policy whose programs and clients are running."""

    options: Options
    processes: Processes
    planned: Planned
    inside: Mapping[str, Quota]
    arrivals: Arrivals
    k6: subprocess.Popen[bytes]
    directory: Path
    # When what happened to the last node began and ended.
    times: dict[str, float] = field(default_factory=dict)

    @property
    def victim(self) -> str:
        return list(self.inside)[-1]

    def is_away(self, node: str) -> bool:
        return node == self.victim and "away" in self.times and "back" not in self.times

    def drive(self, say: Progress, name: str) -> dict[str, float]:
        """Waits for the generator to end and makes the event happen; returns the cores used."""
        scenario = self.options.scenario
        limit = scenario.duration + scenario.patience + GRACE_S
        every = 1 if sys.stderr.isatty() else 10
        began, shown, checked = time.monotonic(), -1, 0.0
        used = {"generator": 0.0, "proxies": 0.0}
        ended = began
        while self.k6.poll() is None:
            self.arrivals.poll()
            now = self.arrivals.now()
            self.happen(now)
            if time.monotonic() - checked >= 0.5:
                checked = time.monotonic()
                self.processes.check(self.planned.by_node[self.victim] if self.is_away(self.victim) else [])
                if spent := cpu_seconds(self.k6.pid):
                    used["generator"], ended = spent, checked
                used["proxies"] = self.processes.cpu_seconds([self.planned.proxy])
            if int(now) // every != shown:
                shown = int(now) // every
                rate = self.arrivals.timely(now - 6, now - 1)
                say.say(name, f"{now:4.0f} of {scenario.duration:.0f} s  {rate:6.1f} timely requests/s")
            if time.monotonic() - began > limit:
                raise LabError(
                    f"k6 has not ended {limit:g} s after its start; see {self.directory / 'k6.log'}"
                )
            time.sleep(0.1)
        if self.k6.returncode != 0:
            require_running(self.k6, self.directory)
        return {who: round(spent / max(ended - began, 1e-3), 4) for who, spent in used.items()}

    def happen(self, now: float) -> None:
        scenario = self.options.scenario
        if scenario.outage is None:
            return
        node = self.inside[self.victim], self.processes, self.planned.by_node[self.victim]
        if "away" not in self.times and now >= scenario.begins(1):
            self.times["away"] = round(now, 3)
            scenario.outage.begin(*node)
        if (
            "away" in self.times
            and "back" not in self.times
            and now >= scenario.begins(2)
            and scenario.outage.end(*node)
        ):
            self.times["back"] = round(self.arrivals.now(), 3)


def run_policy(
    policy: Policy,
    options: Options,
    directory: Path,
    inside: Mapping[str, Quota],
    per_node: Mapping[str, float],
    progress: Progress,
) -> None:
    """One policy from start to teardown."""
    directory.mkdir(parents=True)
    scenario = options.scenario
    wanted = rates(scenario.steps, sum(per_node.values()))
    with contextlib.ExitStack() as leaving:
        run = leaving.enter_context(own_directory(directory))
        planned = plan(policy, options, inside, per_node, run)
        ports = planned.addresses.ports
        progress.say(policy.name, "starting")
        processes = leaving.enter_context(Processes(planned.programs, run, directory))
        wait_ready(options, inside, processes, planned)
        k6 = generator(options, ports.frontend, wanted, directory)
        leaving.callback(stop, k6)
        arrivals = Arrivals(directory / "console.log", ports.names())
        attempt = Attempt(options, processes, planned, inside, arrivals, k6, directory)
        # A stopped program would not end.
        leaving.callback(inside[attempt.victim].resume)
        while arrivals.start_unix is None:
            require_running(k6, directory)
            time.sleep(0.02)
            arrivals.poll()
        now = lambda name: 0.0 if attempt.is_away(name) else per_node[name]  # noqa: E731
        leaving.enter_context(Sampler(directory, inside, planned.front, planned.agents, now, arrivals.now))
        used = attempt.drive(progress, policy.name)
    lags = arrivals.finish(directory / "requests.csv.gz", due(scenario.steps, wanted))
    (directory / "console.log").unlink()
    generated = {
        "cpu_share": used["generator"],
        "lag_p50_s": round(quantile(lags, 0.5), 4),
        "lag_p99_s": round(quantile(lags, 0.99), 4),
        "lag_max_s": round(quantile(lags, 1.0), 4),
        "dropped": dropped(directory / "k6-summary.json"),
    }
    killed = scenario.outage is not None and scenario.outage.kills
    meta = {
        "policy": policy.name,
        "group": policy.group,
        "app": options.app.name,
        "proxy": machine.proxy_version(policy.base.proxy),
        "duration_s": scenario.duration,
        "event_s": scenario.begins(1) if scenario.outage else None,
        "event": scenario.event_text(),
        "calm_s": None,
        "killed": planned.by_node[attempt.victim] if killed else [],
        "killed_s": attempt.times.get("away") if killed else None,
        "dead_s": attempt.times.get("away") if killed else None,
        "back_s": attempt.times.get("back") if killed else None,
        "measured_from_s": 0.0,
        "measured_to_s": scenario.duration,
        "node_capacity_items_per_s": {name: round(value, 3) for name, value in per_node.items()},
        "generator": generated,
        "proxy_cpu_share": used["proxies"],
        "settings": policy.base.settings,
        "phases": [
            {
                "from_s": scenario.begins(n),
                "to_s": scenario.begins(n + 1),
                "load": step.load,
                "offered_per_s": rate,
            }
            for n, (step, rate) in enumerate(zip(scenario.steps, wanted, strict=True))
        ],
    }
    (directory / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")
    progress.done(policy.name, arrivals.timely(0, scenario.duration), arrivals, generated)


def quantile(values: list[float], part: float) -> float:
    """Quantile of sorted values; 0 without any."""
    return values[min(len(values) - 1, int(part * len(values)))] if values else 0.0


def dropped(summary: Path) -> int:
    """Requests that k6 dropped because all of its virtual users were busy."""
    found = json.loads(summary.read_text())["metrics"].get("dropped_iterations")
    return int(found["values"]["count"]) if found else 0


def per_second(found: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in found.items()}


@contextlib.contextmanager
def results(options: Options, chosen: list[Policy]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The run's directory, and the content of run.json, which may be extended during the run."""
    now = datetime.datetime.now(datetime.UTC)
    directory = options.results / f"{now:%Y%m%dT%H%M%SZ}-{options.app.name}-{options.scenario.name}"
    directory.mkdir(parents=True)
    facts: dict[str, Any] = {
        "scenario": options.scenario.name,
        "app": options.app.name,
        "sla_seconds": SLA_S,
        "seed": options.seed,
        "quick": options.quick,
        # There is no number of them: who comes does not wait for who was there.
        "clients": 0,
        "proxies": 1,
        "nodes": NODES,
        "quotas": options.scenario.quotas(),
        "patience_s": PATIENCE_S,
        "database": "none",
        "machine": machine.describe(),
        "started": now.isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "compose.applab", *sys.argv[1:]]),
        "policies": [policy.name for policy in chosen],
    }
    yield directory, facts
    (directory / "run.json").write_text(json.dumps(facts, indent=2) + "\n")


def once_s(quick: bool) -> float:
    """Seconds that the capacity's measurements before the first policy and after the last take."""
    return 2 * (capacity.WARM_UP_S + CAPACITY_S[quick] + AROUND_S)


def run_length(options: Options, runs: int) -> str:
    """How long that many runs will take, with the capacity measured before the first and after the last."""
    return length(runs, options.scenario.duration, AROUND_S, once_s(options.quick))


def run(options: Options, chosen: list[Policy]) -> Path:
    """All policies in turn; returns the run directory."""
    print(run_length(options, len(chosen)), file=sys.stderr, flush=True)
    if any(policy.source for policy in chosen):
        machine.binary("plimsoll")
    for kind in {policy.base.proxy for policy in chosen}:
        machine.proxy_version(kind)
    progress = Progress(["capacity", *(policy.name for policy in chosen)])
    with results(options, chosen) as (directory, facts), nodes.quotas(options.scenario.quotas()) as inside:
        progress.say("capacity", "measuring")
        per_node = measured(options, inside, directory / "capacity")
        facts["capacity"] = {"how": capacity.HOW, "start_per_s": per_second(per_node), "end_per_s": None}
        progress.say("capacity", f"{sum(per_node.values()):.1f} requests/s")
        rates(options.scenario.steps, sum(per_node.values()))
        for policy in chosen:
            run_policy(policy, options, directory / policy.name, inside, per_node, progress)
        after = measured(options, inside, directory / "capacity")
        facts["capacity"]["end_per_s"] = per_second(after)
        progress.say("capacity", f"{sum(after.values()):.1f} requests/s afterwards")
    point_latest(options.results, directory)
    return directory
