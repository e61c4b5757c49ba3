"""Asks, and takes an answer's time to pieces."""

import http.client
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from compose.lab.errors import LabError
from compose.lab.processes import Processes, wait_until
from compose.scatter.databases import Databases, Mode, Ran
from compose.scatter.nodes import DEADLINE, Nodes
from compose.scatter.partitionings import QUERY, SQL, Partitioning

LOG_SECONDS = 5
CLIENT_TRIES = 9


@dataclass(frozen=True)
class Answer:
    """One query, in seconds; the parts of section 4.1 add up to the total."""

    mode: str
    partitioning: str
    distance: float
    rows: int
    bytes: int
    total: float
    # A request that asks nothing, there and back.
    client: float
    # Until the first database begins.
    dissemination: float
    # From then to the end of the last one.
    databases: float
    # From then until the client has all.
    aggregation: float
    # Each database's own time.
    queries: dict[str, float]

    @property
    def query(self) -> float:
        """The slowest database's: what the others' answers wait for."""
        return max(self.queries.values())


def record(answer: Answer) -> dict:
    return {**asdict(answer), "query": answer.query}


class Client:
    """One connection to the aggregator."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90)

    def nothing(self) -> float:
        """Seconds of a request that asks nothing, in the median of some."""
        times = []
        for _ in range(CLIENT_TRIES):
            begin = time.perf_counter()
            self._connection.request("GET", "/healthz")
            self._connection.getresponse().read()
            times.append(time.perf_counter() - begin)
        return sorted(times)[len(times) // 2]

    def ask(self, partitioning: Partitioning, distance: float) -> tuple[float, float, int, int]:
        """When it was sent and all was there, since the epoch; rows and bytes."""
        question = {
            "query": QUERY,
            "parameters": [distance],
            "partitions": partitioning.databases,
            "order_by": [{"column": "sim", "descending": True}],
            "deadline_seconds": float(DEADLINE.removesuffix("s")),
        }
        sent = time.time()
        self._connection.request("POST", "/v1/gather", json.dumps(question))
        response = self._connection.getresponse()
        body = response.read()
        done = time.time()
        last = body.rstrip(b"\n").rpartition(b"\n")[2]
        end = json.loads(last).get("end") if response.status == 200 else None
        if not end or not end["complete"]:
            raise LabError(f"{partitioning.name}, R {distance}: {last[-500:].decode(errors='replace')}")
        return sent, done, end["rows"], len(body)


def answered(
    client: Client, databases: Databases, mode: Mode, partitioning: Partitioning, distance: float
) -> Answer:
    nothing = client.nothing()
    databases.ran()
    sent, done, rows, size = client.ask(partitioning, distance)
    ran: dict[str, Ran] = {}

    def logged() -> bool:
        ran.update({one.database: one for one in databases.ran()})
        return set(partitioning.databases) <= set(ran)

    wait_until("PostgreSQL's log", logged, LOG_SECONDS, lambda: None)
    mine = [ran[name] for name in partitioning.databases]
    first, last = min(one.start for one in mine), max(one.end for one in mine)
    # The log has milliseconds.
    first = min(max(first, sent), done)
    last = min(max(last, first), done)
    # Half of it each way, and no more than there was.
    nothing = 2 * min(nothing / 2, first - sent, done - last)
    return Answer(
        mode=mode.name,
        partitioning=partitioning.name,
        distance=distance,
        rows=rows,
        bytes=size,
        total=done - sent,
        client=nothing,
        dissemination=first - sent - nothing / 2,
        databases=last - first,
        aggregation=done - last - nothing / 2,
        queries={one.database: one.seconds for one in mine},
    )


@dataclass(frozen=True)
class Plan:
    """Queries in order: every partitioning and distance, repeated in turns."""

    partitionings: tuple[Partitioning, ...]
    distances: tuple[float, ...]
    repeats: int
    # Rows that the answer must have, by distance.
    wanted: dict[float, int]


def run_mode(
    mode: Mode, plan: Plan, databases: Databases, nodes: Nodes, where: tuple[Path, Path], say: Callable
) -> tuple[list[Answer], dict[str, dict[float, int]]]:
    """All answers under one mode, and how many pages a query read in each partitioning."""
    run, log = where
    found: list[Answer] = []
    with Processes({"postgres": databases.measured(mode), **nodes.programs}, run, log) as processes:
        databases.wait(processes)
        nodes.wait(processes)
        client = Client(nodes.gather)
        order = list(plan.partitionings)
        for repeat in range(-1, plan.repeats):
            say(f"{mode.name}: {'warm-up' if repeat < 0 else f'repeat {repeat + 1} of {plan.repeats}'}")
            for distance in plan.distances:
                for partitioning in order:
                    answer = answered(client, databases, mode, partitioning, distance)
                    if answer.rows != plan.wanted[distance]:
                        raise LabError(
                            f"{partitioning.name}, R {distance}: {answer.rows} rows, "
                            f"must be {plan.wanted[distance]}"
                        )
                    if repeat >= 0:
                        found.append(answer)
                # None is always the one after another.
                order.append(order.pop(0))
            processes.check()
        return found, pages(databases, plan)


def pages(databases: Databases, plan: Plan) -> dict[str, dict[float, int]]:
    """Pages that one query reads in all databases together, by partitioning and distance."""

    def read(partitioning: Partitioning, distance: float) -> int:
        query = SQL.replace("$1", str(distance))
        return sum(databases.pages(name, query) for name in partitioning.databases)

    return {
        one.name: {distance: read(one, distance) for distance in plan.distances} for one in plan.partitionings
    }
