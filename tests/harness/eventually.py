"""Waiting for what comes about in a while."""

import asyncio
import time
from collections.abc import Callable

# Much for what takes a moment, but less than the periods after which things come about by themselves.
LIMIT_S = 20
# The same beside clients that load the machine.
LOADED_LIMIT_S = 60
POLL_S = 0.02


def _nothing() -> None:
    pass


def eventually(
    what: str, condition: Callable[[], object], seconds: float = LIMIT_S, check: Callable[[], None] = _nothing
) -> None:
    """Until `condition` holds; `check` raises where waiting any longer is in vain."""
    deadline = time.monotonic() + seconds
    while not condition():
        check()
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(POLL_S)


async def until(
    what: str,
    condition: Callable[[], object],
    seconds: float = LOADED_LIMIT_S,
    check: Callable[[], None] = _nothing,
) -> None:
    """The same among coroutines."""
    deadline = time.monotonic() + seconds
    while not condition():
        check()
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(POLL_S)
