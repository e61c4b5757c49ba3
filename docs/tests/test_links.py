"""Links between the documents."""

import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from compose.lab.topology import ROOT
from docs.tests.guide import HEADING

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def documents() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.split()


@cache
def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub names them."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for line in FENCED.sub("", page.read_text()).splitlines():
        if heading := HEADING.fullmatch(line):
            words = re.sub(r"\]\([^)]*\)", "]", heading[1]).lower()
            name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            found.add(f"{name}-{seen[name]}" if seen[name] else name)
            seen[name] += 1
    return found


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not anchor or target.suffix != ".md":
        return target.exists()
    return target.exists() and anchor in anchors(target)


@pytest.mark.parametrize("name", documents())
def test_every_link_leads_somewhere(name: str):
    page = ROOT / name
    links = LINK.findall(FENCED.sub("", page.read_text()))
    inner = [link for link in links if not re.match(r"\w+:", link)]
    assert not [link for link in inner if not leads_somewhere(page, link)]
