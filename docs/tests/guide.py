"""A guide's blocks, taken one after the other by the test that runs them."""

import json
import re
import tomllib
from dataclasses import dataclass
from typing import Any

from tests.harness import ROOT

HEADING = re.compile(r"#+ (.*)")


@dataclass(frozen=True)
class Block:
    section: str
    language: str
    text: str


def blocks(text: str) -> list[Block]:
    """All blocks, fenced or indented by four columns; those have the language `indented`."""
    found: list[Block] = []
    section, language, lines = "", None, []
    for line in [*text.splitlines(), ""]:
        if language == "indented" and not line.startswith("    "):
            found.append(Block(section, language, "\n".join(lines) + "\n"))
            language = None
        if language is None:
            if line.startswith("```"):
                language, lines = line[3:], []
            elif line.startswith("    "):
                language, lines = "indented", [line[4:]]
            elif line.lstrip().startswith(("```", "~~~")):
                raise AssertionError(f"a block that nobody would find: {line}")
            elif heading := HEADING.fullmatch(line):
                section = heading[1]
        elif language == "indented":
            lines.append(line[4:])
        elif line == "```":
            found.append(Block(section, language, "\n".join(lines) + "\n"))
            language = None
        else:
            lines.append(line)
    assert language is None, "a block has no end"
    return found


class Guide:
    """Left at its end it complains of blocks that nobody took."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._text = (ROOT / "docs" / name).read_text()
        self._left = blocks(self._text)

    def take(self, section: str, language: str) -> str:
        """The section's next block of this language."""
        for block in self._left:
            if (block.section, block.language) == (section, language):
                self._left.remove(block)
                return block.text
        raise AssertionError(f"docs/{self.name}: {section!r} has no {language} block (any more)")

    def leave(self, section: str, language: str, why: str) -> None:
        """A block that no program reads."""
        assert why
        self.take(section, language)

    def says(self, words: str) -> str:
        """A command within the text, which has to be there."""
        assert f"`{words}`" in self._text, f"docs/{self.name} does not say `{words}`"
        return words

    def __enter__(self) -> "Guide":
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None:
            left = [f"{block.section}: {block.text}" for block in self._left]
            assert not left, f"nobody runs these blocks of docs/{self.name}:\n" + "\n".join(left)


def _merge(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: _merge(old.get(key), value) for key, value in new.items()}
    if isinstance(old, list) and old and isinstance(old[0], dict):
        return [_merge(old[0], new if isinstance(new, dict) else new[0]), *old[1:]]
    return new


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def merged(*parts: str) -> str:
    """Configurations put into one, as a reader would; what is of a service goes to the first [[service]]."""
    whole: dict[str, Any] = {}
    for part in parts:
        whole = _merge(whole, tomllib.loads(part))
    return "".join(f"{key} = {_toml(value)}\n" for key, value in whole.items())
