"""PostgreSQL, which a test may kill and start again."""

import shutil
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from compose.lab import patroni, postgres
from compose.lab.patroni import Member
from compose.lab.processes import tied
from tests.harness import programs
from tests.harness.eventually import eventually
from tests.harness.process import Program

START_S = 60


class Database(Program):
    """PostgreSQL server that trusts all clients of its socket, which is in a directory of its own."""

    def __init__(self, stack: ExitStack, member: Member, log: Path) -> None:
        self.member, self._user = member, postgres.user()
        member.directory.mkdir(mode=0o700)
        if self._user:
            shutil.chown(member.directory, self._user, self._user)
        settings = {**patroni.PARAMETERS, "fsync": "off", "listen_addresses": "", "port": member.port}
        settings["unix_socket_directories"] = member.directory
        command = self._words("postgres", *(f"--{name}={value}" for name, value in settings.items()))
        super().__init__(stack, command, log)
        # Before it is killed: it removes its shared memory.
        stack.callback(self.stop)

    def _words(self, program: str, *more: str) -> list[str]:
        data = str(self.member.directory / "data")
        return [*tied(postgres.END, self._user), programs.postgres(program), "-D", data, *more]

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

    def start(self, *words: str) -> Self:
        def is_up() -> bool:
            # It ends at once while there are processes left of one that was killed.
            if not self.processes or self.process.poll() is not None:
                super(Database, self).start(*words)
            ping = subprocess.run(self.member.psql("-c", "SELECT 1"), capture_output=True, check=False)
            return ping.returncode == 0

        eventually(f"{self.member.name}'s PostgreSQL", is_up, START_S)
        return self

    def stop(self) -> None:
        if self.processes:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()
