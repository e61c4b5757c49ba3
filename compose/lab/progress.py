"""Progress of a run on the terminal."""

import math
import sys
from collections.abc import Iterable, Mapping

from compose.lab.collector import Collector
from compose.lab.timeline import Times


def length(runs: int, seconds: float, around_s: float, once_s: float = 0.0) -> str:
    """How long runs of so many seconds take; `around_s` is what each needs to start and to stop, `once_s`
    what all need together."""
    minutes = math.ceil((runs * (seconds + around_s) + once_s) / 60)
    each = "each " if runs > 1 else ""
    once = f", and {once_s:g} s for all" if once_s else ""
    return (
        f"{runs} run{'s' * (runs > 1)} of {seconds:g} s, about {around_s:g} s {each}to start and stop{once}: "
        f"about {minutes} min"
    )


class Progress:
    """One line that is redrawn on a terminal; a line every ten seconds elsewhere."""

    def __init__(self, policies: Iterable[str]) -> None:
        self._width = max(map(len, policies))
        self._terminal = sys.stderr.isatty()
        self._every = 1 if self._terminal else 10
        self._last = -1

    def _write(self, policy: str, text: str, keep: bool) -> None:
        start, end = ("\r\x1b[2K", "\n" if keep else "") if self._terminal else ("", "\n")
        print(f"{start}{policy:<{self._width}} {text}", end=end, file=sys.stderr, flush=True)

    def say(self, policy: str, text: str) -> None:
        self._last = -1
        self._write(policy, text, keep=False)

    def update(self, policy: str, now: float, times: Times, collector: Collector) -> None:
        if int(now) // self._every == self._last:
            return
        self._last = int(now) // self._every
        # The last second is still coming in.
        end = min(now - 1, times.duration)
        rate = collector.timely(times.warmup, end) if end > times.warmup else 0.0
        phase = (
            "warm-up"
            if now < times.warmup
            else "after the event"
            if now >= times.event
            else "before the event"
        )
        self._write(
            policy,
            f"{now:4.0f} of {times.duration:.0f} s  {rate:8,.0f} timely {collector.unit}/s  {phase}",
            False,
        )

    def done(self, policy: str, timely: float, collector: Collector, generator: Mapping[str, float]) -> None:
        ok, refused, failed = (collector.counts.get(outcome, 0) for outcome in ("ok", "refused", "error"))
        self._write(
            policy,
            f"{timely:8,.0f} timely {collector.unit}/s; {ok} ok, {refused} refused, {failed} errors; "
            f"k6 {generator['cpu_share']:.2f} core, lag p99 {generator['lag_p99_s'] * 1000:.0f} ms",
            keep=True,
        )
