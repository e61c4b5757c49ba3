"""PostgreSQL under Patroni: a standby's replay is held up for a while, then the primary is killed, and comes
back."""

import contextlib
import datetime
import json
import shlex
import socket
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from compose.lab import machine, patroni, render
from compose.lab.errors import LabError
from compose.lab.failover import MAX_LAG_S, NODES, Ports, programs, takes
from compose.lab.patroni import Cluster, Member
from compose.lab.processes import (
    TIED,
    Processes,
    answers,
    free_ports,
    require_running,
    start_tied,
    stop,
    wait_until,
)
from compose.lab.run import Options
from compose.lab.scenarios.base import Scenario
from compose.lab.scratch import own_directory
from compose.lab.topology import ROOT
from loadtests.report import ledger
from loadtests.report.criteria import Criterion

SCRIPT = ROOT / "loadtests" / "k6" / "ledger.js"
START_S = 90


@dataclass(frozen=True)
class Times:
    """Seconds since the clients start."""

    paused: float = 10.0
    resumed: float = 25.0
    killed: float = 40.0
    back: float = 75.0
    end: float = 105.0


TIMES = Times()


class MasterFailover(Scenario):
    """It has nodes, clients and times of its own, and a ledger in place of policies."""

    name = "master-failover"

    def options(self, args: Namespace) -> Options:
        raise LabError(f"--scenario {self.name}: has nothing to sweep")

    def validate(self, args: Namespace) -> None:
        if args.database != "postgres":
            raise LabError(f"--database {args.database}: scenario {self.name} needs postgres")
        for option in ("policies", "nodes", "clients", "proxies", "duration", "observe", "quick"):
            if getattr(args, option) not in (None, False):
                raise LabError(f"--{option}: scenario {self.name} has its own")
        render.check_proxy(args.proxy)

    def run(self, args: Namespace) -> bool:
        self.validate(args)
        now = datetime.datetime.now(datetime.UTC)
        directory = args.results / f"{now:%Y%m%dT%H%M%SZ}-{self.name}"
        directory.mkdir(parents=True)
        requests, events, found = measure(args.proxy, directory)
        summary = {
            "scenario": self.name,
            "proxy": machine.proxy_version(args.proxy),
            "database": machine.database(args.database),
            "machine": machine.describe(),
            "started": now.isoformat(timespec="seconds"),
            "command": shlex.join(["python", "-m", "compose.lab", *sys.argv[1:]]),
            "patroni": {"version": machine.patroni_version(), **patroni.TIMES},
            "max_lag_s": MAX_LAG_S,
            "events": asdict(events),
            "figures": found,
        }
        checks = self.criteria(summary)
        summary["criteria"] = [check.line() for check in checks]
        (directory / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
        # Matplotlib takes a second to load.
        from loadtests.report import ledger_page

        page = ledger_page.render(requests, events, checks)
        (directory / "report.html").write_text(page, encoding="utf-8")
        print("\n".join(f"{name:>26}  {value}" for name, value in found.items()))
        print("\n" + "\n".join(check.line() for check in checks))
        print(f"\n{directory / 'summary.json'}\n{directory / 'report.html'}")
        return all(check.passed for check in checks)

    def criteria(self, summary: dict[str, Any]) -> list[Criterion]:
        return ledger.criteria(summary["figures"], summary["patroni"]["ttl"], summary["max_lag_s"])


def measure(proxy: str, directory: Path) -> tuple[list[ledger.Request], ledger.Events, dict[str, Any]]:
    """Runs it all: what the clients were told, what happened, and the figures of both."""
    with contextlib.ExitStack() as leaving:
        own = leaving.enter_context(own_directory(directory))
        frontend, admin, *rest = free_ports(2 + 3 * len(NODES) + 2 + 2 * len(NODES))
        three = [rest[n * len(NODES) : (n + 1) * len(NODES)] for n in range(3)]
        ports = Ports(frontend, *three, admin)
        cluster = leaving.enter_context(patroni.cluster(list(NODES), rest[3 * len(NODES) :], own))
        every = {**cluster.programs, **programs(cluster, ports, own, proxy)}
        processes = leaving.enter_context(Processes(every, own, directory))
        wait_ready(cluster, ports, processes, proxy)
        told = directory / "ledger.log"
        k6 = generator(ports.frontend, told, directory)
        leaving.callback(stop, k6)
        print(f"clients run for {TIMES.end:g} s", file=sys.stderr)
        events = drive(k6, cluster, processes, directory)
        k6.wait(60)
        wait_until("all nodes", cluster.is_whole, START_S, processes.check)
        last = cluster.primary()
        assert last is not None
        entries = patroni.entries(last)
        beat = int(last.sql("SELECT n FROM beat", patroni.SCOPE))
    requests = ledger.load(told)
    return requests, events, ledger.figures(requests, events, entries, beat, MAX_LAG_S)


def wait_ready(cluster: Cluster, ports: Ports, processes: Processes, proxy: str) -> None:
    print("waiting for Patroni's cluster", file=sys.stderr)
    wait_until("a primary", lambda: cluster.primary() is not None, START_S, processes.check)
    cluster.set_up()
    wait_until("synchronous standbys", cluster.is_whole, START_S, processes.check)
    wait_until("one primary", lambda: takes(ports, "writes").count(True) == 1, 30, processes.check)
    wait_until("fresh standbys", lambda: all(takes(ports, "reads")), 30, processes.check)
    url = f"http://127.0.0.1:{ports.frontend}/beat"
    wait_until(proxy, lambda: answers(url), 20, processes.check)


def generator(frontend: int, told: Path, directory: Path) -> subprocess.Popen[bytes]:
    """Starts k6, which writes to `told`."""
    environment = {
        "TARGET": f"http://127.0.0.1:{frontend}",
        "DURATION": str(TIMES.end + 1),
        "K6_NO_USAGE_REPORT": "true",
        "K6_AUTO_EXTENSION_RESOLUTION": "false",
    }
    command = [machine.k6(), "run", "--quiet", "--no-color", "--address", "", "--log-format", "raw"]
    command += ["--log-output", f"file={told}", str(SCRIPT)]
    return start_tied(command, environment, directory / "k6.log")


@contextlib.contextmanager
def hold_up(primary: Member, standby: Member, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """Holds up replay with a query on the standby, since Patroni would end an explicit pause of replay."""
    looks = f"BEGIN; TABLE looked_at; SELECT pg_sleep({seconds:g}); COMMIT"
    locked = "SELECT count(*) FROM pg_locks WHERE relation = 'looked_at'::regclass"
    command = [*TIED, *standby.psql("-c", looks, database=patroni.SCOPE)]
    query = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def check() -> None:
        if query.poll() is not None:
            raise LabError(f"{standby.name}: the query that is to hold up replay ended at once")

    try:
        wait_until("the query", lambda: standby.sql(locked, patroni.SCOPE).strip() != "0", 5, check)
        primary.sql("TRUNCATE looked_at", patroni.SCOPE)
        yield query
    finally:
        stop(query)


def listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
    return True


def drive(
    k6: subprocess.Popen[bytes], cluster: Cluster, processes: Processes, directory: Path
) -> ledger.Events:
    """Makes it all happen while the clients run."""
    primary = cluster.primary()
    if primary is None:
        raise LabError("no primary is there to be killed")
    standby = next(member for member in cluster.members if member is not primary)
    dead: list[str] = []
    began = time.time()
    happened: dict[str, float] = {}

    def wait(until: float) -> float:
        while time.time() < began + until:
            processes.check(dead)
            require_running(k6, directory)
            time.sleep(0.05)
        return time.time()

    wait(TIMES.paused)
    with hold_up(primary, standby, TIMES.resumed - TIMES.paused) as query:
        happened["paused"] = time.time()
        while query.poll() is None:
            wait(0)
            time.sleep(0.05)
        happened["resumed"] = time.time()
    wait(TIMES.killed)
    # Patroni, PostgreSQL and all it runs: SIGKILL to the first of their process space.
    dead = [patroni.program(primary.name)]
    happened["killed"] = time.time()
    processes.signal(dead[0], "KILL")
    # Writes that it took before it ended may still have been acknowledged.
    wait_until(f"the end of {primary.name}", lambda: not listens(primary.socket), 10, lambda: None)
    happened["dead"] = time.time()
    happened["back"] = wait(TIMES.back)
    processes.start(dead[0])
    dead = []
    happened["ended"] = wait(TIMES.end)
    return ledger.Events(began, **happened, standby=standby.name, primary=primary.name)
