"""Measurements of the load generator: k6's console output, line by line, and each request's due time."""

import gzip
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from compose.applab.capacity import MEAN_MS
from compose.applab.scenario import SLA_S, Step
from compose.lab.collector import HEADER
from compose.lab.errors import LabError

FIELDS = 8


def due(steps: tuple[Step, ...], rates: list[float]) -> list[float]:
    """When each request is to be sent: the n-th as soon as the rates add up to n."""
    times, begin, count = [], 0.0, 0.0
    for step, rate in zip(steps, rates, strict=True):
        end = count + rate * step.seconds
        times += [begin + (n - count) / rate for n in range(int(count) + 1, int(end) + 1)]
        begin, count = begin + step.seconds, end
    return times


class Record(NamedTuple):
    """One request: when it was sent, in seconds since the clients started, and what became of it."""

    number: int
    sent: float
    delay: float
    status: str
    outcome: str
    items: float
    node: str
    # Of the highest class, where requests have one.
    important: bool = False

    @property
    def is_timely(self) -> bool:
        return self.outcome == "ok" and self.delay <= SLA_S

    def row(self) -> str:
        """What follows the time in requests.csv.gz."""
        kind = "important" if self.important else "query"
        return f"{self.delay:.4f},{self.status},{kind},{self.outcome},{self.items:.4f},{self.node},"


class Arrivals:
    """Reads along while k6 writes, makes requests.csv.gz, and counts for the progress display."""

    def __init__(self, console: Path, names: dict[str, str]) -> None:
        self._console, self._names = console, names
        self._file = None
        self._rest = ""
        self.start_unix: float | None = None
        self.counts: Counter[str] = Counter()
        self.unit = "requests"
        self._timely: Counter[int] = Counter()
        self.records: list[Record] = []

    def now(self) -> float:
        """Seconds since the clients started; 0 before."""
        return 0.0 if self.start_unix is None else time.time() - self.start_unix

    def poll(self) -> None:
        """Takes in what k6 wrote since."""
        if self._file is None:
            if not self._console.exists():
                return
            self._file = self._console.open()
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        for line in lines:
            self._take(line)

    def _take(self, line: str) -> None:
        words = line.split(",")
        if words[0] == "start":
            self.start_unix = float(words[1]) / 1000
            return
        if len(words) != FIELDS:
            raise LabError(f"{self._console}: {line!r} is no record")
        number, sent, delay = int(words[0]), float(words[1]) / 1000, float(words[2]) / 1000
        # An item is the work of a mean request.
        items, node = float(words[5]) / MEAN_MS, self._names.get(words[6], words[6])
        record = Record(number, sent, delay, words[3], words[4], items, node, words[7] == "1")
        # As the display has it: who gave up was failed.
        self.counts["error" if record.outcome == "timeout" else record.outcome] += 1
        if record.is_timely:
            self._timely[int(sent)] += 1
        self.records.append(record)

    def timely(self, begin: float, end: float) -> float:
        """Requests sent within whole seconds that were answered in time, a second."""
        first, last = max(0, int(begin)), int(end)
        return sum(self._timely[second] for second in range(first, last)) / max(1, last - first)

    def finish(self, path: Path, due_at: list[float]) -> list[float]:
        """Writes the records, from when the first were due on; returns how late each was, sorted."""
        self.poll()
        if self._file is not None:
            self._file.close()
        late = [one.sent - due_at[one.number] for one in self.records if one.number < len(due_at)]
        # k6 starts its clock before it has made its clients.
        started = min(late, default=0.0)
        with gzip.open(path, "wt", compresslevel=3) as file:
            file.write(HEADER)
            file.writelines(
                f"{max(0.0, one.sent - started):.4f},{one.row()}\n" for one in sorted(self.records)
            )
        return sorted(value - started for value in late)
