"""Makes summary.json and report.html from the records of a run, and prints the table."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from compose.applab import criteria as applications
from compose.lab.scenarios import registry
from loadtests.report import figures, picture, records, table
from loadtests.report.criteria import Criterion, judged


def criteria(summary: dict[str, Any]) -> list[Criterion]:
    """Those of the lab that made the run; only on applications is there a measured capacity."""
    found = applications.criteria(summary) if summary["capacity"] else registry.criteria(summary)
    return judged(found, summary["quick"])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="loadtests.report", description=__doc__)
    parser.add_argument("directory", type=Path, help="a directory below loadtests/results")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown, nothing else")
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="also draw the README's picture")
    options = parser.parse_args(arguments)
    try:
        run, policies = records.load_run(options.directory)
        summary = figures.summary(run, policies)
    except records.RecordError as error:
        print(f"report: {error}", file=sys.stderr)
        return 1
    # Once the records are good: matplotlib takes a second to load.
    from loadtests.report import page

    checks = criteria(summary)
    made = {
        options.directory / "summary.json": json.dumps(summary, indent=1, allow_nan=False) + "\n",
        options.directory / "report.html": page.render(summary, policies, checks),
    }
    if options.picture:
        made[options.picture] = picture.render(summary)
    for path, content in made.items():
        try:
            path.write_text(content, encoding="utf-8")
        except OSError as error:
            print(f"report: {path}: {error.strerror}", file=sys.stderr)
            return 1
    if options.markdown:
        print(table.markdown(summary))
        return 0
    print(table.terminal(summary))
    if checks:
        print("\n" + "\n".join(check.line() for check in checks))
    print("\n" + "\n".join(map(str, made)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
