"""What the demo draws: two policies side by side, second by second, as lines of at most 80 columns."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from compose.applab.arrivals import Record
from compose.applab.scenario import PATIENCE_S, SLA_S, Step

WIDTH = 80
# Of the words left of a chart.
MARGIN = 30
HEIGHT = 3
LEVELS = " ▁▂▃▄▅▆▇█"
GREEN, RED, BOLD, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[1m", "\x1b[0m"
WHERE_NEXT = (
    "Where to go next:",
    "  docs/haproxy.md    put it in front of your service, watching alone at first",
    "  plimsoll adopt     shows what changes in the haproxy.cfg that you have",
    "  make lab           every policy on the same work, with a report",
)


@dataclass(frozen=True)
class Figures:
    """What became of some requests; `p95_s` is of those that were not refused, None if there are none."""

    timely: int
    refused: int
    gave_up: int
    all: int
    p95_s: float | None

    @property
    def is_late(self) -> bool:
        return self.p95_s is not None and self.p95_s > SLA_S

    @property
    def p95(self) -> str:
        return "-" if self.p95_s is None else f"{self.p95_s:.2f}"


NOTHING = Figures(0, 0, 0, 0, None)


@dataclass(frozen=True)
class Show:
    """What both sides go through; `capacity` and the rates of the steps are in requests/s of one side."""

    steps: tuple[Step, ...]
    rates: tuple[float, ...]
    capacity: float

    @property
    def duration(self) -> int:
        return math.ceil(sum(step.seconds for step in self.steps))

    def phase(self, now: float) -> int:
        """The step at that second."""
        end = 0.0
        for number, step in enumerate(self.steps):
            end += step.seconds
            if now < end:
                return number
        return len(self.steps) - 1


def figures(records: Sequence[Record]) -> Figures:
    delays = sorted(one.delay for one in records if one.outcome in ("ok", "timeout"))
    return Figures(
        timely=sum(one.is_timely for one in records),
        refused=sum(one.outcome == "refused" for one in records),
        gave_up=sum(one.outcome == "timeout" for one in records),
        all=len(records),
        p95_s=delays[math.ceil(0.95 * len(delays)) - 1] if delays else None,
    )


def by_second(records: Sequence[Record], seconds: int) -> list[Figures]:
    """The requests that ended in each of the first seconds."""
    ended: list[list[Record]] = [[] for _ in range(seconds)]
    for one in records:
        if (second := int(one.sent + one.delay)) < seconds:
            ended[second].append(one)
    return [figures(some) for some in ended]


def by_step(records: Sequence[Record], steps: Sequence[Step]) -> list[Figures]:
    """The requests that were sent in each step."""
    found, begin = [], 0.0
    for step in steps:
        end = begin + step.seconds
        found.append(figures([one for one in records if begin <= one.sent < end]))
        begin = end
    return found


def times(load: float) -> str:
    return "half the capacity" if load == 0.5 else f"{load:g} times the capacity"


def bars(values: Sequence[float], top: float) -> list[str]:
    """A column a value, `HEIGHT` lines high at `top`; what is above zero is seen."""
    eighths = 8 * HEIGHT
    heights = [min(eighths, max(value > 0, round(value / top * eighths))) for value in values]
    return [
        "".join(LEVELS[min(8, max(0, height - 8 * line))] for height in heights)
        for line in reversed(range(HEIGHT))
    ]


def painted(line: str, late: Sequence[bool], colours: bool) -> str:
    """Red where the SLA was broken, green where it was held."""
    if not colours:
        return line.rstrip()
    found, last = "", ""
    for character, is_late in zip(line, late, strict=True):
        colour = RED if is_late else GREEN
        found += (colour if colour != last else "") + character
        last = colour
    return found + (PLAIN if last else "")


def chart(words: Sequence[str], values: Sequence[float], top: float, late: list[bool], colours: bool):
    lines = zip(words, bars(values, top), strict=True)
    return [f"{word:<{MARGIN}}{painted(line, late, colours)}".rstrip() for word, line in lines]


def axis(show: Show) -> str:
    """The steps below the charts, a column a second."""
    return " " * MARGIN + "".join(
        f"└{step.load:g}x".ljust(round(step.seconds), "─")[: round(step.seconds)] for step in show.steps
    )


def picture(show: Show, sides: dict[str, list[Figures]], colours: bool) -> list[str]:
    """The screen after as many seconds as the sides have figures of."""
    now = min(map(len, sides.values()))
    phase = show.phase(max(0, now - 1))
    load, rate = show.steps[phase].load, show.rates[phase]
    heading = f"{now:3} of {show.duration} s: {rate:.0f} requests/s to either side, {times(load)}"
    lines = [
        f"The same requests to two equal sets of nodes; 95 % are to end within {SLA_S:g} s.",
        f"{BOLD}{heading}{PLAIN}" if colours else heading,
        "",
    ]
    for name, seconds in sides.items():
        last = seconds[now - 1] if now else NOTHING
        words = [
            name,
            f"{last.timely:5} timely requests/s",
            f"{last.refused:5} refused, {last.gave_up} gave up",
        ]
        late = [one.is_late for one in seconds[:now]]
        lines += chart(words, [one.timely for one in seconds[:now]], 1.2 * show.capacity, late, colours)
    lines += [axis(show), f"p95 of the delay, up to the {PATIENCE_S:g} s after which clients give up"]
    for name, seconds in sides.items():
        last = seconds[now - 1] if now else NOTHING
        late = [one.is_late for one in seconds[:now]]
        delays = [one.p95_s or 0.0 for one in seconds[:now]]
        lines += chart([name, f"{last.p95:>5} s", ""], delays, PATIENCE_S, late, colours)
    return [*lines, axis(show)]


def line(show: Show, sides: dict[str, list[Figures]], second: int) -> str:
    """What one second was like, where there is no terminal to draw on."""
    told = [
        f"{name} {one.timely:3} timely p95 {one.p95} s"
        for name, one in ((name, seconds[second]) for name, seconds in sides.items())
    ]
    return f"{second + 1:2} s {show.steps[show.phase(second)].load:g}x ".ljust(10) + "; ".join(told)


def summary(show: Show, sides: dict[str, list[Figures]]) -> list[str]:
    """A line for each step after the first; `sides` are by step."""
    names = " → ".join(sides)
    lines = [f"{names}, of {show.capacity:.0f} requests/s that the nodes can do:"]
    for number, step in enumerate(show.steps[1:], 1):
        of = [steps[number] for steps in sides.values()]
        timely = " → ".join(f"{one.timely / step.seconds:.0f}" for one in of)
        p95 = " → ".join(one.p95 for one in of)
        refused = " → ".join(f"{100 * one.refused / max(1, one.all):.0f}" for one in of)
        when = "at" if number == 1 else "then at"
        lines.append(f"{when} {step.load:g}x: {timely} timely requests/s, p95 {p95} s, refused {refused} %")
    return lines
