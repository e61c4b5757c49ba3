"""Who has a lease in the ring's keys, by what docs/redis.md says of time."""

from dataclasses import dataclass


@dataclass
class Lease:
    instance: str
    length_ms: int
    # Of it, when the round began, or when it was renewed in this round.
    left_ms: int
    renewed_at_ms: int

    def left_after(self, round_ms: int) -> int:
        """A round counts for no more than a third of it."""
        counted = min(round_ms, self.length_ms // 3) - self.renewed_at_ms
        return self.left_ms - max(0, counted)


class Leases:
    """Time goes by rounds: one ends when somebody calls who has called in it, or whom nobody knows.

    A clock that is set back passes no time.
    """

    def __init__(self) -> None:
        self.of: dict[tuple[str, str], Lease] = {}
        self._called: set[tuple[str, str]] = set()
        self._round_ms = 0
        self._seen_ms: int | None = None

    def called(self, who: tuple[str, str], instance: str, now_ms: int) -> None:
        """Somebody calls: a kind and a name, and its instance."""
        if self._seen_ms is not None:
            self._round_ms += max(0, now_ms - self._seen_ms)
        self._seen_ms = now_ms
        known = self.of.get(who)
        if known is None or known.instance != instance or who in self._called:
            for lease in self.of.values():
                if (left := lease.left_after(self._round_ms)) > 0:
                    lease.left_ms, lease.renewed_at_ms = left, 0
                else:
                    lease.left_ms = 0
            self._called, self._round_ms = set(), 0

    def renew(self, who: tuple[str, str], instance: str, length_ms: int) -> None:
        self.of[who] = Lease(instance, length_ms, length_ms, self._round_ms)
        self._called.add(who)

    def is_live(self, who: tuple[str, str]) -> bool:
        return self.of[who].left_after(self._round_ms) > 0

    def drop(self, kind: str) -> set[str]:
        """Forgets those of a kind whose lease is over; their names."""
        over = {who for who in self.of if who[0] == kind and not self.is_live(who)}
        for who in over:
            self.end(who)
        return {name for _, name in over}

    def end(self, who: tuple[str, str]) -> None:
        del self.of[who]
        self._called.discard(who)

    def names(self, kind: str) -> set[str]:
        return {name for its_kind, name in self.of if its_kind == kind}
