"""The ring's arithmetic once more, to compare Redis with; checked itself against agent/core/vectors."""

import json
import math

from tests.harness import ROOT
from tests.harness.functions import NOBODY

VECTORS = ROOT / "agent" / "core" / "vectors"


def cases(name: str) -> list[dict]:
    return json.loads((VECTORS / name).read_text())["cases"]


def expand(runs: list[int]) -> bytes:
    pairs = zip(runs[::2], runs[1::2], strict=True)
    return b"".join(bytes([owner]) * count for owner, count in pairs)


def weights(capacities: list[float | None]) -> list[float]:
    """Bounds for `sizes` of nodes that can carry so much; None: nobody knows."""
    known = [capacity for capacity in capacities if capacity is not None]
    # `sum` would compensate for rounding, which the others do not.
    total = 0.0
    for capacity in known:
        total += capacity
    mean = total / len(known) if known else 1.0
    return [mean if capacity is None else capacity for capacity in capacities]


def sizes(bounds: list[float], slots: int) -> list[int]:
    largest = max(bounds, default=0)
    if largest <= 0:
        return [0] * len(bounds)
    total = 0.0
    for bound in bounds:
        total += bound / largest
    quotas = [bound / largest / total * slots for bound in bounds]
    found = [math.floor(quota) for quota in quotas]
    live = [i for i, bound in enumerate(bounds) if bound > 0]
    live.sort(key=lambda i: (-(quotas[i] - math.floor(quotas[i])), i))
    for turn in range(slots - sum(found)):
        found[live[turn % len(live)]] += 1
    for i in live:
        if found[i] == 0:
            found[found.index(max(found))] -= 1
            found[i] = 1
    return found


def change(owners: bytes, wanted: list[int]) -> bytes:
    held = [owners.count(i) for i in range(NOBODY)]
    result = bytearray(owners)
    want = wanted + [0] * (NOBODY - len(wanted))
    gainer = 0
    for slot, owner in enumerate(owners):
        if owner != NOBODY and held[owner] <= want[owner]:
            continue
        while gainer < len(wanted) and held[gainer] >= want[gainer]:
            gainer += 1
        to = gainer if gainer < len(wanted) else NOBODY
        if to == owner:
            continue
        if owner != NOBODY:
            held[owner] -= 1
        if to != NOBODY:
            held[to] += 1
        result[slot] = to
    return bytes(result)
