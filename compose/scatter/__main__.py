"""`python -m compose.scatter`: one query to one database, and to eight by three partitionings; see --help.

The experiment of "Performance of distributed database system built on multicore systems" (Kim, 2017)."""

import argparse
import datetime
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from compose.lab import machine
from compose.lab.__main__ import number, prepare
from compose.lab.errors import LabError
from compose.lab.topology import ROOT
from compose.scatter import data, figures, report
from compose.scatter.databases import Databases, Mode
from compose.scatter.measure import Answer, Plan, record, run_mode
from compose.scatter.nodes import configure
from compose.scatter.partitionings import PARTITIONINGS, load

RESULTS = ROOT / "loadtests" / "results"
ROWS, QUICK_ROWS = 500_000, 100_000
REPEATS, QUICK_REPEATS = 7, 3
# A read from a solid disk, or one over a network.
PAGE_DELAY_US = 100


def modes(delay_us: int) -> tuple[Mode, ...]:
    return (Mode("memory", "512MB", 0), Mode("disk", "8MB", delay_us))


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m compose.scatter", description=__doc__)
    top.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS} rows, {QUICK_REPEATS} repeats")
    top.add_argument("--rows", type=number(1000, 20_000_000), help=f"default: {ROWS}")
    top.add_argument("--repeats", type=number(1, 1000), help=f"default: {REPEATS}")
    top.add_argument("--seed", type=number(0, 2**31 - 1), default=1)
    top.add_argument(
        "--page-delay",
        type=number(1, 100_000),
        default=PAGE_DELAY_US,
        metavar="US",
        help="what a page's read takes longer in mode disk, us",
    )
    top.add_argument("--bin-dir", type=Path, help="where plimsoll is; default: $CARGO_TARGET_DIR/release")
    top.add_argument("--results", type=Path, default=RESULTS)
    return top


def say(text: str) -> None:
    terminal = sys.stderr.isatty()
    print(f"\r\x1b[2K{text}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)


def told(mode: Mode) -> str:
    if mode.page_delay_us == 0:
        return "all pages in memory"
    buffers = f"{mode.shared_buffers} of buffers for all databases"
    return f"each page read takes {mode.page_delay_us} us longer, {buffers}"


def run(arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    rows = arguments.rows or (QUICK_ROWS if arguments.quick else ROWS)
    repeats = arguments.repeats or (QUICK_REPEATS if arguments.quick else REPEATS)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    log = directory / "log"
    log.mkdir()
    # Accessible to PostgreSQL's user, with a path short enough for sockets.
    with tempfile.TemporaryDirectory(prefix="plimsoll-", dir="/tmp") as name:
        scratch = Path(name)
        scratch.chmod(0o711)
        work, sql = scratch / "run", scratch / "sql"
        work.mkdir()
        sql.mkdir(mode=0o700)
        say(f"making {rows} molecules")
        points, _ = data.molecules(rows, arguments.seed)
        file = work / "molecules.csv"
        data.write(points, file)
        wanted = {distance: int(data.hits(points, distance).sum()) for distance in data.HITS}
        databases = Databases(sql, log)
        loaded = {}
        with databases.loading(work):
            for one in PARTITIONINGS:
                say(f"loading: {one.name}")
                loaded[one.name] = load(one, databases, file, arguments.seed, work)
        plan = Plan(PARTITIONINGS, tuple(data.HITS), repeats, wanted)
        nodes = configure(PARTITIONINGS, databases, work)
        measured: list[dict[str, Any]] = []
        answers: list[Answer] = []
        targets: list[figures.Target] = []
        for mode in modes(arguments.page_delay):
            found, pages = run_mode(mode, plan, databases, nodes, (work, log), say)
            lines = figures.lines(found)
            answers += found
            targets += figures.targets(mode.name, lines)
            measured.append({"name": mode.name, "what": told(mode), "lines": lines, "pages": pages})
    say("")
    with (directory / "answers.jsonl").open("w") as out:
        out.writelines(json.dumps(record(answer)) + "\n" for answer in answers)
    return {
        "started": started,
        "command": shlex.join([Path(sys.executable).name, "-m", "compose.scatter", *sys.argv[1:]]),
        "rows": rows,
        "repeats": repeats,
        "seed": arguments.seed,
        "quick": arguments.quick,
        "machine": {**machine.describe(), "postgres": machine.database("postgres").removeprefix("postgres ")},
        "loaded": loaded,
        "modes": measured,
        "targets": [target.line() for target in targets],
    }


def main() -> int:
    arguments = parser().parse_args()
    prepare(arguments.bin_dir)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    directory = arguments.results / f"scatter-{stamp}"
    try:
        directory.mkdir(parents=True)
        summary = run(arguments, directory)
    except LabError as error:
        print(f"\nscatter: {error}", file=sys.stderr)
        return 1
    except SystemExit:
        print("\nscatter: interrupted; everything is stopped", file=sys.stderr)
        raise
    # As the report reads it again: keys are texts.
    text = json.dumps(summary, indent=1, allow_nan=False) + "\n"
    summary = json.loads(text)
    (directory / "summary.json").write_text(text)
    (directory / "report.html").write_text(report.page(summary), encoding="utf-8")
    print(report.terminal(summary))
    print(f"\n{directory / 'summary.json'}\n{directory / 'report.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
