"""Scenario master-failover: PostgreSQL under Patroni; a standby's replay is held up for a while, then the
primary is killed, and comes back."""

import contextlib
import datetime
import json
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from compose.lab import machine, patroni, render
from compose.lab.envoy import foreground, relocated
from compose.lab.errors import LabError
from compose.lab.patroni import Cluster, Member
from compose.lab.processes import TIED, Processes, Program, answers, free_ports, start_tied, wait_until
from compose.lab.run import own_directory, require_running, stop
from compose.lab.topology import ROOT
from loadtests.report import ledger
from loadtests.report.criteria import Criterion

NAME = "master-failover"
SCRIPT = ROOT / "loadtests" / "k6" / "ledger.js"
EXAMPLES = {"haproxy": patroni.SETUP / "haproxy.cfg", "envoy": render.KINDS[".yaml"][1] / "eds-role.yaml"}
NODES = ("node1", "node2", "node3")
# Of each agent: what it is told, and what its reads may be behind.
PERIOD = "500ms"
MAX_LAG_S = 5.0
START_S = 90


@dataclass(frozen=True)
class Times:
    """Seconds since the clients start."""

    paused: float = 10.0
    resumed: float = 25.0
    killed: float = 40.0
    back: float = 75.0
    end: float = 105.0


@dataclass(frozen=True)
class Ports:
    frontend: int
    nodes: list[int]
    agents: list[int]
    checks: list[int]
    admin: int


def envoy(ports: Ports, run: Path) -> list[str]:
    """The example with this lab's addresses."""
    moved = {8080: ports.frontend, 9901: ports.admin}
    moved |= {8101 + index: port for index, port in enumerate(ports.nodes)}
    moved |= {9601 + index: port for index, port in enumerate(ports.agents)}
    example = yaml.safe_load(EXAMPLES["envoy"].read_text())
    made = relocated(example, {old: ("127.0.0.1", new) for old, new in moved.items()})
    config = run / "lb1.yaml"
    config.write_text(yaml.safe_dump(made, sort_keys=False))
    return foreground(config, machine.cores())


def haproxy(ports: Ports, run: Path) -> list[str]:
    """The example with this lab's addresses; each line of node1 stands for all nodes."""
    lines = []
    text = EXAMPLES["haproxy"].read_text().replace("127.0.0.1:8080", f"127.0.0.1:{ports.frontend}")
    for line in text.replace("/run/haproxy/plimsoll.sock", str(run / "lb1.sock")).splitlines():
        if not re.match(r"\s+server\s+node1\s", line):
            lines.append(line)
            continue
        for index, name in enumerate(NODES):
            server = line.replace("node1", name).replace("127.0.0.1:8101", f"127.0.0.1:{ports.nodes[index]}")
            server = server.replace("port 9464", f"port {ports.agents[index]}")
            lines.append(server.replace("agent-port 9101", f"agent-port {ports.checks[index]}"))
    config = run / "lb1.cfg"
    config.write_text("\n".join(lines) + "\n")
    return [machine.haproxy(), "-db", "-f", str(config)]


def agent(member: Member, index: int, ports: Ports, run: Path, proxy: str) -> list[str]:
    node = f"127.0.0.1:{ports.nodes[index]}"
    config = {
        "agent": {"period": PERIOD},
        "http": {"listen": f"127.0.0.1:{ports.agents[index]}"},
        "agent_check": {"listen": f"127.0.0.1:{ports.checks[index]}"},
    }
    if proxy == "envoy":
        config["envoy"] = {"peers": [f"http://127.0.0.1:{port}" for port in ports.agents]}
    service = {
        "name": "ledger",
        "identities": [f"reads/{member.name}"],
        "address": node,
        "sla": {"delay": "1s"},
        "bound": {"nominal": 64.0},
        "source": {
            "kind": "prometheus",
            "url": f"http://{node}/metrics",
            "histogram": "ledger_request_duration_seconds",
            "failed": "ledger_requests_failed_total",
        },
        "role": {
            "address": f"unix://{member.socket}",
            "user": "plimsoll",
            "lock_url": f"http://127.0.0.1:{member.rest}/primary",
            "max_lag": f"{MAX_LAG_S:g}s",
            "without_primary": f"{patroni.TTL + 10}s",
        },
    }
    path = run / f"{member.name}.agent.toml"
    path.write_text(render.toml(config) + "\n[[service]]\n" + render.toml(service, "service"))
    return [machine.binary("plimsoll"), "agent", "--config", str(path)]


def programs(cluster: Cluster, ports: Ports, run: Path, proxy: str) -> dict[str, list[str] | Program]:
    """Those that need a database that is set up."""
    begun_by = {"haproxy": haproxy, "envoy": envoy}[proxy]
    found: dict[str, list[str] | Program] = {proxy: begun_by(ports, run)}
    for index, member in enumerate(cluster.members):
        serve = [machine.binary("stocks"), "ledger", "--name", member.name]
        serve += ["--listen", f"127.0.0.1:{ports.nodes[index]}", "--database", member.connection("ledger")]
        found[member.name] = serve
        found[f"{member.name}-agent"] = agent(member, index, ports, run, proxy)
    return found


def takes(ports: Ports, what: str) -> list[bool]:
    return [answers(f"http://127.0.0.1:{port}/v1/role?takes={what}") for port in ports.agents]


@contextlib.contextmanager
def hold_up(primary: Member, standby: Member, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """A query on a standby that replay has to wait for: Patroni would end a pause that it is told to make."""
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
    with socket.socket(socket.AF_UNIX) as asked:
        try:
            asked.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
    return True


def drive(
    k6: subprocess.Popen[bytes], cluster: Cluster, processes: Processes, directory: Path, times: Times
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

    wait(times.paused)
    with hold_up(primary, standby, times.resumed - times.paused) as query:
        happened["paused"] = time.time()
        while query.poll() is None:
            wait(0)
            time.sleep(0.05)
        happened["resumed"] = time.time()
    wait(times.killed)
    # Patroni, PostgreSQL and all it runs: SIGKILL to the first of their process space.
    dead = [patroni.program(primary.name)]
    happened["killed"] = time.time()
    processes.signal(dead[0], "KILL")
    # What it took before it had ended may still have been acknowledged.
    wait_until(f"the end of {primary.name}", lambda: not listens(primary.socket), 10, lambda: None)
    happened["dead"] = time.time()
    happened["back"] = wait(times.back)
    processes.start(dead[0])
    dead = []
    happened["ended"] = wait(times.end)
    return ledger.Events(began, **happened, standby=standby.name, primary=primary.name)


def run(results: Path, proxy: str, times: Times | None = None) -> bool:
    """Returns whether all that is promised was kept."""
    times = times or Times()
    now = datetime.datetime.now(datetime.UTC)
    directory = results / f"{now:%Y%m%dT%H%M%SZ}-{NAME}"
    directory.mkdir(parents=True)
    with contextlib.ExitStack() as leaving:
        own = leaving.enter_context(own_directory(directory))
        frontend, admin, *rest = free_ports(2 + 3 * len(NODES) + 2 + 2 * len(NODES))
        three = [rest[n * len(NODES) : (n + 1) * len(NODES)] for n in range(3)]
        ports = Ports(frontend, *three, admin)
        cluster = leaving.enter_context(patroni.cluster(list(NODES), rest[3 * len(NODES) :], own))
        every = {**cluster.programs, **programs(cluster, ports, own, proxy)}
        processes = leaving.enter_context(Processes(every, own, directory))
        print("waiting for Patroni's cluster", file=sys.stderr)
        wait_until("a primary", lambda: cluster.primary() is not None, START_S, processes.check)
        cluster.set_up()
        wait_until("synchronous standbys", cluster.is_whole, START_S, processes.check)
        wait_until("one primary", lambda: takes(ports, "writes").count(True) == 1, 30, processes.check)
        wait_until("fresh standbys", lambda: all(takes(ports, "reads")), 30, processes.check)
        url = f"http://127.0.0.1:{ports.frontend}/beat"
        wait_until(proxy, lambda: answers(url), 20, processes.check)
        told = directory / "ledger.log"
        environment = {
            "TARGET": f"http://127.0.0.1:{ports.frontend}",
            "DURATION": str(times.end + 1),
            "K6_NO_USAGE_REPORT": "true",
            "K6_AUTO_EXTENSION_RESOLUTION": "false",
        }
        command = [machine.k6(), "run", "--quiet", "--no-color", "--address", "", "--log-format", "raw"]
        command += ["--log-output", f"file={told}", str(SCRIPT)]
        k6 = start_tied(command, environment, directory / "k6.log")
        leaving.callback(stop, k6)
        print(f"clients run for {times.end:g} s", file=sys.stderr)
        events = drive(k6, cluster, processes, directory, times)
        k6.wait(60)
        wait_until("all nodes", cluster.is_whole, START_S, processes.check)
        last = cluster.primary()
        assert last is not None
        entries = patroni.entries(last)
        beat = int(last.sql("SELECT n FROM beat", patroni.SCOPE))
    requests = ledger.load(told)
    found = ledger.figures(requests, events, entries, beat, MAX_LAG_S)
    checks = ledger.criteria(found, patroni.TTL, MAX_LAG_S)
    # Matplotlib takes a second to load.
    from loadtests.report import ledger_page

    (directory / "report.html").write_text(ledger_page.render(requests, events, checks), encoding="utf-8")
    tell(directory, proxy, found, checks, events, now)
    return all(check.passed for check in checks)


def tell(
    directory: Path,
    proxy: str,
    found: dict[str, Any],
    checks: list[Criterion],
    events: ledger.Events,
    now: datetime.datetime,
) -> None:
    summary = {
        "scenario": NAME,
        "proxy": machine.proxy_version(proxy),
        "database": machine.database("postgres"),
        "machine": machine.describe(),
        "started": now.isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "compose.lab", *sys.argv[1:]]),
        "patroni": {"version": machine.patroni_version(), **patroni.TIMES},
        "max_lag_s": MAX_LAG_S,
        "events": asdict(events),
        "figures": found,
        "criteria": [check.line() for check in checks],
    }
    (directory / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    print("\n".join(f"{name:>26}  {value}" for name, value in found.items()))
    print("\n" + "\n".join(check.line() for check in checks))
    print(f"\n{directory / 'summary.json'}\n{directory / 'report.html'}")
