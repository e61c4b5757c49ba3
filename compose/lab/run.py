"""Runs policies in turn on the same work and writes a run directory."""

import contextlib
import datetime
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compose.lab import machine, placement, render, stack, swept
from compose.lab.collector import Collector
from compose.lab.errors import LabError
from compose.lab.observe import Prometheus, targets
from compose.lab.placement import Sets, Watch
from compose.lab.postgres import Databases
from compose.lab.processes import (
    Processes,
    Program,
    cpu_seconds,
    require_running,
    start_tied,
    stop,
    wait_until,
)
from compose.lab.progress import Progress, length
from compose.lab.sampler import Sampler, fetch, node_counters
from compose.lab.scratch import own_directory
from compose.lab.timeline import Timeline
from compose.lab.topology import ROOT, Topology, seconds

RESULTS = ROOT / "loadtests" / "results"
SCRIPT = ROOT / "loadtests" / "k6" / "stocks.js"
GENERATOR_VUS = 10
# Seconds that a policy takes beside its clients' time; 4 to 9 were measured on two cores.
AROUND_S = 5.0


@dataclass(frozen=True)
class Options:
    timeline: Timeline
    topology: Topology
    seed: int
    quick: bool
    clients: int
    proxies: int
    results: Path
    # "sqlite" or "postgres".
    database: str = "sqlite"


def generator(
    options: Options,
    frontends: list[int],
    collector: Collector,
    directory: Path,
    told: tuple[list[str], dict[str, str]],
) -> subprocess.Popen[bytes]:
    """Starts k6; `told` are the arguments and environment for its observers."""
    timeline = options.timeline
    times, work = timeline.times, timeline.work
    environment = {
        "TARGETS": ",".join(f"http://127.0.0.1:{port}" for port in frontends),
        "COLLECTOR": collector.url,
        "SUMMARY": str(directory / "k6-summary.json"),
        "SEED": str(options.seed),
        "CLIENTS": str(options.clients),
        "GENERATOR_VUS": str(min(GENERATOR_VUS, options.clients)),
        "DURATION": str(times.duration),
        "DRAIN": str(timeline.drain),
        "EVENT": str(times.burst),
        "THINK_BEFORE": ",".join(str(time) for time in work.think[0]),
        "THINK_AFTER": ",".join(str(time) for time in work.think[1]),
        "CALM": "" if times.calm is None else str(times.calm),
        "SKEW": str(work.skew),
        "SLA": str(work.sla),
        "LONG_SHARE": str(work.long_share),
        **written(work.sets),
        "GATHER": work.gather,
        "SYMBOLS": str(options.topology.master.flags.get("symbols", 3000)),
        "ACCOUNTS": str(options.topology.master.flags.get("accounts", 3000)),
        "K6_NO_USAGE_REPORT": "true",
        "K6_AUTO_EXTENSION_RESOLUTION": "false",
    }
    command = [
        machine.k6(),
        "run",
        "--quiet",
        "--no-color",
        "--address",
        "",
        *told[0],
        str(SCRIPT),
    ]
    return start_tied(command, environment | told[1], directory / "k6.log")


def written(sets: Sets | None) -> dict[str, str]:
    """Environment of the generator for object sets."""
    if sets is None:
        return {}
    shares = sets.shares().items()
    return {"TRANSACTION_SHARE": "1", "SETS": ",".join(f"{name} {share}" for name, share in shares)}


def agents_placement(policy: render.Policy, options: Options) -> dict[str, Any] | None:
    """The agents' [placement], with the best fixed placement if the policy has `pins = "best"`."""
    if policy.placement is None:
        return None
    table = {"cluster": "stocks", **policy.placement}
    if table.get("pins") == "best":
        sets = options.timeline.work.sets
        if sets is None:
            raise LabError(f"--policies {policy.name}: only scenario placement has object sets to pin")
        capacities = {node.name: node.capacity(0.0) for node in options.topology.slaves}
        best = placement.best(sets.shares(), capacities)
        table["pins"] = {f"={name}": node for name, node in best.items()}
    return table


def primaries(planned: stack.Plan) -> dict[str, int]:
    """Counts of the nodes: writes that claimed an object set, and writes to a set claimed by two nodes."""
    found = {"claims": 0, "violations": 0}
    for address in [f"127.0.0.1:{planned.ports.master}", *planned.ports.names()]:
        counted = node_counters(fetch(f"http://{address}/metrics") or "")
        for name in found:
            series = f"stocks_primary_{name}_total"
            if series not in counted:
                raise LabError(f"{address} does not tell {series}")
            found[name] += int(counted[series])
    return found


def run_policy(
    policy: render.Policy,
    options: Options,
    directory: Path,
    settings: dict[str, Any],
    progress: Progress,
    observer: Prometheus | None = None,
    databases: Databases | None = None,
) -> dict[str, Any]:
    """One policy from start to teardown; returns what meta.json holds."""
    directory.mkdir(parents=True)
    timeline, slaves = options.timeline, options.topology.slaves
    times, sets = timeline.times, timeline.work.sets
    with contextlib.ExitStack() as leaving:
        run = leaving.enter_context(own_directory(directory))
        cluster = leaving.enter_context(databases.cluster()) if databases else None
        placing = agents_placement(policy, options)
        planned = stack.plan(
            policy.promising(timeline.work.sla),
            options.topology,
            options.seed,
            settings,
            run,
            options.proxies,
            cluster,
            placing,
            timeline.has_replica,
        )
        frontends = [proxy.frontend for proxy in planned.proxies.values()]
        progress.say(policy.name, "starting")
        processes = leaving.enter_context(Processes(planned.programs, run, directory))
        stack.wait_ready(processes, planned)
        collector = leaving.enter_context(
            Collector(
                directory / "requests.csv.gz",
                timeline.work.sla,
                planned.ports.names()
                | {f"127.0.0.1:{p.frontend}": name for name, p in planned.proxies.items()},
                timeline.events(policy.has_ring),
                directory / "writes.csv.gz" if sets else None,
            )
        )
        told: tuple[list[str], dict[str, str]] = ([], {})
        if observer:
            collector.programs = {name: (processes.pid(name), "proxy") for name in planned.proxies}
            watched = targets(policy, options.topology, planned, collector.address)
            observer.watch(policy.name, watched, processes.check)
            leaving.callback(observer.unwatch)
            told = observer.generator(policy.name)
        k6 = generator(options, frontends, collector, directory, told)
        leaving.callback(stop, k6)
        collector.programs = collector.programs | {"k6": (k6.pid, "generator")}
        while not collector.started.wait(0.1):
            require_running(k6, directory)
        leaving.enter_context(Sampler(directory / "nodes.csv", slaves, planned, collector.now))
        if placing is not None and sets:
            path = directory / "placement.csv"
            leaving.enter_context(Watch(path, planned.ports.redis, sets.shares(), collector.now))
        attempt = Attempt(policy, options, processes, planned, collector, k6, directory)
        used = attempt.drive(progress)
        checked = primaries(planned) if sets else None
    timely = round(collector.timely(times.warmup, times.duration), 1)
    meta = {
        "policy": policy.name,
        "proxy": machine.proxy_version(policy.proxy),
        "duration_s": times.duration,
        "warmup_s": times.warmup,
        "event_s": times.event if timeline.has_event(policy.has_ring) else None,
        "event": timeline.event_text(policy.has_ring) or None,
        "calm_s": times.calm,
        "killed": attempt.killed,
        "killed_s": attempt.times.get("killed"),
        "dead_s": attempt.times.get("dead"),
        "back_s": attempt.times.get("back"),
        "redis_away_s": timeline.redis_away if policy.has_ring else 0.0,
        "measured_from_s": times.warmup,
        "measured_to_s": times.duration,
        "node_capacity_items_per_s": {node.name: stack.static_capacity(node) for node in slaves},
        "generator": {
            "cpu_share": round(used.generator, 4),
            "lag_p50_s": collector.lag(0.5),
            "lag_p99_s": collector.lag(0.99),
            "lag_max_s": collector.lag(1.0),
        },
        "proxy_cpu_share": round(used.proxies, 4),
        "settings": settings,
        "placement": checked and {"period_s": placing and seconds(placing["period"]), **checked},
        f"timely_{collector.unit}_per_s": timely,
    }
    (directory / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")
    progress.done(policy.name, timely, collector, meta["generator"])
    return meta


@dataclass(frozen=True)
class Cores:
    """CPU time over the time of the run."""

    generator: float
    proxies: float


@dataclass(frozen=True)
class Attempt:
    """A policy whose programs and clients are running."""

    policy: render.Policy
    options: Options
    processes: Processes
    planned: stack.Plan
    collector: Collector
    k6: subprocess.Popen[bytes]
    directory: Path
    # When a program was killed, when it had ended, and when it was started again, if it was.
    times: dict[str, float] = field(default_factory=dict)
    killed: list[str] = field(default_factory=list)

    def drive(self, progress: Progress) -> Cores:
        """Waits for the generator to end, makes the scenario's events happen; returns the cores used."""
        timeline = self.options.timeline
        times = timeline.times
        dead: list[str] = []
        away = is_back = False
        limit = times.duration + timeline.drain + 20
        cpu = 0.0
        began = ended = time.monotonic()
        cpu_before = cpu_seconds(self.k6.pid)
        proxies_before = {name: self.processes.cpu_seconds([name]) for name in self.planned.proxies}
        while self.k6.poll() is None:
            now = self.collector.now()
            if times.kill is not None and not (dead or is_back) and now >= times.kill:
                dead = self.kill()
            if times.back is not None and not is_back and now >= times.back:
                is_back = self.bring_back(dead)
                if is_back:
                    dead = []
                    self.times["back"] = round(self.collector.now(), 3)
            if self.policy.has_ring and away != timeline.redis_is_away(now):
                away = not away
                # Stopped and not killed: connections stay open without responses, as behind a broken network.
                self.processes.signal("redis", "STOP" if away else "CONT")
            self.processes.check(dead)
            if used := cpu_seconds(self.k6.pid):
                cpu, ended = used - cpu_before, time.monotonic()
            progress.update(self.policy.name, now, times, self.collector)
            if now > limit:
                log = self.directory / "k6.log"
                raise LabError(f"k6 has not ended {limit:g} s after its start; see {log}")
            time.sleep(0.1)
        # 99: a threshold was crossed, which is a result and not a failure.
        if self.k6.returncode not in (0, 99):
            require_running(self.k6, self.directory)
        # The CPU time of a killed proxy is no longer known.
        proxies = sum(
            self.processes.cpu_seconds([name]) - before
            for name, before in proxies_before.items()
            if name not in dead
        )
        return Cores(cpu / max(ended - began, 1e-3), proxies / max(time.monotonic() - began, 1e-3))

    def kill(self) -> list[str]:
        fault = self.options.timeline.fault
        assert fault is not None
        names = fault.victims(self.planned, self.options.topology)
        self.killed.extend(names)
        self.times["killed"] = round(self.collector.now(), 3)
        for name in names:
            program = self.planned.programs[name]
            self.processes.signal(name, program.ends_by if isinstance(program, Program) else "KILL")
        # A busy machine takes its time to end one, whose sockets still take requests meanwhile.
        serving = [name for name in names if not isinstance(self.planned.programs[name], Program)]
        ended = lambda: all(map(self.processes.has_ended, serving))  # noqa: E731
        wait_until(f"the end of {', '.join(serving)}", ended, 10, lambda: None)
        self.times["dead"] = round(self.collector.now(), 3)
        return names

    def bring_back(self, dead: list[str]) -> bool:
        """Starts what was killed; False while some of it has not ended yet."""
        if not all(map(self.processes.has_ended, dead)):
            return False
        for name in reversed(dead):
            self.processes.start(name)
        return True


@contextlib.contextmanager
def made(options: Options, log: Path) -> Iterator[Databases | None]:
    """Template of the nodes' databases, if these are separate programs."""
    if options.database != "postgres":
        yield None
        return
    with Databases(options.topology, options.seed, log) as databases:
        yield databases


def say_length(runs: int, options: Options) -> None:
    print(length(runs, options.timeline.times.duration, AROUND_S), file=sys.stderr, flush=True)


def run(options: Options, chosen: list[render.Policy], observer: Prometheus | None = None) -> Path:
    """All policies in turn; returns the run directory."""
    scenario, names = options.timeline.scenario, [policy.name for policy in chosen]
    settings = {policy.name: policy.settings | swept.best(policy, scenario) for policy in chosen}
    for name in ("stocks", *(["plimsoll"] if any(p.service for p in chosen) else [])):
        machine.binary(name)
    for kind in {policy.proxy for policy in chosen}:
        machine.proxy_version(kind)
    now = datetime.datetime.now(datetime.UTC)
    directory = options.results / f"{now:%Y%m%dT%H%M%SZ}-{scenario}"
    directory.mkdir(parents=True)
    facts = {
        "scenario": scenario,
        "sla_seconds": options.timeline.work.sla,
        "seed": options.seed,
        "quick": options.quick,
        "clients": options.clients,
        "proxies": options.proxies,
        "nodes": len(options.topology.slaves),
        "database": machine.database(options.database),
        "machine": machine.describe(),
        "started": now.isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "compose.lab", *sys.argv[1:]]),
        "policies": names,
    }
    (directory / "run.json").write_text(json.dumps(facts, indent=2) + "\n")
    progress = Progress(names)
    if observer:
        observer.start(directory)
        print(f"Prometheus watches: {observer.url}", file=sys.stderr)
    with made(options, directory) as databases:
        for policy in chosen:
            run_policy(
                policy,
                options,
                directory / policy.name,
                settings[policy.name],
                progress,
                observer,
                databases,
            )
    point_latest(options.results, directory)
    return directory


def point_latest(results: Path, directory: Path) -> None:
    fresh = results / ".latest"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(directory.name)
    fresh.replace(results / "latest")


def report(directory: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "loadtests.report", str(directory)], cwd=ROOT, check=False)
    if done.returncode != 0:
        raise LabError(f"the report failed with status {done.returncode}; the records are in {directory}")


def run_and_report(options: Options, chosen: list[render.Policy], observe: int | None) -> None:
    """`observe` is the port of a Prometheus beside the lab, 0 for a free one."""
    if observe is None:
        report(run(options, chosen))
        return
    with Prometheus(observe or None) as observer:
        report(run(options, chosen, observer))
        process = observer.keep()
    print(f"Prometheus has the run: {observer.url} (to stop it: kill {process})")
