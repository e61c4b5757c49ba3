"""The Prometheus beside the lab: what it scrapes, how long it stays, and what is said when it cannot."""

import json
import os
import signal
import socket
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from compose.lab import machine, observe, render, stack
from compose.lab.collector import Collector
from compose.lab.errors import LabError
from compose.lab.observe import Prometheus, Target
from compose.lab.processes import answers
from compose.lab.scenarios.burst import Burst
from compose.lab.scenarios.removal import Removal
from compose.lab.topology import load
from tests.harness.eventually import eventually
from tests.harness.process import marked
from tests.harness.programs import needs_lab


def ask(url: str, query: str, **more: str) -> list[dict]:
    kind = "query_range" if "step" in more else "query"
    words = urllib.parse.urlencode({"query": query, **more})
    with urllib.request.urlopen(f"{url}/api/v1/{kind}?{words}", timeout=5) as answer:
        return json.load(answer)["data"]["result"]


@needs_lab
def test_after_a_run_prometheus_has_it_until_it_is_stopped(lab, tmp_path: Path) -> None:
    process, mark = lab("--policies", "envoy-eds-fc-prop", "--observe")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr.decode()
    words = stdout.decode().split("Prometheus has the run: ")[1].split()
    url, stopper = words[0], int(words[-1].rstrip(")"))
    assert [number for number, _ in marked(mark)] == [stopper]
    try:
        assert (
            tmp_path / "results" / "latest" / "prometheus" / "prometheus.pid"
        ).read_text() == f"{stopper}\n"
        found = ask(url, "max_over_time(up[5m])")
        seen = {(one["metric"]["job"], one["metric"]["instance"]) for one in found if one["value"][1] == "1"}
        assert seen == {
            *(("stocks", name) for name in ("master", "node1", "node2")),
            *(("plimsoll", name) for name in ("node1", "node2")),
            *(("envoy", "envoy"), ("lab", "lab")),
        }
        assert {one["metric"]["policy"] for one in found} == {"envoy-eds-fc-prop"}
        assert {one["metric"]["cluster"] for one in found} == {"stocks"}
        items = ask(url, "max_over_time(k6_total_items_total[5m])")
        assert items and all(one["metric"]["policy"] == "envoy-eds-fc-prop" for one in items)
        # Ended with its policy, so that it does not last into the next one.
        assert ask(url, "k6_total_items_total") == []
        events = ask(url, "max_over_time(lab_event_timestamp_seconds[5m])")
        at = {one["metric"]["event"]: float(one["value"][1]) for one in events}
        assert at["burst"] - at["start"] == pytest.approx(13)
    finally:
        os.kill(stopper, signal.SIGTERM)
        eventually("nothing is left behind", lambda: not marked(mark))


def test_a_failure_of_the_lab_ends_it(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="a failure"), Prometheus() as observer:
        observer.start(tmp_path)
        assert answers(f"{observer.url}/-/ready")
        raise LabError("a failure")
    assert not answers(f"{observer.url}/-/ready")


def test_it_says_that_its_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(LabError, match=f"--observe {port}: .*taken: Address already in use"):
            Prometheus(port)


def test_it_says_that_there_is_no_prometheus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match="prometheus is not on the PATH; run `make tools`"):
        Prometheus()


def test_it_says_why_it_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(observe, "configuration", lambda _: {"scrape_configs": "all"})
    with (
        pytest.raises(
            LabError, match=r"(?s)Prometheus ended: .*prometheus\.log.*scrape_configs|cannot unmarshal"
        ),
        Prometheus() as observer,
    ):
        observer.start(tmp_path)


def test_a_target_that_does_not_answer_stops_the_lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(observe, "READY_SECONDS", 3)
    with Prometheus() as observer:
        observer.start(tmp_path)
        silent = Target("stocks", "node1", "127.0.0.1:1")
        with pytest.raises(LabError, match="the scraping of stocks/node1 is not ready"):
            observer.watch("rr", [silent], lambda: None)


@pytest.mark.parametrize(("name", "job", "proxies"), [("rr", "haproxy", 1), ("envoy-rr", "envoy", 2)])
def test_every_program_of_a_policy_is_a_target(tmp_path: Path, name: str, job: str, proxies: int) -> None:
    if job == "envoy":
        machine.envoy()
    policy, topology = render.policies([name])[0], load("burst", 2)
    plan = stack.plan(policy, topology, 1, {}, tmp_path, proxies)
    found = observe.targets(policy, topology, plan, "127.0.0.1:9")
    assert [target.instance for target in found if target.job == "stocks"] == ["master", "node1", "node2"]
    assert [target.instance for target in found if target.job == job] == list(plan.proxies)
    assert not [target for target in found if target.job == "plimsoll"]
    assert found[-1].entry(name) == {
        "targets": ["127.0.0.1:9"],
        "labels": {"job": "lab", "instance": "lab", "cluster": "stocks", "policy": name},
    }


def test_gathers_are_targets(tmp_path: Path) -> None:
    policy, topology = render.policies(["gather"])[0], load("burst", 2)
    plan = stack.plan(policy, topology, 1, {}, tmp_path, 1)
    found = observe.targets(policy, topology, plan, "127.0.0.1:9")
    ports = [f"127.0.0.1:{port}" for port in plan.ports.gathers]
    gathers = [(it.instance, it.address) for it in found if it.job == "plimsoll-gather"]
    assert gathers == [("gather1", ports[0]), ("gather2", ports[1])]


def test_events_are_shown_once_they_happened(tmp_path: Path) -> None:
    events = Removal().plan(quick=True, redis_away=5).events(has_redis=True)
    assert events == {"burst": 8, "removal": 20, "Redis away": 20, "Redis back": 25}
    assert Burst().plan(quick=True, redis_away=5).events(has_redis=False) == {"burst": 13}
    with Collector(tmp_path / "requests.csv.gz", 1.0, {}, {"past": 0.0, "future": 3600.0}) as collector:
        assert "lab_event" not in collector.metrics().replace("# HELP lab_event", "").replace(
            "# TYPE lab_event", ""
        )
        collector.start(1.7e9)
        collector.start_monotonic = 0.0
        with urllib.request.urlopen(f"{collector.url}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    assert 'lab_event_timestamp_seconds{event="past"} 1700000000.000' in text
    assert "lab_sla_seconds 1.0" in text
    assert 'event="start"' in text
