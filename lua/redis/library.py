"""The Redis function libraries, each put together of the prelude and its own parts, in their order.

`python -m lua.redis.library plimsoll` prints one, as `plimsoll redis-functions` does.
"""

import re
import sys
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parent
NAMES = ("plimsoll", "plimsoll_placement")


def text(name: str) -> str:
    parts = [DIRECTORY / "prelude.lua", *sorted((DIRECTORY / name).glob("*.lua"))]
    return f"#!lua name={name}\n" + "".join(part.read_text() for part in parts)


def version(name: str) -> int:
    return int(re.search(r"^local VERSION = (\d+)$", text(name), re.MULTILINE)[1])


if __name__ == "__main__":
    sys.stdout.write(text(sys.argv[1]))
