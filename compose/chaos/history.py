"""What happened: written as JSON lines while it does, and read as one history."""

import json
import math
import sqlite3
import threading
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CLIENTS, EVENTS, ROWS = "clients.jsonl", "events.jsonl", "rows.json"


class Writer:
    """Appends lines; threads may share it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._file.close()

    def write(self, **line: Any) -> None:
        with self._lock:
            self._file.write(json.dumps(line) + "\n")


@dataclass(frozen=True)
class Attempt:
    """A client's request to a proxy; an operation may take several."""

    operation: int
    request: str
    kind: str
    proxy: str
    begin: float
    end: float
    # None: there was no answer.
    status: int | None
    reason: str = ""
    # Nothing was sent: the proxy was not reached.
    unsent: bool = False
    set: str = ""
    account: int = -1
    symbol: str = ""
    sequence: int | None = None


@dataclass(frozen=True)
class Visit:
    """A request in a node, until the node is through with it or dies; writes have a set and a token."""

    node: str
    kind: str
    request: str
    begin: float
    end: float
    items: int
    set: str = ""
    fence: str = ""


@dataclass(frozen=True)
class Refusal:
    """A write that a node did not run: `late` by its token, or a `violation`: another node had the set."""

    node: str
    request: str
    at: float
    why: str
    set: str = ""
    fence: str = ""


@dataclass(frozen=True)
class Row:
    """An order in a node's database."""

    sequence: int
    account: int
    symbol: str


@dataclass
class History:
    attempts: list[Attempt] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    # By node.
    rows: dict[str, list[Row]] = field(default_factory=dict)


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def visits_of(lines: list[dict[str, Any]], deaths: list[float]) -> tuple[list[Visit], list[Refusal]]:
    """Of one node's journal. What was there when the node died ended then."""
    open_: dict[int, dict[str, Any]] = {}
    visits, refusals = [], []

    def close(begun: dict[str, Any], end: float) -> None:
        known = {key: begun[key] for key in ("set", "fence") if key in begun}
        kind = {"query": "query", "transaction": "write"}[begun["class"]]
        request = begun.get("request", "")
        visits.append(Visit(begun["node"], kind, request, begun["at"], end, begun["items"], **known))

    for line in lines:
        if line["event"] == "start":
            died = max((at for at in deaths if at <= line["at"]), default=line["at"])
            for begun in open_.values():
                close(begun, max(died, begun["at"]))
            open_.clear()
        elif line["event"] == "begin":
            open_[line["number"]] = line
        elif line["event"] == "end":
            close(open_.pop(line["number"]), line["at"])
        else:
            known = {key: line[key] for key in ("set", "fence") if key in line}
            refusals.append(Refusal(line["node"], line.get("request", ""), line["at"], line["why"], **known))
    for begun in open_.values():
        close(begun, math.inf)
    return visits, refusals


def rows_of(database: Path) -> list[Row]:
    with sqlite3.connect(database) as store:
        found = store.execute(
            "SELECT orders.id, account_id, symbol FROM orders "
            "JOIN stocks ON stocks.id = stock_id ORDER BY orders.id"
        )
        rows = [Row(*row) for row in found]
    store.close()
    return rows


def keep_rows(directory: Path, databases: dict[str, Path]) -> None:
    """With the files of a run, which then are all of its history."""
    rows = {name: [asdict(row) for row in rows_of(path)] for name, path in databases.items()}
    (directory / ROWS).write_text(json.dumps(rows))


def read(directory: Path) -> History:
    """Of a run's files: clients, events, a journal a node, and what is in the databases."""
    events = read_lines(directory / EVENTS)
    deaths: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event["event"] == "died":
            deaths[event["program"]].append(event["at"])
    history = History([Attempt(**line) for line in read_lines(directory / CLIENTS)], events=events)
    for journal in sorted(directory.glob("node*.jsonl")):
        visits, refusals = visits_of(read_lines(journal), deaths[journal.stem])
        history.visits += visits
        history.refusals += refusals
    kept = json.loads((directory / ROWS).read_text())
    history.rows = {name: [Row(**row) for row in rows] for name, rows in kept.items()}
    return history
