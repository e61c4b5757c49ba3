"""The lab as a user runs it: real programs, ended in every way, leave nothing behind."""

import csv
import gzip
import json
import re
import shutil
import signal
from pathlib import Path

import pytest

from tests.harness.eventually import eventually
from tests.harness.process import marked
from tests.harness.programs import needs_lab

ON_ENVOY = ("envoy-rr", "envoy-eds-fc-prop")


def below(directory: str) -> set[int]:
    """Processes that work in a directory: PostgreSQL does in its data, and writes over its environment."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "cwd").readlink().is_relative_to(directory):
                found.add(int(path.name))
        except OSError:
            continue
    return found


def memory_owners() -> list[int]:
    """Processes that made the System V shared memory there is."""
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()
    column = lines[0].split().index("cpid")
    return [int(line.split()[column]) for line in lines[1:]]


@needs_lab
@pytest.mark.parametrize(
    ("how", "database"),
    [(signal.SIGINT, "sqlite"), (signal.SIGTERM, "postgres"), (signal.SIGKILL, "postgres")],
)
def test_however_it_ends_no_process_and_no_port_is_left(lab, tmp_path, how, database):
    process, mark = lab("--policies", "fc-prop", "--observe", "--database", database)
    eventually("k6 runs", lambda: any("k6" in line and "run" in line for _, line in marked(mark)), 90)
    family = marked(mark)
    for program in ("haproxy", "stocks", "plimsoll", "k6", "supervisor", "prometheus"):
        assert any(program in line for _, line in family), f"{program} is not running"
    data = {found for _, line in family for found in re.findall(r"host=(\S+)/node1 ", line)}
    assert len(data) == (database == "postgres")
    servers = {number for path in data for number in below(path)}
    # A primary and two standbys, of several processes each.
    assert len(servers) >= 10 * len(data)
    assert len([owner for owner in memory_owners() if owner in servers]) == 3 * len(data)
    try:
        process.send_signal(how)
        process.wait(20)
        eventually("nothing is left behind", lambda: not marked(mark))
        eventually("no PostgreSQL is left behind", lambda: not any(below(path) for path in data))
        assert servers.isdisjoint(memory_owners())
        if how != signal.SIGKILL:
            assert process.returncode == 128 + how
            assert not list(tmp_path.glob("plimsoll-lab-*"))
            assert not any(Path(path).exists() for path in data)
    finally:
        for path in data:
            shutil.rmtree(path, ignore_errors=True)


@needs_lab
def test_a_small_run_leaves_complete_records_and_the_same_work_for_every_policy(lab, tmp_path):
    process, mark = lab("--policies", "rr fc-prop envoy-rr envoy-eds-fc-prop", "--seed", "3")
    _, stderr = process.communicate(timeout=170)
    assert process.returncode == 0, stderr.decode()
    assert not marked(mark)
    latest = tmp_path / "results" / "latest"
    facts = json.loads((latest / "run.json").read_text())
    assert facts["policies"] == ["rr", "fc-prop", "envoy-rr", "envoy-eds-fc-prop"]
    assert facts["clients"] == 20
    work = {}
    for policy in facts["policies"]:
        meta = json.loads((latest / policy / "meta.json").read_text())
        assert meta["event_s"] < meta["duration_s"]
        assert meta["generator"]["cpu_share"] > 0
        assert meta["proxy_cpu_share"] > 0
        assert meta["proxy"].startswith("envoy 1." if policy in ON_ENVOY else "haproxy 2.")
        assert meta["settings"] == {}
        with gzip.open(latest / policy / "requests.csv.gz", "rt") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) > 50
        assert {row["outcome"] for row in rows} == {"ok"}
        assert {row["class"] for row in rows} == {"query", "transaction"}
        # The first second's clients are the same, whatever the policy does to their delay.
        work[policy] = sorted((row["class"], row["items"]) for row in rows if float(row["t_s"]) < 3)
        with (latest / policy / "nodes.csv").open() as file:
            samples = list(csv.DictReader(file))
        assert {row["node"] for row in samples} == {"node1", "node2"}
        assert {row["up"] for row in samples} == {"1"}
        assert all(row["proxy_weight"] for row in samples)
        assert (latest / policy / ("lb1.yaml" if policy in ON_ENVOY else "lb1.cfg")).exists()
        assert {row["node"] for row in rows} == {"node1", "node2", "master"}
        assert (samples[-1]["bound"] != "") == policy.endswith("fc-prop")
        assert float(samples[-1]["capacity_items_per_s"]) > 1000
    # Clients start staggered by their seeds; a request on the edge may fall on either side.
    for policy in facts["policies"]:
        common = len(set(work["rr"]) & set(work[policy]))
        assert common >= 0.8 * len(set(work["rr"]))


@needs_lab
def test_redis_is_away_for_the_configured_time(lab, tmp_path):
    process, _ = lab("--policies", "fc-prop lua-fc-hash", "--redis-away", "3", "--proxies", "2")
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr.decode()
    latest = tmp_path / "results" / "latest"
    metas = {path.parent.name: json.loads(path.read_text()) for path in latest.glob("*/meta.json")}
    assert {policy: meta["redis_away_s"] for policy, meta in metas.items()} == {
        "fc-prop": 0,
        "lua-fc-hash": 3,
    }
    assert metas["lua-fc-hash"]["event"].endswith("; Redis is away for 3 s")
    assert "Redis" not in metas["fc-prop"]["event"]
    # Each proxy's first thread called Redis, and timed out.
    for number in (1, 2):
        log = (latest / "lua-fc-hash" / f"haproxy-lb{number}.log").read_text()
        assert f"plimsoll lb{number}/1: shares: " in log
    with gzip.open(latest / "lua-fc-hash" / "requests.csv.gz", "rt") as file:
        assert "error" not in {row["outcome"] for row in csv.DictReader(file)}


@needs_lab
@pytest.mark.parametrize(("policy", "database"), [("fc-prop", "postgres"), ("wasm-fc-hash", "sqlite")])
def test_a_killed_slave_and_its_agent_are_recorded_as_dead(lab, tmp_path, policy, database):
    process, _ = lab(
        *("--scenario", "removal", "--policies", policy, "--duration", "26", "--proxies", "2"),
        *("--database", database),
    )
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr.decode()
    latest = tmp_path / "results" / "latest"
    for name in ("run.json", "summary.json"):
        assert json.loads((latest / name).read_text())["database"].startswith(database)
    with gzip.open(latest / policy / "requests.csv.gz", "rt") as file:
        transactions = [row for row in csv.DictReader(file) if row["class"] == "transaction"]
    # Also after the removal: a dead standby does not block commits forever.
    assert {row["outcome"] for row in transactions} == {"ok"}
    assert any(float(row["t_s"]) > 23 for row in transactions)
    with (latest / policy / "nodes.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if float(row["t_s"]) > 23]
    assert {row["node"]: row["up"] for row in rows} == {"node1": "1", "node2": "0"}
    assert {row["capacity_items_per_s"] for row in rows if row["node"] == "node2"} == {"0"}


@needs_lab
@pytest.mark.parametrize(
    ("scenario", "policy", "killed", "duration"),
    [
        ("rejoin", "fc-hash", "node2", "36"),
        ("balancer-failover", "lua-fc-hash", "haproxy-lb2", "28"),
        ("redis-failover", "lua-fc-hash", "redis", "28"),
        ("redis-failover", "wasm-fc-hash", "redis", "28"),
        ("aggregator-failover", "gather", "gather2", "28"),
    ],
)
def test_only_requests_in_flight_at_the_dead_fail(lab, tmp_path, scenario, policy, killed, duration):
    database = "postgres" if policy == "gather" else "sqlite"
    process, _ = lab(
        *("--scenario", scenario, "--policies", policy, "--duration", duration, "--database", database)
    )
    _, stderr = process.communicate(timeout=150)
    assert process.returncode == 0, stderr.decode()
    latest = tmp_path / "results" / "latest"
    (run,) = json.loads((latest / "summary.json").read_text())["runs"]
    found = run["failover"]
    assert found["errors_after"] == 0
    assert run["event_s"] <= found["killed_s"] < run["event_s"] + 2
    assert found["recovered_s"] is not None
    events = (latest / policy / "supervisord.log").read_text()
    assert f"exited: {killed} (terminated by SIGKILL" in events
    if scenario == "rejoin":
        assert found["recovered_back_s"] is not None
        # The first start, and the second.
        assert len(re.findall(rf"spawned: '{killed}(?:-agent)?'", events)) == 4
        with (latest / policy / "nodes.csv").open() as file:
            last = [row for row in csv.DictReader(file) if row["node"] == killed][-1]
        assert (last["up"], last["bound"] != "") == ("1", True)
    if scenario == "aggregator-failover":
        with gzip.open(latest / policy / "requests.csv.gz", "rt") as file:
            answered = [row for row in csv.DictReader(file) if row["outcome"] == "ok"]
        assert {row["node"] for row in answered} == {"gather1", "gather2"}
    if scenario == "redis-failover":
        logs = [(latest / policy / f"sentinel{number}.log").read_text() for number in (1, 2, 3)]
        assert any("+switch-master stocks" in log for log in logs)


@needs_lab
def test_object_sets_leave_the_node_where_all_of_them_start(lab, tmp_path):
    process, _ = lab(
        "--scenario", "placement", "--policies", "placement", "--clients", "48", "--proxies", "2"
    )
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr.decode()
    latest = tmp_path / "results" / "latest"
    found = json.loads((latest / "summary.json").read_text())["runs"][0]["placement"]
    assert found["handovers"] > 0
    assert (found["violations"], found["errors"], found["unchecked"]) == (0, 0, 0)
    assert found["series"]["sets"]["node2"][-1] > 0
    with gzip.open(latest / "placement" / "writes.csv.gz", "rt") as file:
        writes = list(csv.DictReader(file))
    assert {row["node"] for row in writes if row["outcome"] == "ok"} == {"node1", "node2"}
    with (latest / "placement" / "placement.csv").open() as file:
        rows = list(csv.DictReader(file))
    # All sets start at one node, and are reported.
    assert {row["state"] for row in rows if row["version"] == rows[0]["version"]} == {"node1"}
    assert len({row["set"] for row in rows}) == 36
