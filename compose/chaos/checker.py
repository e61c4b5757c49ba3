"""Whether a history keeps Plimsoll's promises. Pure: from a history to what is wrong with it."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from compose.chaos.history import Attempt, History, Row, Visit

ONE_PRIMARY = "no object set is written at two nodes at once"
NO_STALE_WRITE = "no object set is written at a former primary"
NONE_LOST = "no acknowledged write is lost"
NONE_TWICE = "no write is made twice"
REFUSED_UNMADE = "a refused write changes nothing"
ONE_HISTORY = "in the end all nodes have the same writes"
BOUNDS = "no node has more in hand than its bound"
RESUMED = "all object sets are written again after the last fault"
PROMISES = (ONE_PRIMARY, NO_STALE_WRITE, NONE_LOST, NONE_TWICE, REFUSED_UNMADE, ONE_HISTORY, BOUNDS, RESUMED)
# After the last fault, until each set is written again.
MAX_RESUME_SECONDS = 60.0
# Refusals of these reasons say that nothing has run; others may stand for a lost answer.
UNRUN_STATUSES = (400, 409, 503)


@dataclass(frozen=True)
class Violation:
    promise: str
    at: float
    text: str


@dataclass(frozen=True)
class Bounds:
    """What a node may have in hand of queries: its bound, and one request for each dispatcher beyond it."""

    items: int
    request_items: int
    dispatchers: int

    @property
    def most(self) -> int:
        return self.items + self.request_items * self.dispatchers


def check(history: History, bounds: Bounds, store: str) -> list[Violation]:
    found = [
        *two_primaries(history),
        *stale_writes(history, store),
        *lost_writes(history, store),
        *repeated_writes(history, store),
        *refused_and_made(history, store),
        *differing_copies(history, store),
        *bounds_exceeded(history, bounds),
        *not_resumed(history),
    ]
    return sorted(found, key=lambda violation: violation.at)


def writes(history: History) -> list[Visit]:
    return sorted((it for it in history.visits if it.kind == "write"), key=lambda visit: visit.begin)


def two_primaries(history: History) -> Iterator[Violation]:
    """No set is at work at two nodes at once; nor did a node have to refuse one for that."""
    by_set: dict[str, list[Visit]] = defaultdict(list)
    for visit in writes(history):
        for other in by_set[visit.set]:
            if other.node != visit.node and other.end > visit.begin:
                text = f"{visit.set} at {other.node} ({other.request}) and at {visit.node} ({visit.request})"
                yield Violation(ONE_PRIMARY, visit.begin, text)
        by_set[visit.set] = [it for it in by_set[visit.set] if it.end > visit.begin] + [visit]
    for refusal in history.refusals:
        if refusal.why == "violation":
            text = f"{refusal.set} reached {refusal.node} ({refusal.request}) while another was at work on it"
            yield Violation(ONE_PRIMARY, refusal.at, text)


def stale_writes(history: History, store: str) -> Iterator[Violation]:
    """Once a node has written a set by a table, no other node writes it by that one or an earlier one."""
    visits = {visit.request: visit for visit in writes(history)}
    attempts = _attempts_by_order(history)
    newest: dict[str, tuple[str, str]] = {}
    for row in history.rows[store]:
        attempt = attempts.get((row.account, row.symbol))
        visit = visits.get(attempt.request) if attempt else None
        if visit is None:
            continue
        node, fence = newest.get(visit.set, (visit.node, ""))
        if node != visit.node and visit.fence <= fence:
            text = (
                f"{visit.set} at {visit.node} by {visit.fence!r} ({visit.request}), after {node} by {fence!r}"
            )
            yield Violation(NO_STALE_WRITE, visit.begin, text)
        newest[visit.set] = (visit.node, max(fence, visit.fence))


def _attempts_by_order(history: History) -> dict[tuple[int, str], Attempt]:
    return {(it.account, it.symbol): it for it in history.attempts if it.kind == "write"}


def lost_writes(history: History, store: str) -> Iterator[Violation]:
    """What was acknowledged is in the store, as it was asked for and told."""
    made = {row.sequence: row for row in history.rows[store]}
    for it in history.attempts:
        if it.kind == "write" and it.status == 200:
            expected = Row(-1 if it.sequence is None else it.sequence, it.account, it.symbol)
            if made.get(expected.sequence) != expected:
                text = f"{it.request} of {it.set}, acknowledged as {it.sequence}, is not there"
                yield Violation(NONE_LOST, it.end, text)


def repeated_writes(history: History, store: str) -> Iterator[Violation]:
    attempts = _attempts_by_order(history)
    count = Counter((row.account, row.symbol) for row in history.rows[store])
    for order, times in count.items():
        attempt = attempts.get(order)
        if attempt and times > 1:
            yield Violation(NONE_TWICE, attempt.end, f"{attempt.request} was made {times} times")


def refused_and_made(history: History, store: str) -> Iterator[Violation]:
    """What was refused, or never sent, changed nothing."""
    made = {(row.account, row.symbol) for row in history.rows[store]}
    for it in history.attempts:
        is_refused = it.unsent or (it.status in UNRUN_STATUSES and it.reason)
        if it.kind == "write" and is_refused and (it.account, it.symbol) in made:
            text = f"{it.request}, refused with {it.status} {it.reason}, was made"
            yield Violation(REFUSED_UNMADE, it.end, text)


def differing_copies(history: History, store: str) -> Iterator[Violation]:
    """In the end every node has the store's orders."""
    for node, rows in history.rows.items():
        if rows != history.rows[store]:
            differing = len(set(rows) ^ set(history.rows[store]))
            yield Violation(ONE_HISTORY, math.inf, f"{node} differs in {differing} orders")


def bounds_exceeded(history: History, bounds: Bounds) -> Iterator[Violation]:
    """Once for each time that a node has more queries in hand than it may."""
    for node in sorted({visit.node for visit in history.visits}):
        exceeded = False
        for at, items in in_hand(history, node):
            if items > bounds.most and not exceeded:
                text = f"{node} has {items} items of queries, and may have {bounds.most}"
                yield Violation(BOUNDS, at, text)
            exceeded = items > bounds.most


def in_hand(history: History, node: str) -> list[tuple[float, int]]:
    """Items of queries at a node, from each change on."""
    changes = []
    for visit in history.visits:
        if visit.node == node and visit.kind == "query":
            changes += [(visit.begin, visit.items), (visit.end, -visit.items)]
    found, total = [], 0
    # What ends makes room for what begins at the same moment.
    for at, change in sorted(changes):
        total += change
        found.append((at, total))
    return found


def not_resumed(history: History) -> Iterator[Violation]:
    """Every set that was ever written is written again in time."""
    for healed in (event["at"] for event in history.events if event["event"] == "all healed"):
        made = [it for it in history.attempts if it.kind == "write" and it.status == 200]
        again = {it.set for it in made if healed <= it.begin and it.end <= healed + MAX_RESUME_SECONDS}
        missing = sorted({it.set for it in made} - again)
        if missing:
            text = f"{', '.join(missing)} not within {MAX_RESUME_SECONDS:g} s"
            yield Violation(RESUMED, healed + MAX_RESUME_SECONDS, text)
