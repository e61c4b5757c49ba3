"""`python -m dashboards.preview`: pictures of the dashboards from a run that a Prometheus recorded.

They are drawn with Grafana's panel library in a headless Chromium: a preview, and not Grafana.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from PIL import Image

from dashboards import ALL
from dashboards.parts import encoded
from dashboards.preview.recording import (
    Dashboard,
    PreviewError,
    Prometheus,
    Recording,
    Span,
    record,
)

HERE = Path(__file__).parent
OUT = HERE / "out"
INSTALLED = HERE / "node_modules" / ".installed"
# Columns of Grafana's grid.
COLUMNS = 24
# Time range that is searched for a run.
LOOK_BACK = "7d"


def main() -> int:
    try:
        for path in draw(options()):
            print(path)
    except (PreviewError, OSError) as error:
        print(f"preview: {error}", file=sys.stderr)
        return 1
    return 0


def options() -> argparse.Namespace:
    words = argparse.ArgumentParser(prog="python -m dashboards.preview", description=__doc__)
    source = words.add_mutually_exclusive_group(required=True)
    source.add_argument("--prometheus", metavar="URL", help="the one that `make lab OBSERVE=1` leaves up")
    source.add_argument("--recording", type=Path, metavar="FILE", help="what --save wrote")
    words.add_argument("--save", type=Path, metavar="FILE", help="keep what Prometheus answered")
    words.add_argument("--dashboard", action="append", choices=ALL, help="may be repeated; default: all")
    words.add_argument("--panel", action="append", metavar="TITLE", help="only this panel; may be repeated")
    words.add_argument("--policy", help="the time in which the lab ran this policy; default: the whole run")
    words.add_argument("--from", type=float, dest="start", metavar="SECONDS", help="since the start of that")
    words.add_argument("--to", type=float, dest="end", metavar="SECONDS", help="since the start of that")
    words.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a variable's value")
    words.add_argument("--theme", choices=("light", "dark"), default="light")
    words.add_argument("--width", type=int, default=1200, help="of the picture, in pixels; default: 1200")
    words.add_argument("--out", type=Path, default=OUT, metavar="DIRECTORY", help=f"default: {OUT}")
    return words.parse_args()


def draw(given: argparse.Namespace) -> list[Path]:
    if not INSTALLED.exists():
        raise PreviewError("Grafana's panel library is not installed: dashboards/preview/install does it")
    names = given.dashboard or list(ALL)
    shown = {name: only(json.loads(encoded(ALL[name]())), given.panel) for name in names}
    shown = {name: dashboard for name, dashboard in shown.items() if dashboard["panels"]}
    if not shown:
        raise PreviewError(f"no panel is called {' or '.join(given.panel)}")
    made = recording(given, list(shown.values()))
    if given.save:
        given.save.write_text(made.text())
    given.out.mkdir(parents=True, exist_ok=True)
    jobs = [
        {"drawing": drawing(made, dashboard, given), "file": str(given.out / f"{name}.png")}
        for name, dashboard in shown.items()
    ]
    done = subprocess.run(
        ["node", "draw.mjs"], cwd=HERE, input=json.dumps(jobs), text=True, stderr=subprocess.PIPE, check=False
    )
    if done.returncode != 0:
        raise PreviewError(f"the pictures were not drawn:\n{done.stderr.strip()}")
    paths = [Path(job["file"]) for job in jobs]
    for path in paths:
        shrink(path)
    return paths


def recording(given: argparse.Namespace, dashboards: list[Dashboard]) -> Recording:
    if given.recording:
        return Recording.read(given.recording.read_text(), str(given.recording))
    source = Prometheus(given.prometheus)
    chosen = {}
    for word in given.set:
        name, is_value, value = word.partition("=")
        if not is_value:
            raise PreviewError(f"--set {word}: NAME=VALUE is wanted")
        chosen[name] = value
    return record(source, dashboards, span(source, given), chosen)


def span(source: Prometheus, given: argparse.Namespace) -> Span:
    """The requested time span, relative to the start of a run, which its clients' reports show."""
    runs = source.get("query", query=f"lab_sla_seconds[{LOOK_BACK}]")["result"]
    times = [at for one in runs if given.policy in (None, one["metric"]["policy"]) for at, _ in one["values"]]
    if not times:
        known = ", ".join(sorted({one["metric"]["policy"] for one in runs})) or "none"
        raise PreviewError(f"{source.url} has no run of policy {given.policy or 'any'}; it has {known}")
    first = min(times)
    start = first if given.start is None else first + given.start
    return Span(start, max(times) if given.end is None else first + given.end)


def only(dashboard: Dashboard, titles: list[str] | None) -> Dashboard:
    """The dashboard with the requested panels only, laid out without gaps."""
    if titles is None:
        return dashboard
    kept = [panel for panel in dashboard["panels"] if panel["title"] in titles]
    x = y = height = 0
    for panel in kept:
        place = panel["gridPos"]
        if x + place["w"] > COLUMNS:
            x, y, height = 0, y + height, 0
        place["x"], place["y"] = x, y
        x, height = x + place["w"], max(height, place["h"])
    return {**dashboard, "panels": kept}


def drawing(made: Recording, dashboard: Dashboard, given: argparse.Namespace) -> dict[str, Any]:
    uid = dashboard["uid"]
    if uid not in made.answers:
        raise PreviewError(f"{given.recording} has no {uid}: it was made of {', '.join(made.answers)}")
    return {
        "dashboard": {"title": dashboard["title"], "panels": dashboard["panels"]},
        "answers": made.answers[uid],
        "marks": made.marks[uid],
        "from": made.start,
        "to": made.end,
        "step": made.step,
        "width": given.width,
        "theme": given.theme,
    }


def shrink(path: Path) -> None:
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(256, kmeans=4, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
