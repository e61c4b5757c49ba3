"""One PostgreSQL with a database for each node of each partitioning, on a unix socket only."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compose.lab import machine
from compose.lab.errors import LabError
from compose.lab.postgres import Server, said, user
from compose.lab.processes import Processes, Program, tied, wait_until

SOURCE = Path(__file__).with_name("slow_reads.c")
OWNER, READER = "loader", "reader"
START_SECONDS = 30
# Nothing here has to survive, and nothing but the queries is to work while they are measured.
SETTINGS = (
    "fsync=off",
    "full_page_writes=off",
    "synchronous_commit=off",
    "wal_level=minimal",
    "max_wal_senders=0",
    "max_wal_size=8GB",
    "max_connections=300",
    "autovacuum=off",
    "jit=off",
    "dynamic_shared_memory_type=mmap",
    "log_timezone=UTC",
)
# The paper's PostgreSQL had no parallel queries, and read pages one after the other.
MEASURED = ("max_parallel_workers_per_gather=0", "effective_io_concurrency=0")
# Statements of the queries' role log how long they took: epoch, database, process.
LOGGED = ("logging_collector=on", "log_filename=queries", "log_line_prefix=%n|%d|%p|", "log_rotation_size=0")
_DURATION = re.compile(r"^([\d.]+)\|([^|]*)\|(\d+)\|LOG:  duration: ([\d.]+) ms")


@dataclass(frozen=True)
class Mode:
    """How pages come: from memory, or as from a disk."""

    name: str
    shared_buffers: str
    page_delay_us: int


@dataclass(frozen=True)
class Ran:
    """A statement in a database, in seconds since the epoch."""

    database: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Databases:
    """The data directory of a run; servers on it one after the other."""

    def __init__(self, root: Path, log: Path) -> None:
        self.root, self._log = root, log
        self._user = user()
        self._library: Path | None = None
        self._read = 0
        if self._user:
            shutil.chown(root, self._user, self._user)
        self._server = Server(root)
        initdb = [machine.postgres("initdb"), "-D", str(self._server.data), "-U", "postgres"]
        # Nobody else can come to the socket: the directory is its user's own.
        initdb += ["--auth", "trust", "--no-sync", "--encoding", "UTF8", "--locale", "C"]
        said([*tied("KILL", self._user), *initdb], "initdb")

    @property
    def socket(self) -> Path:
        return self._server.socket

    def psql(self, database: str, *words: str) -> str:
        return said(self._server.psql(*words, database=database), "psql").strip()

    def program(self, settings: tuple[str, ...], delay_us: int = 0) -> Program:
        command = self._server.command(*SETTINGS, *settings)
        if delay_us:
            command = ["env", f"LD_PRELOAD={self._delay()}", f"PAGE_DELAY_US={delay_us}", *command]
        # A fast shutdown, so that the next one has nothing to recover.
        return Program(command, "INT", self._user)

    def measured(self, mode: Mode) -> Program:
        self._read = 0
        (self._server.data / "log" / "queries").unlink(missing_ok=True)
        buffers = f"shared_buffers={mode.shared_buffers}"
        return self.program((*MEASURED, *LOGGED, buffers), mode.page_delay_us)

    def wait(self, processes: Processes) -> None:
        wait_until("PostgreSQL", self._server.answers, START_SECONDS, processes.check)

    @contextmanager
    def loading(self, run: Path) -> Iterator[None]:
        """To load by; leaves all tables without anything that is still to be done for them."""
        programs = {"postgres": self.program(("shared_buffers=512MB",))}
        with Processes(programs, run, self._log) as processes:
            self.wait(processes)
            self.prepare()
            yield
            vacuum = [machine.postgres("vacuumdb"), "-q", "-a", "-F", "-z", "-j", str(machine.cores())]
            said([*vacuum, "-h", str(self.root), "-U", "postgres"], "vacuumdb")
            self.psql("postgres", "-c", "CHECKPOINT")

    def prepare(self) -> None:
        """The roles, and the type of the descriptors in every database that is made from here on."""
        roles = f"CREATE ROLE {OWNER} LOGIN; CREATE ROLE {READER} LOGIN; GRANT pg_read_all_data TO {READER};"
        roles += f" ALTER ROLE {READER} SET log_duration = on"
        self.psql("template1", "-c", "CREATE EXTENSION cube", "-c", roles)

    def make(self, names: list[str], setup: str) -> None:
        """Databases, with what `setup` makes in each."""
        for name in names:
            self.psql("postgres", "-c", f"CREATE DATABASE {name} OWNER {OWNER}")
            if setup:
                self.psql(name, "-c", f"SET ROLE {OWNER}; {setup}")

    def pages(self, database: str, query: str) -> int:
        """Pages that a query does not find in the buffers."""
        plan = self.psql(database, "-c", f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}")
        return json.loads(plan)[0]["Plan"]["Shared Read Blocks"]

    def ran(self) -> list[Ran]:
        """The longest statement of each session that has logged since the last call: the query itself."""
        with (self._server.data / "log" / "queries").open() as file:
            file.seek(self._read)
            lines = file.readlines()
            whole = [line for line in lines if line.endswith("\n")]
            self._read += sum(len(line.encode()) for line in whole)
        longest: dict[str, Ran] = {}
        for line in whole:
            if match := _DURATION.match(line):
                end, seconds = float(match[1]), float(match[4]) / 1000
                found = longest.get(match[3])
                if found is None or seconds > found.seconds:
                    longest[match[3]] = Ran(match[2], end - seconds, end)
        return list(longest.values())

    def _delay(self) -> Path:
        """The library that makes reads slow, where PostgreSQL's user can read it."""
        if self._library is None:
            compiler = shutil.which("cc")
            if compiler is None:
                raise LabError("cc is not on the PATH; run `make tools`")
            self._library = self.root / "slow_reads.so"
            said([compiler, "-O2", "-shared", "-fPIC", "-o", str(self._library), str(SOURCE), "-ldl"], "cc")
            self._library.chmod(0o755)
        return self._library
