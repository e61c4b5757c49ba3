"""Reads a run directory. Every error names the file and, where there is one, the line."""

import csv
import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

REQUEST_COLUMNS = ["t_s", "delay_s", "status", "class", "outcome", "items", "node", "age_s"]
NODE_COLUMNS = [
    *("t_s", "node", "up", "bound", "bound_jobs", "reason", "weight_percent"),
    *("proxy_weight", "proxy_maxconn", "jobs", "delay_s", "capacity_items_per_s"),
    *("cache_hits", "cache_misses"),
    *("updates", "update_items", "update_relaxed", "update_longest_s", "update_hot_relaxed"),
]
WRITE_COLUMNS = ["t_s", "delay_s", "outcome", "node", "set"]
TABLE_COLUMNS = ["t_s", "version", "set", "state"]
# What is important is a query, of the highest class; only clients of real applications have classes.
CLASSES = {"query", "important", "transaction"}
# Only clients of real applications give up.
OUTCOMES = {"ok", "refused", "error", "timeout"}
# Seconds are kept as arrays: a damaged end of a run must not ask for terabytes.
MAX_S = 86_400


class RecordError(Exception):
    """A record that is missing or cannot be read."""


@dataclass
class Requests:
    sent: np.ndarray
    delay: np.ndarray
    items: np.ndarray
    query: np.ndarray
    important: np.ndarray
    outcome: np.ndarray
    node: np.ndarray
    # Age of the oldest datum read; NaN if none has an age.
    age: np.ndarray

    @property
    def finished(self) -> np.ndarray:
        return self.sent + self.delay


@dataclass
class Writes:
    """Requests that named an object set."""

    sent: np.ndarray
    delay: np.ndarray
    outcome: np.ndarray
    node: np.ndarray
    set: np.ndarray

    @property
    def finished(self) -> np.ndarray:
        return self.sent + self.delay

    def chosen(self, keep: np.ndarray) -> "Writes":
        return Writes(self.sent[keep], self.delay[keep], self.outcome[keep], self.node[keep], self.set[keep])


@dataclass(frozen=True)
class TableChange:
    """A set's new state: `node`, or `>node` while it leaves."""

    t: float
    set: str
    state: str


@dataclass
class Policy:
    meta: dict[str, Any]
    requests: Requests
    nodes: list[dict[str, Any]]
    # None where no write named an object set; the table is empty without dispatchers that follow one.
    writes: Writes | None = None
    table: list[TableChange] = field(default_factory=list)


def amount(value: Any) -> bool:
    """A number of at least 0; json also reads NaN and Infinity, which the comparisons keep out."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1e15


def count(value: Any) -> bool:
    return amount(value) and isinstance(value, int)


def text(value: Any) -> bool:
    return isinstance(value, str)


def folder_names(value: Any) -> bool:
    def good(name: Any) -> bool:
        return text(name) and name not in ("", ".", "..") and not set(name) & set("/\\\0")

    return isinstance(value, list) and bool(value) and all(map(good, value)) and len(set(value)) == len(value)


@dataclass(frozen=True)
class Kind:
    holds: Callable[[Any], bool]
    words: str

    def or_null(self) -> "Kind":
        return Kind(lambda value: value is None or self.holds(value), f"{self.words} or null")


TEXT = Kind(text, "text")
COUNT = Kind(count, "a whole number of at least 0")
AMOUNT = Kind(amount, "a number of at least 0")
POSITIVE = Kind(lambda value: amount(value) and value > 0, "a number above 0")
TIME = Kind(lambda value: amount(value) and value <= MAX_S, f"seconds within 0..{MAX_S}")
FLAG = Kind(lambda value: isinstance(value, bool), "true or false")
NAMES = Kind(folder_names, "a list of at least one name, each once and fit for a folder")
SETTINGS = Kind(
    lambda value: isinstance(value, dict) and all(text(v) or amount(v) for v in value.values()),
    "an object of texts and numbers of at least 0",
)
CAPACITIES = Kind(
    lambda value: isinstance(value, dict) and bool(value) and all(map(amount, value.values())),
    "an object of at least one node, each with a number of at least 0",
)

RUN = {
    **{"scenario": TEXT, "sla_seconds": POSITIVE, "seed": COUNT, "quick": FLAG, "clients": COUNT},
    **{"nodes": COUNT, "proxies": COUNT, "database": TEXT},
    **{"started": TEXT, "command": TEXT, "policies": NAMES},
}
MACHINE = {
    "cpu": TEXT,
    "cores": COUNT,
    "memory": TEXT,
    "kernel": TEXT,
    "haproxy": TEXT,
    "envoy": TEXT,
    "k6": TEXT,
}
META = {
    **{"policy": TEXT, "proxy": TEXT, "event_s": TIME.or_null(), "event": TEXT.or_null()},
    "calm_s": TIME.or_null(),
    "killed": Kind(lambda value: isinstance(value, list) and all(map(text, value)), "a list of texts"),
    "killed_s": TIME.or_null(),
    "dead_s": TIME.or_null(),
    "back_s": TIME.or_null(),
    **{"measured_from_s": TIME, "measured_to_s": TIME, "node_capacity_items_per_s": CAPACITIES},
    **{"proxy_cpu_share": AMOUNT, "settings": SETTINGS},
}
PLACEMENT = {"period_s": POSITIVE.or_null(), "claims": COUNT, "violations": COUNT}
GENERATOR = {"cpu_share": AMOUNT, "lag_p99_s": AMOUNT}
# Keys of runs on real applications.
CAPACITY = {"how": TEXT, "start_per_s": CAPACITIES, "end_per_s": CAPACITIES}
PHASE = {"from_s": TIME, "to_s": TIME, "load": POSITIVE, "offered_per_s": POSITIVE}


def check(path: Path, value: Any, kinds: dict[str, Kind], where: str = "") -> None:
    if not isinstance(value, dict):
        raise RecordError(f"{path}: {where or 'the file'}: expected an object")
    for key, kind in kinds.items():
        name = f"{where}.{key}" if where else key
        if key not in value:
            raise RecordError(f"{path}: key '{name}' is missing")
        if not kind.holds(value[key]):
            raise RecordError(f"{path}: {name} is {json.dumps(value[key])}, expected {kind.words}")


def load_json(path: Path, kinds: dict[str, Kind], nested: dict[str, dict[str, Kind]]) -> dict[str, Any]:
    """`nested` has the kinds of what is in an object below the top."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise RecordError(f"{path}:{error.lineno}: {error.msg}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"{path}: damaged: {error}") from error
    check(path, value, kinds)
    for key, inner in nested.items():
        if key not in value:
            raise RecordError(f"{path}: key '{key}' is missing")
        check(path, value[key], inner, key)
    return value


def rows(path: Path, columns: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields (line number, row)."""
    opener = gzip.open if path.suffix == ".gz" else open
    line = 0
    try:
        with opener(path, "rt", newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            for row in reader:
                line = reader.line_num
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
    if not amount(value):
        raise RecordError(f"{where}: {name} is '{text}', expected a number of at least 0")
    return value


def load_requests(path: Path) -> Requests:
    sent, delay, items, query, important, outcome, node, age = [], [], [], [], [], [], [], []
    for line, row in rows(path, REQUEST_COLUMNS):
        where = f"{path}:{line}"
        if row[3] not in CLASSES:
            raise RecordError(f"{where}: class is '{row[3]}', expected query, important or transaction")
        if row[4] not in OUTCOMES:
            raise RecordError(f"{where}: outcome is '{row[4]}', expected ok, refused, error or timeout")
        sent.append(number(row[0], where, "t_s"))
        delay.append(number(row[1], where, "delay_s"))
        items.append(number(row[5], where, "items"))
        query.append(row[3] != "transaction")
        important.append(row[3] == "important")
        outcome.append(row[4])
        node.append(row[6])
        age.append(number(row[7], where, "age_s") if row[7] else math.nan)
    return Requests(
        np.array(sent, float),
        np.array(delay, float),
        np.array(items, float),
        np.array(query, bool),
        np.array(important, bool),
        np.array(outcome, "U8"),
        np.array(node, dtype=str),
        np.array(age, float),
    )


def load_nodes(path: Path, known: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for line, row in rows(path, NODE_COLUMNS):
        entry: dict[str, Any] = dict(zip(NODE_COLUMNS, row, strict=True))
        if entry["node"] not in known:
            raise RecordError(f"{path}:{line}: node is '{entry['node']}', which meta.json does not have")
        for name in NODE_COLUMNS:
            if name not in ("node", "reason"):
                field = entry[name]
                entry[name] = number(field, f"{path}:{line}", name) if field else None
        if entry["t_s"] is None:
            raise RecordError(f"{path}:{line}: t_s must not be empty")
        found.append(entry)
    return found


def load_writes(path: Path) -> Writes:
    columns: dict[str, list[Any]] = {name: [] for name in WRITE_COLUMNS}
    for line, row in rows(path, WRITE_COLUMNS):
        where = f"{path}:{line}"
        if row[2] not in OUTCOMES:
            raise RecordError(f"{where}: outcome is '{row[2]}', expected ok, refused or error")
        if not row[4]:
            raise RecordError(f"{where}: set must not be empty")
        found = [number(row[0], where, "t_s"), number(row[1], where, "delay_s"), *row[2:]]
        for values, value in zip(columns.values(), found, strict=True):
            values.append(value)
    kinds = (float, float, "U8", str, str)
    return Writes(*(np.array(v, dtype=k) for v, k in zip(columns.values(), kinds, strict=True)))


def load_table(path: Path) -> list[TableChange]:
    found: list[TableChange] = []
    for line, (t, version, name, state) in rows(path, TABLE_COLUMNS):
        where = f"{path}:{line}"
        number(version, where, "version")
        if not name or not state:
            raise RecordError(f"{where}: set and state must not be empty")
        found.append(TableChange(number(t, where, "t_s"), name, state))
        if len(found) > 1 and found[-1].t < found[-2].t:
            raise RecordError(f"{where}: t_s is {t}, before the line above")
    return found


def load_policy(folder: Path) -> Policy:
    path = folder / "meta.json"
    meta = load_json(path, META, {"generator": GENERATOR})
    if meta["policy"] != folder.name:
        raise RecordError(f"{path}: policy is {json.dumps(meta['policy'])}, expected that of the folder")
    begin, end, event = meta["measured_from_s"], meta["measured_to_s"], meta["event_s"]
    if math.floor(end) <= math.ceil(begin):
        raise RecordError(f"{path}: no whole second between measured_from_s and measured_to_s")
    if event is not None and not begin <= event < end:
        raise RecordError(f"{path}: event_s is {event}, expected a time between measured_from_s and -_to_s")
    if "phases" in meta:
        check_phases(path, meta)
    nodes = load_nodes(folder / "nodes.csv", meta["node_capacity_items_per_s"])
    policy = Policy(meta, load_requests(folder / "requests.csv.gz"), nodes)
    if meta.get("placement") is not None:
        check(path, meta["placement"], PLACEMENT, "placement")
        policy.writes = load_writes(folder / "writes.csv.gz")
        # Only where something has a period is there a table.
        if meta["placement"]["period_s"] is not None:
            policy.table = load_table(folder / "placement.csv")
    return policy


def check_phases(path: Path, meta: dict[str, Any]) -> None:
    check(path, meta, {"app": TEXT, "group": TEXT.or_null()})
    if not isinstance(meta["phases"], list) or not meta["phases"]:
        raise RecordError(
            f"{path}: phases is {json.dumps(meta['phases'])}, expected a list of at least one phase"
        )
    for number, phase in enumerate(meta["phases"]):
        check(path, phase, PHASE, f"phases[{number}]")
        if phase["from_s"] >= phase["to_s"]:
            raise RecordError(f"{path}: phases[{number}] ends at {phase['to_s']}, before it begins")


def load_run(directory: Path) -> tuple[dict[str, Any], list[Policy]]:
    path = directory / "run.json"
    run = load_json(path, RUN, {"machine": MACHINE})
    if "app" in run:
        check(path, run, {"app": TEXT})
        check(path, run.get("capacity"), CAPACITY, "capacity")
    policies = [load_policy(directory / name) for name in run["policies"]]
    if len({len(policy.meta.get("phases", [])) for policy in policies}) > 1:
        raise RecordError(f"{path}: policies differ in their phases")
    return run, policies
