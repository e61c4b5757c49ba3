"""Writes run directories with figures that can be worked out by hand."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from loadtests.report import figures, records
from loadtests.report.__main__ import criteria, main
from loadtests.report.schema import Summary

SCHEMA = TypeAdapter(Summary)
REQUESTS = "t_s,delay_s,status,class,outcome,items,node,age_s"
NODES = (
    "t_s,node,up,bound,bound_jobs,reason,weight_percent,"
    "proxy_weight,proxy_maxconn,jobs,delay_s,capacity_items_per_s,cache_hits,cache_misses,"
    "updates,update_items,update_relaxed,update_longest_s,update_hot_relaxed"
)
STATUS = {"ok": 200, "refused": 503, "error": 0, "timeout": 0}


def request(
    t: float,
    delay: float,
    items: int = 100,
    outcome: str = "ok",
    node: str = "node1",
    kind: str = "query",
    age: str = "",
) -> str:
    return f"{t:.4f},{delay:.4f},{STATUS[outcome]},{kind},{outcome},{items},{node},{age}"


def sample(
    t: float,
    node: str = "node1",
    capacity: float | str = "",
    bound: float | str = "",
    reason: str = "",
    cache: str = ",",
    updates: str = ",,,,",
) -> str:
    weight = 50 if bound != "" else ""
    return f"{t},{node},1,{bound},,{reason},{weight},50,60,3,0.1,{capacity},{cache},{updates}"


def steady(begin: int, end: int, delay: float = 0.5, items: int = 100, node: str = "node1") -> list[str]:
    """One query at the start of each second."""
    return [request(t, delay, items, node=node) for t in range(begin, end)]


class Run:
    """Measured from 10 to 30 s, event at 15 s, SLA 1 s, unless told otherwise."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        machine = {
            "cpu": "abacus",
            "cores": 2,
            "memory": "1.0 GiB",
            "kernel": "6",
            "haproxy": "2.6",
            "envoy": "1.40",
            "k6": "1",
        }
        self.facts: dict[str, Any] = {
            **{"scenario": "burst", "sla_seconds": 1.0, "seed": 7, "quick": False, "clients": 10, "nodes": 1},
            "proxies": 1,
            **{
                "database": "sqlite",
                "machine": machine,
                "started": "2000-01-01T00:00:00+00:00",
                "command": "by hand",
            },
            "policies": [],
        }

    def add(
        self,
        name: str,
        requests: list[str],
        nodes: list[str] | None = None,
        facts: dict[str, Any] | None = None,
    ) -> Path:
        folder = self.directory / name
        folder.mkdir()
        meta = {
            **{
                "policy": name,
                "proxy": "haproxy 2.6",
                "event_s": 15.0,
                "event": "a burst",
                "calm_s": None,
                "killed": [],
                "killed_s": None,
                "dead_s": None,
                "back_s": None,
            },
            **{"measured_from_s": 10.0, "measured_to_s": 30.0, "settings": {}},
            "proxy_cpu_share": 0.25,
            "node_capacity_items_per_s": {"node1": 1000.0},
            "generator": {"cpu_share": 0.5, "lag_p99_s": 0.01},
            **(facts or {}),
        }
        (folder / "meta.json").write_text(json.dumps(meta))
        with gzip.open(folder / "requests.csv.gz", "wt") as file:
            file.write("\n".join([REQUESTS, *requests]) + "\n")
        (folder / "nodes.csv").write_text("\n".join([NODES, *(nodes or [])]) + "\n")
        self.facts["policies"].append(name)
        self.save()
        return folder

    def save(self) -> None:
        (self.directory / "run.json").write_text(json.dumps(self.facts))

    def report(self, *options: str) -> int:
        return main([str(self.directory), *options])

    def summary(self) -> dict[str, Any]:
        """Output of the report, validated against the schema."""
        text = json.dumps(figures.summary(*records.load_run(self.directory)), allow_nan=False)
        SCHEMA.validate_json(text, strict=True)
        return json.loads(text)

    def targets(self) -> list[str]:
        return [check.line() for check in criteria(self.summary())]

    def figures(self, name: str) -> dict[str, Any]:
        return next(run for run in self.summary()["runs"] if run["policy"] == name)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "20000101T000000Z-burst")
