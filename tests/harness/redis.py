"""Redis, which a test may kill and start again."""

from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from lua.redis import library
from tests.harness import programs
from tests.harness.ports import free_ports
from tests.harness.process import Program


class Redis(Program):
    """It comes back empty, even of the libraries."""

    def __init__(
        self, stack: ExitStack | AsyncExitStack, directory: Path, *words: str, port: int = 0, **client
    ) -> None:
        self.port = port or free_ports(1)[0]
        # A test that kills it does not wait for it to come back.
        self.client = redis.Redis(port=self.port, retry=Retry(NoBackoff(), 1), **client)
        directory = directory / f"redis{self.port}"
        directory.mkdir(parents=True, exist_ok=True)
        command = [programs.redis(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        super().__init__(stack, [*command, "--dir", str(directory), *words], directory / "log")

    def start(self, *words: str) -> Self:
        super().start(*words)
        self.eventually("redis", self._answers)
        return self

    def _answers(self) -> bool:
        try:
            return self.client.ping()
        except redis.AuthenticationError:
            return True
        except redis.ConnectionError:
            return False

    def load(self) -> Self:
        """The functions."""
        for name in library.NAMES:
            self.client.function_load(library.text(name), replace=True)
        return self

    def subscribers(self) -> int:
        return self.client.pubsub_numsub("plimsoll:{test}:ring")[0][1]

    def is_in_step(self) -> bool:
        """A replica with its master."""
        return self.client.info("replication")["master_link_status"] == "up"
