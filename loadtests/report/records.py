"""Reads a run directory. Every error names the file and, where there is one, the line."""

import csv
import gzip
import json
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

REQUEST_COLUMNS = ["t_s", "delay_s", "status", "class", "outcome", "items", "node"]
NODE_COLUMNS = [
    *("t_s", "node", "up", "bound", "bound_jobs", "reason", "weight_percent"),
    *("proxy_weight", "proxy_maxconn", "jobs", "delay_s", "capacity_items_per_s"),
]
CLASSES = {"query", "transaction"}
OUTCOMES = {"ok", "refused", "error"}


class RecordError(Exception):
    """A record that is missing or cannot be read."""


@dataclass
class Requests:
    sent: np.ndarray
    delay: np.ndarray
    items: np.ndarray
    query: np.ndarray
    outcome: np.ndarray
    node: np.ndarray

    @property
    def finished(self) -> np.ndarray:
        return self.sent + self.delay


@dataclass
class Policy:
    meta: dict[str, Any]
    requests: Requests
    nodes: list[dict[str, Any]]


def load_json(path: Path, required: list[str]) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise RecordError(f"{path}:{error.lineno}: {error.msg}") from error
    if not isinstance(value, dict):
        raise RecordError(f"{path}: expected an object")
    for key in required:
        if key not in value:
            raise RecordError(f"{path}: key '{key}' is missing")
    return value


def rows(path: Path, columns: list[str]):
    """Yields (line number, row)."""
    opener = gzip.open if path.suffix == ".gz" else open
    line = 0
    try:
        with opener(path, "rt", newline="") as file:
            for line, row in enumerate(csv.reader(file), 1):
                if line == 1:
                    if row != columns:
                        raise RecordError(f"{path}:1: expected the header {','.join(columns)}")
                elif len(row) != len(columns):
                    raise RecordError(f"{path}:{line}: expected {len(columns)} fields, found {len(row)}")
                else:
                    yield line, row
    except (EOFError, zlib.error, gzip.BadGzipFile, csv.Error, UnicodeDecodeError) as error:
        raise RecordError(f"{path}:{line + 1}: truncated or damaged: {error}") from error
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror or error}") from error
    if line == 0:
        raise RecordError(f"{path}:1: the file is empty")


def number(text: str, where: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise RecordError(f"{where}: {name} is '{text}', expected a number of at least 0")
    return value


def load_requests(path: Path) -> Requests:
    sent, delay, items, query, outcome, node = [], [], [], [], [], []
    for line, row in rows(path, REQUEST_COLUMNS):
        where = f"{path}:{line}"
        if row[3] not in CLASSES:
            raise RecordError(f"{where}: class is '{row[3]}', expected query or transaction")
        if row[4] not in OUTCOMES:
            raise RecordError(f"{where}: outcome is '{row[4]}', expected ok, refused or error")
        sent.append(number(row[0], where, "t_s"))
        delay.append(number(row[1], where, "delay_s"))
        items.append(number(row[5], where, "items"))
        query.append(row[3] == "query")
        outcome.append(row[4])
        node.append(row[6])
    return Requests(
        np.array(sent, float),
        np.array(delay, float),
        np.array(items, float),
        np.array(query, bool),
        np.array(outcome, "U8"),
        np.array(node, dtype=str),
    )


def load_nodes(path: Path) -> list[dict[str, Any]]:
    found = []
    for line, row in rows(path, NODE_COLUMNS):
        entry: dict[str, Any] = dict(zip(NODE_COLUMNS, row, strict=True))
        for name in NODE_COLUMNS:
            if name not in ("node", "up", "reason"):
                text = entry[name]
                entry[name] = number(text, f"{path}:{line}", name) if text else None
        if entry["t_s"] is None or not entry["node"]:
            raise RecordError(f"{path}:{line}: t_s and node must not be empty")
        found.append(entry)
    return found


def load_run(directory: Path) -> tuple[dict[str, Any], list[Policy]]:
    run = load_json(directory / "run.json", ["scenario", "sla_seconds", "seed", "machine", "policies"])
    required = ["policy", "proxy", "event_s", "measured_from_s", "measured_to_s"]
    required += ["node_capacity_items_per_s", "generator"]
    policies = []
    for name in run["policies"]:
        folder = directory / name
        meta = load_json(folder / "meta.json", required)
        if not meta["measured_to_s"] > meta["measured_from_s"]:
            raise RecordError(f"{folder / 'meta.json'}: measured_to_s must be above measured_from_s")
        policies.append(
            Policy(meta, load_requests(folder / "requests.csv.gz"), load_nodes(folder / "nodes.csv"))
        )
    return run, policies
