"""Prints the slowest twenty tests of JUnit reports: python -m tests.slowest FILE..."""

import sys
from pathlib import Path
from xml.etree import ElementTree

SHOWN = 20


def main() -> None:
    cases = [
        (float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}")
        for path in sys.argv[1:]
        if Path(path).exists()
        for case in ElementTree.parse(path).iter("testcase")
    ]
    print(f"the slowest {SHOWN} of {len(cases)} tests, in seconds:")
    for seconds, name in sorted(cases, reverse=True)[:SHOWN]:
        print(f"{seconds:7.1f}  {name}")


if __name__ == "__main__":
    main()
