"""Records the query results of a dashboard's panels from a Prometheus for a time span, in a file."""

import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import asdict, dataclass, field
from typing import Any, Self

Answer = list[dict[str, Any]]
Dashboard = dict[str, Any]

# Prometheus ends its own queries after two minutes.
TIMEOUT_SECONDS = 130
MAX_BYTES = 64 << 20
# As many points as Grafana asks for: about one a pixel of half the page.
POINTS = 600


class PreviewError(Exception):
    """Something the user can act on; printed without a traceback."""


@dataclass(frozen=True)
class Span:
    """A time shown, and how often Prometheus scraped then; all in seconds."""

    start: float
    end: float
    scrape: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.start) and math.isfinite(self.end) and self.start < self.end):
            raise PreviewError(f"no time to show between {self.start:g} and {self.end:g}")

    @property
    def step(self) -> float:
        return max(self.scrape, math.ceil((self.end - self.start) / POINTS))

    def filled(self, expr: str, chosen: dict[str, str]) -> str:
        """The query with its variables' values, Grafana's own among them."""
        own = {
            "__range": f"{math.ceil(self.end - self.start)}s",
            "__rate_interval": f"{max(self.step + self.scrape, 4 * self.scrape):g}s",
        }

        def value(found: re.Match[str]) -> str:
            try:
                return {**chosen, **own}[found[1]]
            except KeyError:
                raise PreviewError(f"no value for ${found[1]} in {expr}") from None

        return re.sub(r"\$(\w+)", value, expr)


@dataclass(frozen=True)
class Prometheus:
    """Its query API."""

    url: str

    def get(self, what: str, **words: Any) -> Any:
        query = urllib.parse.urlencode(words, doseq=True)
        address = f"{self.url.rstrip('/')}/api/v1/{what}"
        try:
            with urllib.request.urlopen(f"{address}?{query}", timeout=TIMEOUT_SECONDS) as answer:
                text = answer.read(MAX_BYTES + 1)
        except urllib.error.HTTPError as error:
            said = error.read(4096).decode(errors="replace")
            raise PreviewError(f"{address}: {error.code}: {said}: {words.get('query', '')}") from None
        except (OSError, ValueError) as error:
            raise PreviewError(f"{address}: {error}") from None
        if len(text) > MAX_BYTES:
            raise PreviewError(f"{address}: more than {MAX_BYTES >> 20} MiB for {words.get('query', what)}")
        try:
            return json.loads(text)["data"]
        except (ValueError, KeyError, TypeError):
            raise PreviewError(f"{address}: not an answer of Prometheus: {text[:80]!r}") from None

    def over(self, expr: str, span: Span) -> Answer:
        found = self.get("query_range", query=expr, start=span.start, end=span.end, step=span.step)
        return found["result"]

    def at(self, expr: str, moment: float) -> Answer:
        return self.get("query", query=expr, time=moment)["result"]


@dataclass
class Recording:
    """Query results of each dashboard, by uid, panel and query, and its annotations."""

    start: float
    end: float
    step: float
    answers: dict[str, dict[str, dict[str, Answer]]] = field(default_factory=dict)
    marks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str, name: str) -> Self:
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise PreviewError(f"{name} is not a recording: {error}") from None

    def text(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":")) + "\n"


def every(dashboard: Dashboard) -> dict[str, str]:
    """The variables' values where nothing is chosen."""
    listed = dashboard["templating"]["list"]
    return {one["name"]: one["allValue"] for one in listed if one["type"] == "query"}


def record(source: Prometheus, dashboards: list[Dashboard], span: Span, chosen: dict[str, str]) -> Recording:
    """Puts every query of the panels, as Grafana does: as of the end, or over the time shown."""
    made = Recording(span.start, span.end, span.step)
    for dashboard in dashboards:
        values = every(dashboard) | chosen
        panels: dict[str, dict[str, Answer]] = {}
        for panel in dashboard["panels"]:
            answers = panels.setdefault(str(panel["id"]), {})
            for target in panel.get("targets", []):
                expr = span.filled(target["expr"], values)
                instant = target.get("instant", False)
                answers[target["refId"]] = source.at(expr, span.end) if instant else source.over(expr, span)
        made.answers[dashboard["uid"]] = panels
        listed = dashboard.get("annotations", {}).get("list", [])
        made.marks[dashboard["uid"]] = [
            mark
            for one in listed
            for mark in marks(one, source.over(span.filled(one["expr"], values), span), span)
        ]
    return made


def marks(annotation: dict[str, Any], answer: Answer, span: Span) -> list[dict[str, Any]]:
    """The moments and stretches of time that an annotation's series stand for."""
    found = set()
    for series in answer:
        name = re.sub(
            r"\{\{(\w+)\}\}",
            lambda label, of=series["metric"]: of.get(label[1], ""),
            annotation["titleFormat"],
        )
        if annotation.get("useValueForTime"):
            moments = {float(value) / 1000 for _, value in series["values"]}
            found |= {(name, at, at) for at in moments if span.start <= at <= span.end}
        else:
            found |= {
                (name, *stretch) for stretch in stretches([at for at, _ in series["values"]], span.step)
            }
    color = annotation["iconColor"]
    return [{"name": name, "color": color, "from": a, "to": b} for name, a, b in sorted(found)]


def stretches(moments: list[float], step: float) -> list[tuple[float, float]]:
    """Samples that follow each other, as one."""
    found: list[tuple[float, float]] = []
    for at in moments:
        if found and at - found[-1][1] <= 1.5 * step:
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
    return found
