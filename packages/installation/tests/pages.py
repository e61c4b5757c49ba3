"""The documentation's own commands and configurations."""

import re

from tests.harness import ROOT


def blocks(page: str, section: str, language: str) -> list[str]:
    """Of a section of a page in docs/, in their order; there has to be one."""
    text = (ROOT / "docs" / page).read_text()
    _, heading, rest = text.partition(f"\n{section}\n")
    assert heading, f"docs/{page} has no {section!r}"
    part = re.split(r"^#+ [A-Z0-9]", rest, maxsplit=1, flags=re.MULTILINE)[0]
    found = re.findall(rf"^```{language}\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    assert found, f"docs/{page}: {section!r} has no {language} block"
    return found
