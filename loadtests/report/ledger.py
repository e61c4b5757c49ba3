"""Compares the acknowledgements to clients of scenario master-failover with the database."""

import bisect
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.report.criteria import Criterion

# Time beyond Patroni's ttl for a promotion, and for the proxies to learn of it.
RESUME_S = 2.0
# The same as a reader's own pause, several times.
GAP_S = 1.0


class LedgerError(Exception):
    """A line that no client writes."""


@dataclass(frozen=True)
class Request:
    """`sent` and `done` in seconds since 1970; `shown` is the beat that was read."""

    kind: str
    what: str
    sent: float
    done: float
    status: int
    node: str
    shown: int | None

    @property
    def is_well(self) -> bool:
        return self.status == 200


@dataclass(frozen=True)
class Events:
    """When a standby's replay was held up and went on; when the primary was killed, had ended, and was
    started again."""

    began: float
    paused: float
    resumed: float
    killed: float
    dead: float
    back: float
    ended: float
    standby: str
    primary: str


def load(path: Path) -> list[Request]:
    """Parses the output of loadtests/k6/ledger.js, to which k6 adds lines about failed requests."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split()
        if not words or words[0] not in ("write", "beat", "read"):
            continue
        try:
            kind, what, sent, done, status, node, shown = words
            read = None if shown == "-" else int(shown)
            found.append(Request(kind, what, int(sent) / 1e3, int(done) / 1e3, int(status), node, read))
        except ValueError as error:
            raise LedgerError(f"{path}:{number}: {line!r}: {error}") from error
    return sorted(found, key=lambda request: request.done)


def behind(requests: Iterable[Request]) -> list[tuple[Request, float]]:
    """Time for which each read's beat had been outdated when the request was sent; 0 for the newest beat.

    One client raises the beat, so a later one that was acknowledged has taken the earlier one's place."""
    every = list(requests)
    acknowledged = [(r.done, int(r.what)) for r in every if r.kind == "beat" and r.is_well]
    beats = [beat for _, beat in acknowledged]
    found = []
    for read in (r for r in every if r.kind == "read" and r.is_well):
        assert read.shown is not None
        after = bisect.bisect_right(beats, read.shown)
        late = read.sent - acknowledged[after][0] if after < len(acknowledged) else 0.0
        found.append((read, max(0.0, late)))
    return found


def figures(
    requests: list[Request], events: Events, entries: set[str], beat: int, max_lag: float
) -> dict[str, Any]:
    writes = [r for r in requests if r.kind != "read"]
    reads = [r for r in requests if r.kind == "read"]
    acknowledged = {r.what for r in writes if r.kind == "write" and r.is_well}
    beats = [int(r.what) for r in writes if r.kind == "beat" and r.is_well]
    resumed = [r.done for r in writes if r.is_well and r.sent > events.dead]
    well = sorted(r.done for r in reads if r.is_well)
    gaps = [b - a for a, b in itertools.pairwise([events.began, *well, events.ended])]
    failed = [r for r in reads if not r.is_well]
    # The dead program's requests in flight are lost with it.
    excused = [r for r in failed if r.sent <= events.dead and r.done >= events.killed]
    late = behind(requests)
    during = [at for read, at in late if events.paused <= read.sent < events.resumed]
    by_standby = [
        r.done
        for r in reads
        if r.is_well and r.node == events.standby and events.paused < r.sent < events.resumed
    ]
    again = [r.done for r in reads if r.is_well and r.node == events.standby and r.sent > events.resumed]
    deposed = [r for r in requests if r.node == events.primary and r.is_well]
    return {
        "writes_acknowledged": len(acknowledged) + len(beats),
        "writes_not_acknowledged": sum(not r.is_well for r in writes),
        "writes_lost": len(acknowledged - entries) + (1 if beats and max(beats) > beat else 0),
        "resumed_s": round(min(resumed) - events.killed, 3) if resumed else None,
        "reads": len(reads),
        "reads_failed": len(failed) - len(excused),
        "reads_failed_under_way": len(excused),
        "read_gap_s": round(max(gaps), 3),
        "behind_max_s": round(max((at for _, at in late), default=0.0), 3),
        "behind_while_paused_max_s": round(max(during, default=0.0), 3),
        "reads_too_far_behind": sum(at > max_lag for _, at in late),
        "stale_left_reads_s": round(max(by_standby) - events.paused, 3) if by_standby else None,
        "fresh_again_s": round(min(again) - events.resumed, 3) if again else None,
        "deposed_reads_s": round(min(back) - events.back, 3)
        if (back := [r.done for r in deposed if r.kind == "read" and r.sent > events.back])
        else None,
        "deposed_writes": sum(r.kind != "read" and r.sent > events.dead for r in deposed),
    }


def criteria(found: dict[str, Any], ttl: float, max_lag: float) -> list[Criterion]:
    return [
        Criterion("acknowledged writes that the database does not have", found["writes_lost"], 0, False),
        Criterion(
            "seconds from the primary's death to the first write acknowledged",
            found["resumed_s"],
            ttl + RESUME_S,
            False,
        ),
        Criterion(
            "reads that failed, but for those under way on the dead primary", found["reads_failed"], 0, False
        ),
        Criterion("seconds, the longest time without a read answered", found["read_gap_s"], GAP_S, False),
        Criterion(
            f"reads more than {max_lag:g} s behind what was acknowledged",
            found["reads_too_far_behind"],
            0,
            False,
        ),
        Criterion(
            "seconds that a standby whose replay stood still went on with reads",
            found["stale_left_reads_s"],
            max_lag,
            False,
        ),
        Criterion(
            "writes acknowledged by the deposed primary after its death", found["deposed_writes"], 0, False
        ),
    ]
