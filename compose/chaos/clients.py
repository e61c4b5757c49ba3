"""Clients: operations that arrive by chance, whatever became of those before, each with a few attempts."""

import asyncio
import itertools
import json
import random
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from compose.chaos.figures import TIMELY_SECONDS
from compose.chaos.history import Attempt, Writer
from compose.chaos.site import (
    ACCOUNTS,
    HAPROXYS,
    PROXIES,
    QUERY_ITEMS,
    SYMBOLS,
    WEB,
    WRITE_ITEMS,
    WRITE_SECONDS,
)
from compose.lab.placement import Sets

WRITES_PER_SECOND, QUERIES_PER_SECOND = 40.0, 60.0
CONNECT_SECONDS = 0.25
# Longer than any node works on a write.
ANSWER_SECONDS = WRITE_SECONDS + 1.0
PAUSE_SECONDS = 0.1
MAX_ATTEMPTS = 5
SETS = Sets(count=24).shares()
POPULAR_SECONDS, POPULAR_STEP = 15, 7


def popular(seconds: float) -> list[str]:
    """The sets, the most popular first; others are after a while, so that the keeper has some to move."""
    shift = int(seconds / POPULAR_SECONDS) * POPULAR_STEP % len(SETS)
    return [*list(SETS)[shift:], *list(SETS)[:shift]]


@dataclass(frozen=True)
class Answer:
    status: int
    reason: str
    sequence: int | None


@dataclass
class Clients:
    addresses: dict[str, str]
    writer: Writer
    seed: int
    # When each set was last written.
    written: dict[str, float] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _attempts: itertools.count = field(default_factory=itertools.count)
    _orders: itertools.count = field(default_factory=itertools.count)

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Until it is over and everything has been answered or given up."""
        chance = random.Random(self.seed)
        start = at = time.monotonic()
        rate = WRITES_PER_SECOND + QUERIES_PER_SECOND
        for operation in itertools.count():
            at += chance.expovariate(rate)
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            if is_over():
                break
            is_write = chance.random() < WRITES_PER_SECOND / rate
            drawn = popular(at - start)[chance.choices(range(len(SETS)), list(SETS.values()))[0]]
            # Queries by Envoy do not go by the ring.
            names = list(PROXIES if is_write else HAPROXYS)
            chance.shuffle(names)
            task = asyncio.create_task(self._operate(operation, drawn if is_write else "", names))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await asyncio.gather(*self._tasks)

    async def _operate(self, operation: int, name: str, proxies: list[str]) -> None:
        begin = time.monotonic()
        for number in range(MAX_ATTEMPTS):
            made = await self._attempt(operation, name, proxies[number % len(proxies)])
            self.writer.write(**asdict(made))
            if made.status == 200:
                if name:
                    self.written[name] = made.begin
                return
            # Only what has not run is sent again.
            if not (made.unsent or made.status == 503) or time.monotonic() - begin > TIMELY_SECONDS:
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _attempt(self, operation: int, name: str, proxy: str) -> Attempt:
        number = next(self._attempts)
        kind = "write" if name else "query"
        request = f"{kind[0]}{operation}.{number}"
        body, written = "", {}
        if name:
            # No two attempts buy the same for the same account, so that each can be told in the databases.
            symbol, account = divmod(next(self._orders), ACCOUNTS)
            written = {"set": name, "account": account, "symbol": f"S{symbol:04}"}
            body = json.dumps({"account": account, "symbol": written["symbol"], "shares": 1})
            head = f"POST /purchase?items={WRITE_ITEMS} HTTP/1.1\r\nx-object-set: {name}\r\n"
        else:
            head = f"GET /stock/S{number % SYMBOLS:04}?items={QUERY_ITEMS} HTTP/1.1\r\n"
        head += f"host: stocks\r\nx-request-id: {request}\r\nconnection: close\r\n"
        text = f"{head}content-length: {len(body)}\r\n\r\n{body}"
        begin = time.monotonic()
        answer, unsent = await exchange(self.addresses[proxy], text)
        told = {"status": None} if answer is None else asdict(answer)
        end = time.monotonic()
        return Attempt(operation, request, kind, proxy, begin, end, unsent=unsent, **told, **written)


async def exchange(address: str, text: str) -> tuple[Answer | None, bool]:
    """What was answered, if anything, and whether nothing was sent."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(address, WEB)
    except (OSError, TimeoutError):
        return None, True
    try:
        writer.write(text.encode())
        async with asyncio.timeout(ANSWER_SECONDS):
            return answer_of((await reader.read()).decode()), False
    except (OSError, TimeoutError):
        return None, False
    finally:
        with suppress(OSError):
            writer.transport.abort()


def answer_of(text: str) -> Answer | None:
    """None where it is not whole enough to be one."""
    head, end, body = text.partition("\r\n\r\n")
    status = re.match(r"HTTP/1\.1 (\d{3})", head)
    if not status or not end:
        return None
    reason = re.search(r"(?im)^plimsoll-reason: *(\S+)", head)
    length = re.search(r"(?im)^content-length: *(\d+)", head)
    if length and len(body) < int(length[1]):
        return None
    sequence = re.search(r'"sequence":(\d+)', body)
    return Answer(int(status[1]), reason[1] if reason else "", int(sequence[1]) if sequence else None)
