"""`python -m loadtests.report RUN-DIRECTORY [--markdown]`"""

import argparse
import json
import sys
from pathlib import Path

from loadtests.report import figures, records, table
from loadtests.report.criteria import criteria


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="loadtests.report", description=__doc__)
    parser.add_argument("directory", type=Path, help="a directory below loadtests/results")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown, nothing else")
    options = parser.parse_args(arguments)
    try:
        run, policies = records.load_run(options.directory)
        summary = figures.summary(run, policies)
    except records.RecordError as error:
        print(f"report: {error}", file=sys.stderr)
        return 1
    checks = criteria(summary)
    (options.directory / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    # After the figures: matplotlib takes a second to load, and bad records are told sooner.
    from loadtests.report import page

    (options.directory / "report.html").write_text(page.render(summary, policies, checks))
    if options.markdown:
        print(table.markdown(summary))
        return 0
    print(table.terminal(summary))
    if checks:
        print("\n" + "\n".join(check.line() for check in checks))
    print(f"\n{options.directory / 'summary.json'}\n{options.directory / 'report.html'}")
    return 0


sys.exit(main())
