"""What scenario master-failover runs, on PostgreSQL without Patroni: a test moves the lock."""

import http.client
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from compose.lab import failover, machine, patroni, postgres, scratch
from compose.lab.patroni import Cluster, Member
from compose.lab.processes import free_ports, start_tied, tied, wait_until

START_S = 60
# Between a client's requests.
PAUSE_S = 0.02


class Database:
    """One PostgreSQL, trusting whoever comes to its socket, which is in a directory of its own."""

    def __init__(self, member: Member, log: Path) -> None:
        self.member, self._log, self._user = member, log, postgres.user()
        self._process: subprocess.Popen[bytes] | None = None
        member.directory.mkdir(mode=0o700)
        if self._user:
            shutil.chown(member.directory, self._user, self._user)

    def _words(self, program: str, *more: str) -> list[str]:
        data = str(self.member.directory / "data")
        return [*tied(postgres.END, self._user), machine.postgres(program), "-D", data, *more]

    def make(self) -> None:
        more = ["-U", "postgres", "--auth", "trust", "--no-sync", "--locale", "C", "--wal-segsize", "4"]
        postgres.said(self._words("initdb", *more), "initdb")
        self.start()
        postgres.said(self.member.psql("-f", str(patroni.SETUP / "setup.sql")), "setup.sql")

    def follow(self, primary: Member) -> None:
        source = f"host={primary.directory} port={primary.port} user=postgres"
        more = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-d", source]
        postgres.said(self._words("pg_basebackup", *more), "pg_basebackup")
        self.start()

    def start(self) -> None:
        settings = {**patroni.PARAMETERS, "fsync": "off", "listen_addresses": "", "port": self.member.port}
        settings["unix_socket_directories"] = self.member.directory
        command = self._words("postgres", *(f"--{name}={value}" for name, value in settings.items()))

        def is_up() -> bool:
            # It ends at once while there are processes left of one that was killed.
            if self._process is None or self._process.poll() is not None:
                self._process = start_tied(command, {}, self._log)
            asked = subprocess.run(self.member.psql("-c", "SELECT 1"), capture_output=True, check=False)
            return asked.returncode == 0

        wait_until(f"{self.member.name}'s PostgreSQL", is_up, START_S, lambda: None)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()


class Lock:
    """What Patroni's REST API says of the leader's lock, one port a node."""

    def __init__(self, names: list[str]) -> None:
        self.holder = names[0]
        self._servers = {name: ThreadingHTTPServer(("127.0.0.1", 0), self._handler(name)) for name in names}
        for server in self._servers.values():
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def _handler(self, name: str) -> type[BaseHTTPRequestHandler]:
        lock = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if lock.holder == name else 503)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def port(self, name: str) -> int:
        return self._servers[name].server_address[1]

    def stop(self) -> None:
        for server in self._servers.values():
            server.shutdown()
            server.server_close()


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
        """The last so many answers, of those from one on; none while there are fewer."""
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
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        frontend, admin, *rest = free_ports(11)
        self.ports = failover.Ports(frontend, rest[:3], rest[3:6], rest[6:], admin)
        names = list(failover.NODES[:2])
        self.lock = Lock(names)
        stack.callback(self.lock.stop)
        above = "/tmp" if postgres.user() else None
        root = stack.enter_context(scratch.directory("plimsoll-sql-", above))
        if owner := postgres.user():
            shutil.chown(root, owner, owner)
        self.members = [Member(name, root / name, 5432, self.lock.port(name)) for name in names]
        self.databases = [Database(member, directory / f"{member.name}-sql.log") for member in self.members]
        for database in self.databases:
            stack.callback(database.stop)
        primary, standby = self.databases
        primary.make()
        standby.follow(primary.member)
        programs = failover.programs(Cluster(self.members, {}), self.ports, directory, proxy)
        for name, command in programs.items():
            process = self._processes[name] = start_tied(command, {}, directory / f"{name}.log")
            stack.callback(process.wait)
            stack.callback(process.kill)
        get = lambda: ask(frontend, "GET", "/beat")  # noqa: E731
        self.eventually("a primary", lambda: ask(frontend, "POST", "/beat/1").status == 200)
        self.eventually("reads at both", lambda: {get() for _ in range(20)} == {Told(200, n) for n in names})

    def client(self, method: str, path: str) -> Client:
        client = Client(self.ports.frontend, method, path)
        self._stack.callback(client.stop)
        return client

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def eventually(self, what: str, condition: Callable[[], bool]) -> None:
        def check() -> None:
            for name, process in self._processes.items():
                assert process.poll() is None, f"{name}: {self.log(name)[-3000:]}"

        wait_until(what, condition, START_S, check)
