"""The documentation's site: mdBook over the pages that SUMMARY.md lists, and a check of every link in it.

mdBook takes one directory and copies all of it, so the pages are laid out in one of their own first, with the
files that they link to.
"""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
SOURCE, OUTPUT = ROOT / "target" / "book-source", ROOT / "target" / "book"
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
REFERENCES = {"a": "href", "link": "href", "img": "src", "script": "src"}


def prose(page: Path) -> str:
    """The text without its fenced blocks."""
    return FENCED.sub("", page.read_text())


def inner_links(page: Path) -> list[str]:
    """Links to files and headings of this repository."""
    return [link for link in LINK.findall(prose(page)) if not urlsplit(link).scheme]


def target(page: Path, link: str) -> Path:
    """The file that a link on a page names."""
    path = unquote(urlsplit(link).path)
    return Path(os.path.normpath(page.parent / path)) if path else page


def pages() -> list[Path]:
    summary = ROOT / "docs" / "SUMMARY.md"
    return [target(summary, link) for link in inner_links(summary)]


def lay_out(directory: Path) -> None:
    """Copies the pages and the files they link to as in the repository, and puts SUMMARY.md on top."""
    linked = {target(page, link) for page in pages() for link in inner_links(page)}
    for file in {*pages(), *filter(Path.is_file, linked)}:
        copy = directory / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    summary = ROOT / "docs" / "SUMMARY.md"

    def from_the_top(link: re.Match[str]) -> str:
        return f"]({target(summary, link[1]).relative_to(ROOT)})"

    (directory / "SUMMARY.md").write_text(LINK.sub(from_the_top, summary.read_text()))


class Built(HTMLParser):
    """A built page: what it links to, and what can be linked to in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if anchor := found.get("id"):
            self.anchors.add(anchor)
        if link := found.get(REFERENCES.get(tag, "")):
            self.links.append(link)


def broken_links(site: Path) -> list[str]:
    """Links within a built site that lead nowhere, each with its page."""
    built = {page: Built(page) for page in sorted(site.rglob("*.html"))}

    def leads_somewhere(page: Path, link: str) -> bool:
        file, anchor = target(page, link), unquote(urlsplit(link).fragment)
        return file.is_file() and (not anchor or file not in built or anchor in built[file].anchors)

    return [
        f"{page.relative_to(site)}: {link}"
        for page, found in built.items()
        for link in found.links
        if not urlsplit(link).scheme and not leads_somewhere(page, link)
    ]


def main() -> None:
    for directory in (SOURCE, OUTPUT):
        shutil.rmtree(directory, ignore_errors=True)
    lay_out(SOURCE)
    subprocess.run([ROOT / ".tools/bin/mdbook", "build", ROOT / "docs"], check=True)
    if broken := broken_links(OUTPUT):
        sys.exit("links that lead nowhere:\n" + "\n".join(broken))
    print(f"{OUTPUT.relative_to(ROOT)}/index.html")


if __name__ == "__main__":
    main()
