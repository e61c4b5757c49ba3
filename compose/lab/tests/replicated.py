"""The site of scenario master-failover on PostgreSQL without Patroni; tests move the leader's lock."""

import http.client
import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from compose.lab import failover, postgres, scratch
from compose.lab.patroni import Cluster, Member
from tests.harness.eventually import eventually
from tests.harness.http_server import Answering
from tests.harness.ports import free_ports
from tests.harness.postgres import Database
from tests.harness.process import run

START_S = 60
# Between a client's requests.
PAUSE_S = 0.02


class Lock:
    """Patroni's REST API for the leader's lock, with a port per node."""

    def __init__(self, stack: ExitStack, names: list[str]) -> None:
        self.holder = names[0]
        self._servers = {name: Answering(self._answers(name)) for name in names}
        for server in self._servers.values():
            stack.callback(server.stop)

    def _answers(self, name: str) -> Callable[[str, str], tuple[int, bytes]]:
        return lambda _method, _path: (200 if self.holder == name else 503, b"")

    def port(self, name: str) -> int:
        return self._servers[name].port


@dataclass(frozen=True)
class Told:
    """An answer; 0 where there was none. What a proxy says itself has no node."""

    status: int
    node: str = ""
    reason: str = ""


@dataclass
class Client:
    """Asks one request after the other, by the number of each, until stopped."""

    port: int
    method: str
    path: str
    told: list[Told] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(PAUSE_S):
            self.told.append(ask(self.port, self.method, self.path.format(len(self.told))))

    def latest(self, count: int, since: int = 0) -> set[Told]:
        """The last `count` answers since an index, as a set; empty while there are fewer."""
        told = self.told[since:]
        return set(told[-count:]) if len(told) >= count else set()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


def ask(port: int, method: str, path: str) -> Told:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        answer.read()
        header = lambda name: answer.getheader(name, "")  # noqa: E731
        return Told(answer.status, header("x-node"), header("plimsoll-reason"))
    except (OSError, http.client.HTTPException):
        return Told(0)
    finally:
        connection.close()


class Replicated:
    """A primary, node1, a standby, node2, and a third node that is not there."""

    def __init__(self, directory: Path, stack: ExitStack, proxy: str) -> None:
        self.directory, self._stack = directory, stack
        frontend, admin, *rest = free_ports(11)
        self.ports = failover.Ports(frontend, rest[:3], rest[3:6], rest[6:], admin)
        names = list(failover.NODES[:2])
        self.lock = Lock(stack, names)
        above = "/tmp" if postgres.user() else None
        root = stack.enter_context(scratch.directory("plimsoll-sql-", above))
        if owner := postgres.user():
            shutil.chown(root, owner, owner)
        self.members = [Member(name, root / name, 5432, self.lock.port(name)) for name in names]
        self.databases = [
            Database(stack, member, directory / f"{member.name}-sql.log") for member in self.members
        ]
        primary, standby = self.databases
        primary.make()
        standby.follow(primary.member)
        programs = failover.programs(Cluster(self.members, {}), self.ports, directory, proxy)
        self._programs = {
            name: run(stack, command, directory / f"{name}.log") for name, command in programs.items()
        }
        get = lambda: ask(frontend, "GET", "/beat")  # noqa: E731
        self.eventually("a primary", lambda: ask(frontend, "POST", "/beat/1").status == 200)
        self.eventually("reads at both", lambda: {get() for _ in range(20)} == {Told(200, n) for n in names})

    def client(self, method: str, path: str) -> Client:
        client = Client(self.ports.frontend, method, path)
        self._stack.callback(client.stop)
        return client

    def log(self, name: str) -> str:
        return self._programs[name].said()

    def eventually(self, what: str, condition: Callable[[], bool]) -> None:
        def check() -> None:
            for program in self._programs.values():
                program.check()

        eventually(what, condition, START_S, check)
