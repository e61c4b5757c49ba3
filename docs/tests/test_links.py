"""Links between the documents, and the site that is made of them, without mdBook."""

import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from docs import book
from docs.tests.guide import HEADING
from tests.harness import ROOT


def documents() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.split()


@cache
def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub names them."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for line in book.prose(page).splitlines():
        if heading := HEADING.fullmatch(line):
            words = re.sub(r"\]\([^)]*\)", "]", heading[1]).lower()
            name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            found.add(f"{name}-{seen[name]}" if seen[name] else name)
            seen[name] += 1
    return found


def leads_somewhere(page: Path, link: str) -> bool:
    target, (_, _, anchor) = book.target(page, link), link.partition("#")
    if not anchor or target.suffix != ".md":
        return target.exists()
    return target.exists() and anchor in anchors(target)


@pytest.mark.parametrize("name", documents())
def test_every_link_leads_somewhere(name: str):
    page = ROOT / name
    assert not [link for link in book.inner_links(page) if not leads_somewhere(page, link)]


def test_the_site_has_every_document_once():
    pages = [str(page.relative_to(ROOT)) for page in book.pages()]
    assert sorted(pages) == sorted({*documents()} - {"docs/SUMMARY.md"})


def test_the_site_has_every_file_that_a_page_links_to(tmp_path):
    book.lay_out(tmp_path)
    pages = [page for page in tmp_path.rglob("*.md") if page.name != "SUMMARY.md"]
    assert len(pages) == len(book.pages())
    links = [(page, link) for page in [*pages, tmp_path / "SUMMARY.md"] for link in book.inner_links(page)]
    missing = [(page.name, link) for page, link in links if not book.target(page, link).is_file()]
    assert not missing, "a site has no directories: link to a file"


def test_broken_links_of_a_built_site_are_found(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "a.cfg").touch()
    good = (
        '<a href="docs/b.html#there">b</a> <a href="a.cfg">file</a> <a href="https://example.org/x">out</a>'
    )
    bad = '<a href="docs/c.html">page</a> <a href="docs/b.html#gone">heading</a> <a href="docs">directory</a>'
    (tmp_path / "index.html").write_text(f'{good} {bad} <img src="a.svg">')
    (tmp_path / "docs/b.html").write_text(
        '<h1 id="there">b</h1> <a href="../index.html">up</a> <a href="#x">x</a>'
    )
    assert book.broken_links(tmp_path) == [
        "docs/b.html: #x",
        *(f"index.html: {link}" for link in ("docs/c.html", "docs/b.html#gone", "docs", "a.svg")),
    ]
