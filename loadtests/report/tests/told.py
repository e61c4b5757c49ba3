"""Reports for records."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """Tags with their attributes, and what is written in them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data.strip())

    def labels(self) -> list[str]:
        return [attributes["aria-label"] for tag, attributes in self.tags if tag == "svg"]


def page(run) -> Page:
    assert run.report() == 0
    return Page((run.directory / "report.html").read_text())


def complaint(run, capsys) -> str:
    assert run.report() == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert not (run.directory / "summary.json").exists()
    assert not (run.directory / "report.html").exists()
    assert err.startswith("report: ") and err.count("\n") == 1
    return err.removeprefix("report: ").rstrip("\n")


def targets(run) -> dict[str, str]:
    """Whether each was met, by its text."""
    lines = [line.split("  ", 1) for line in run.targets()]
    return {text.split(":")[0]: met for met, text in lines}
