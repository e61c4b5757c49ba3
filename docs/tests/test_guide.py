"""No guide without a test, and no block of one that its test may forget."""

import re

import pytest

from docs.tests import guide
from docs.tests.guide import Block, blocks, merged
from docs.tests.host import HERE
from tests.harness import ROOT

GUIDES = {
    *("adopt.md", "haproxy.md", "sources.md", "haproxy-lua.md", "envoy.md", "envoy-filter.md", "redis.md"),
    *("envoy-module.md", "haproxy-limits.md", "placement.md", "freshness.md", "scatter.md", "failover.md"),
    "doctor.md",
}
TEXT = """\
# A

    drawn

## B

```sh
one

# no heading
```

```sh
two
```
"""


def test_every_guide_is_run():
    others = [path.read_text() for path in HERE.glob("test_*.py") if path.name != "test_guide.py"]
    run = re.findall(r'\bGuide\("([^"]+)"\) as', "".join(others))
    assert sorted(run) == sorted(GUIDES)


def test_the_readme_shows_what_the_guide_says():
    told = blocks((ROOT / "docs/haproxy.md").read_text())
    said = {(block.language, line) for block in told for line in block.text.splitlines()}
    shown = [block for block in blocks((ROOT / "README.md").read_text()) if block.language != "indented"]
    lines = {(block.language, line) for block in shown for line in block.text.splitlines()}
    assert {block.language for block in shown} == {"toml", "haproxy"}
    assert not lines - said


def test_blocks_have_their_sections():
    assert blocks(TEXT) == [
        Block("A", "indented", "drawn\n"),
        Block("B", "sh", "one\n\n# no heading\n"),
        Block("B", "sh", "two\n"),
    ]


@pytest.mark.parametrize("text", ["- item\n  ```sh\n  x\n  ```\n", "~~~\nx\n~~~\n", "```sh\nx\n"])
def test_a_block_of_another_form_is_refused(text):
    with pytest.raises(AssertionError, match="block"):
        blocks(text)


def test_a_guide_complains_of_a_block_that_nobody_takes(tmp_path, monkeypatch):
    monkeypatch.setattr(guide, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "x.md").write_text(TEXT)
    with pytest.raises(AssertionError, match=r"nobody runs .*\n.*two"), guide.Guide("x.md") as text:
        text.leave("A", "indented", "a drawing")
        text.take("B", "sh")
    with pytest.raises(AssertionError, match="has no toml block"):
        guide.Guide("x.md").take("B", "toml")


def test_parts_go_to_their_places():
    whole = merged('[[service]]\nname = "a"\n[service.sla]\ndelay = "1s"\n', '[service.role]\nuser = "x"\n')
    assert whole == 'service = [{"name" = "a", "sla" = {"delay" = "1s"}, "role" = {"user" = "x"}}]\n'
