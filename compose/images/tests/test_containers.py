"""The lab in containers beside the lab without: the same clients, the same nodes, a burst."""

import json
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from compose.images.tests.project import READY_S, Project
from tests.harness import ROOT
from tests.harness.eventually import eventually
from tests.harness.podman import podman

# Those of the lab's quick burst (compose/lab/scenarios).
CLIENTS, BURST_S, DURATION_S = 1500, 13, 38
LOAD = {"CLIENTS": str(CLIENTS), "BURST": str(BURST_S), "DURATION": str(DURATION_S)}
# k6 starts, drains and sums up.
RUN_S = DURATION_S + 60
# Of the timely items that the lab without containers serves.
TOLERANCE = 0.05
# At most, of both; the best count, since what else uses the cores only takes away.
ROUNDS = 3
# Of a core, a fraction of what a node uses; the others have half of one.
SLOW_CPUS = "0.01"
# Of what another node serves.
SLOW_SHARE = 0.8
POLICIES = {"haproxy": "lua-fc-hash", "envoy": "wasm-fc-hash"}


@pytest.fixture(scope="module", autouse=True)
def images(tmp_path_factory):
    Project(tmp_path_factory.mktemp("images"), "full").build()


def timely_items(metrics):
    return metrics["timely_items"]["values"]["count"]


def native(proxy, database, directory):
    """Timely items of the same work without containers."""
    command = [sys.executable, "-m", "compose.lab", "run", "--quick", "--proxy", proxy]
    command += ["--policies", POLICIES[proxy], "--database", database, "--results", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    summary = directory / "latest" / POLICIES[proxy] / "k6-summary.json"
    return timely_items(json.loads(summary.read_text())["metrics"])


def ask(query):
    """The value of each series of a query to Prometheus, by its labels."""
    url = f"http://127.0.0.1:9090/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=5) as answer:
        found = json.load(answer)["data"]["result"]
    return [(series["metric"], float(series["value"][1])) for series in found]


def is_scraped(proxy):
    """Whether all that run are."""
    up = {(labels["job"], labels["instance"]) for labels, value in ask("up") if value}
    nodes = [f"node{number}" for number in range(1, 6)]
    wanted = {("plimsoll", name) for name in nodes} | {("stocks", name) for name in ["master", *nodes]}
    wanted |= {("haproxy", proxy), ("haproxy-lua", proxy)} if proxy == "haproxy" else {("envoy", proxy)}
    return up == wanted


def is_used(proxy):
    """Whether agents and proxy share a ring, by what they say of it."""
    reports = ask("plimsoll_redis_reports_total > 0")
    return len(reports) == 5 and bool(ask(f'plimsoll_admitted_total{{instance="{proxy}"}} > 0'))


def items():
    """Served so far by each node."""
    return {labels["node"]: value for labels, value in ask('stocks_items_total{class="query"}')}


def scraped_s(node):
    """When the items of a node were last asked for, in Unix time."""
    ((_, seconds),) = ask(f'timestamp(stocks_items_total{{node="{node}",class="query"}})')
    return seconds


def comes_back(project, service):
    """Killed, it is started again and healthy."""
    killed = project.kill(service)
    eventually(f"the next {service}", lambda: project.pid(service) not in {0, killed}, READY_S)
    project.wait(service)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("proxy", "database"), [("haproxy", "sqlite"), ("envoy", "sqlite"), ("haproxy", "postgres")]
)
def test_a_burst_is_served_as_without_containers(proxy, database, tmp_path):
    profiles, db = (f"{proxy},postgres", "postgres") if database == "postgres" else (proxy, "")
    k6 = f"k6-{proxy}"
    with Project(tmp_path, profiles, DB=db, **LOAD) as project:
        project.start(k6)
        eventually("the scrapes", lambda: is_scraped(proxy), 60)
        contained, without = [], []
        for number in range(ROUNDS):
            contained.append(burst(project, k6))
            eventually("the ring", lambda: is_used(proxy), 30)
            without.append(native(proxy, database, tmp_path / f"native{number}"))
            if abs(max(contained) / max(without) - 1) <= TOLERANCE:
                break
        print(f"{proxy} on {database}: timely items in containers {contained}, without {without}")
        if database == "sqlite":
            a_slow_node_gets_less(project, k6)
        survives(project, proxy, k6)
    assert not project.remains()
    assert max(contained) == pytest.approx(max(without), rel=TOLERANCE)


def burst(project, k6):
    """Timely items, as k6 sums them up, and as Prometheus was told."""
    project.up_anew(k6)
    project.wait(k6, RUN_S)
    found = timely_items(json.loads(project.output(k6)))
    ((_, recorded),) = ask("sum(k6_timely_items_total)")
    assert recorded == found
    return found


def a_slow_node_gets_less(project, k6):
    """The limit of a container's CPU makes its node's capacity, which the agent finds."""
    before = items()
    podman("update", "--cpus", SLOW_CPUS, project.container("node1"))
    burst(project, k6)
    ended = time.time()
    eventually("the last figures", lambda: scraped_s("node1") > ended, 30)
    served = {node: value - before[node] for node, value in items().items() if node != "master"}
    slow = served.pop("node1")
    print(f"on {SLOW_CPUS} of a core node1 served {slow:.0f} items, the others {served}")
    assert slow < SLOW_SHARE * statistics.mean(served.values())


def survives(project, proxy, k6):
    """Under load a node and the proxy are killed, come back, and serve again."""
    project.up_anew(k6)
    comes_back(project, "node2")
    counter = 'stocks_items_total{node="node2",class="query"}'
    eventually("work of the new node2", lambda: ask(f"{counter} > 0 and resets({counter}[10m]) > 0"), READY_S)
    comes_back(project, proxy)
    eventually("an answer of the new proxy", lambda: answer(project, proxy) == 200, READY_S)


def answer(project, proxy):
    """The status of a query at the port that the host has."""
    port = project.services[proxy]["ports"][0]["published"]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/stock/S0001?items=1", timeout=5) as answered:
            return answered.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None
