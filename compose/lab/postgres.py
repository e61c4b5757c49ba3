"""PostgreSQL under the nodes: a primary for the master, a standby for each slave, on unix sockets only.

One data directory is made and filled once a run. Every policy starts on copies of it, which are what a base
backup of a stopped primary is: all find the same data, and a start takes the time of a copy."""

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from compose.lab import machine, scratch
from compose.lab.errors import LabError
from compose.lab.processes import TIED, Program, answers, free_ports, tied, wait_until
from compose.lab.topology import ROOT, Node, Topology

SETUP = ROOT / "compose" / "postgres"
START_SECONDS = 30
# Ends it at once and removes its shared memory, which SIGKILL would leave.
END = "QUIT"
PEERS = "local all all peer map=lab\nlocal replication all peer map=lab\n"


def user() -> str | None:
    """Whom PostgreSQL runs as where the lab is root's, since it refuses root; None: as the lab does."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError as error:
        raise LabError("there is no user postgres, and PostgreSQL refuses root; run `make tools`") from error


def said(command: list[str], what: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"{what}: {done.stderr.strip() or f'status {done.returncode}'}")
    return done.stdout


def psql(directory: Path, *words: str, database: str = "postgres", port: int = 5432) -> list[str]:
    """psql command as user postgres for the server whose socket is in this directory, with plain output."""
    strict = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres"]
    return [machine.postgres("psql"), *strict, "-h", str(directory), "-p", str(port), *words, database]


@dataclass(frozen=True)
class Server:
    """One PostgreSQL: its socket, and its data in a directory below."""

    directory: Path

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def socket(self) -> Path:
        return self.directory / ".s.PGSQL.5432"

    @property
    def connection(self) -> str:
        """For `stocks serve --database`."""
        return f"host={self.directory} user=stocks dbname=stocks"

    def command(self, *settings: str) -> list[str]:
        at = ["listen_addresses=", f"unix_socket_directories={self.directory}", *settings]
        words = [word for setting in at for word in ("-c", setting)]
        return [machine.postgres("postgres"), "-D", str(self.data), *words]

    def psql(self, *words: str, database: str = "postgres") -> list[str]:
        return psql(self.directory, *words, database=database)

    def answers(self) -> bool:
        done = subprocess.run(self.psql("-c", "SELECT 1"), capture_output=True, check=False)
        return done.returncode == 0


@dataclass(frozen=True)
class Cluster:
    """The databases of one policy's nodes."""

    servers: dict[str, Server]
    programs: dict[str, Program]

    def connection(self, node: Node) -> str:
        return self.servers[node.name].connection


def program(node: str) -> str:
    """The name of a node's PostgreSQL among the programs."""
    return f"{node}-sql"


class Databases:
    """The data directory of a run and the clusters of its policies, made when entered, removed when left."""

    def __init__(self, topology: Topology, seed: int, log: Path) -> None:
        self._topology, self._seed, self._log = topology, seed, log
        self._user = user()
        self._leaving = ExitStack()
        self._root = Path()
        self._made: Server | None = None

    def __enter__(self) -> Self:
        # PostgreSQL's user must have access, which it may not have to the lab's own directory.
        above = "/tmp" if self._user else None
        self._root = self._leaving.enter_context(scratch.directory("plimsoll-sql-", above))
        try:
            if self._user:
                shutil.chown(self._root, self._user, self._user)
            self._made = self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.close()

    def _own(self, command: list[str]) -> list[str]:
        return [*tied(END, self._user), *command]

    def _place(self, name: str) -> Server:
        server = Server(self._root / name)
        server.directory.mkdir(mode=0o700)
        if self._user:
            shutil.chown(server.directory, self._user, self._user)
        return server

    def _make(self) -> Server:
        server = self._place("made")
        initdb = [machine.postgres("initdb"), "-D", str(server.data), "-U", "postgres", "--auth", "peer"]
        # Nothing is synced but what a policy's run commits: the next run makes it all again.
        initdb += ["--no-sync", "--encoding", "UTF8", "--locale", "C", "--wal-segsize", "4"]
        said(self._own(initdb), "initdb")
        (server.data / "pg_hba.conf").write_text(PEERS)
        names = {pwd.getpwuid(os.geteuid()).pw_name, self._user} - {None}
        roles = ("postgres", "replicator", "stocks")
        with (server.data / "pg_ident.conf").open("a") as file:
            file.writelines(f"lab {name} {role}\n" for name in sorted(names) for role in roles)
        with (server.data / "postgresql.conf").open("a") as file:
            file.write((SETUP / "node.conf").read_text())
        with self._running("postgres", self._own(server.command("fsync=off")), signal.SIGINT) as check:
            wait_until("PostgreSQL", server.answers, START_SECONDS, check)
            said(server.psql("-f", str(SETUP / "roles.sql")), str(SETUP / "roles.sql"))
            self._fill(server)
        return server

    def _fill(self, server: Server) -> None:
        (port,) = free_ports(1)
        listen = f"127.0.0.1:{port}"
        master = self._topology.master
        command = [machine.binary("stocks"), "serve", "--role", "master", "--listen", listen]
        command += ["--seed", str(self._seed), "--database", server.connection, *master.arguments()]
        with self._running("stocks", [*TIED, *command], signal.SIGTERM) as check:
            wait_until("stocks", lambda: answers(f"http://{listen}/readyz"), START_SECONDS, check)

    @contextmanager
    def _running(self, name: str, command: list[str], end: signal.Signals) -> Iterator[Callable[[], None]]:
        """Runs a program and ends it in order; gives what raises once it has ended by itself."""
        log = self._log / f"setup-{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

        def check() -> None:
            if process.poll() is not None:
                last = "\n  ".join(log.read_text(errors="replace").splitlines()[-5:])
                raise LabError(f"{name} ended while the database was made: {log}\n  {last}")

        try:
            yield check
            process.send_signal(end)
            if process.wait(START_SECONDS) != 0:
                check()
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGQUIT)
                process.wait()

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        """Copies for one policy: the master's is the primary, the slaves' are its standbys."""
        assert self._made is not None
        servers: dict[str, Server] = {}
        programs = {}
        try:
            for node in self._topology.nodes:
                server = servers[node.name] = self._place(node.name)
                said(self._own(["cp", "-a", str(self._made.data), str(server.data)]), "cp")
                settings = [f"cluster_name={node.name}"]
                if node is not self._topology.master:
                    primary = servers[self._topology.master.name].directory
                    said(self._own(["touch", str(server.data / "standby.signal")]), "touch")
                    # The name by which commits wait for it.
                    conninfo = f"host={primary} user=replicator application_name={node.name}"
                    settings.append(f"primary_conninfo={conninfo}")
                programs[program(node.name)] = Program(server.command(*settings), END, self._user)
            yield Cluster(servers, programs)
        finally:
            for server in servers.values():
                shutil.rmtree(server.directory, ignore_errors=True)
