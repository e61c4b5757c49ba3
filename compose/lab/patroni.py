"""PostgreSQL under Patroni, with one etcd, for scenario master-failover.

A node's Patroni and PostgreSQL have spaces of process ids and shared memory of their own: they end together,
at once, also with the lab, and leave nothing. No signal would do that for the PostgreSQL of a Patroni that is
killed."""

import http.client
import json
import os
import pwd
import secrets
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compose.lab import machine, postgres, scratch
from compose.lab.processes import tied
from compose.lab.topology import ROOT

SETUP = ROOT / "compose" / "patroni"
SCOPE = "ledger"
# Seconds. Patroni's documentation has 20 as the least ttl, and wants loop_wait + 2 * retry_timeout <= ttl.
TTL = 20
TIMES = {"ttl": TTL, "loop_wait": 5, "retry_timeout": 5}
ROLES = ("postgres", "ledger", "plimsoll")
APART = ["unshare", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--ipc"]
# Options that permit this without root.
AS_USER = ["--user", "--map-current-user"]
PARAMETERS = {
    # A commit is on the disk of the primary and of the synchronous standbys.
    "synchronous_commit": "on",
    "wal_keep_size": "256MB",
    "wal_retrieve_retry_interval": "200ms",
    # A standby asks after half of it whether its primary is still there: so an idle one is known to be level.
    "wal_receiver_timeout": "2s",
    "wal_sender_timeout": "5s",
    "shared_buffers": "32MB",
    "max_connections": 60,
    "jit": "off",
    "dynamic_shared_memory_type": "mmap",
}


@dataclass(frozen=True)
class Member:
    """One PostgreSQL and its Patroni."""

    name: str
    directory: Path
    port: int
    rest: int

    @property
    def socket(self) -> Path:
        return self.directory / f".s.PGSQL.{self.port}"

    def connection(self, role: str) -> str:
        return f"host={self.directory} port={self.port} user={role} dbname={SCOPE}"

    def psql(self, *words: str, database: str = "postgres") -> list[str]:
        return postgres.psql(self.directory, *words, database=database, port=self.port)

    def sql(self, statement: str, database: str = "postgres") -> str:
        return postgres.said(self.psql("-c", statement, database=database), f"{self.name}: {statement}")

    def said(self) -> dict[str, Any]:
        """Status from its Patroni; empty while that does not respond."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.rest}/patroni", timeout=1) as response:
                return json.load(response)
        except (OSError, http.client.HTTPException, ValueError):
            return {}

    @property
    def is_primary(self) -> bool:
        said = self.said()
        return said.get("state") == "running" and said.get("role") == "master"


@dataclass(frozen=True)
class Cluster:
    members: list[Member]
    programs: dict[str, list[str]]

    def primary(self) -> Member | None:
        return next((member for member in self.members if member.is_primary), None)

    def is_whole(self) -> bool:
        """Whether commits wait for all standbys."""
        primary = self.primary()
        if primary is None:
            return False
        told = primary.said().get("replication", [])
        level = [one for one in told if one["state"] == "streaming" and one["sync_state"] == "sync"]
        return len(level) == len(self.members) - 1

    def set_up(self) -> None:
        primary = self.primary()
        assert primary is not None
        postgres.said(primary.psql("-f", str(SETUP / "setup.sql")), str(SETUP / "setup.sql"))


def program(node: str) -> str:
    return f"{node}-patroni"


def configuration(
    member: Member, members: list[Member], etcd: int, owner: str, passwords: dict[str, str]
) -> dict:
    """For Patroni; JSON is YAML."""
    listen = f"127.0.0.1:{member.port}"
    rest = f"127.0.0.1:{member.rest}"
    # By the socket as who one is, by the port, which standbys use, with a password.
    hba = ["local all all peer map=lab", "local replication replicator peer map=lab"]
    hba += [f"host {what} {role} 127.0.0.1/32 scram-sha-256" for what, role in LOGINS]
    names = sorted({pwd.getpwuid(os.geteuid()).pw_name, owner})
    return {
        "scope": SCOPE,
        "name": member.name,
        "restapi": {"listen": rest, "connect_address": rest},
        "etcd3": {"host": f"127.0.0.1:{etcd}"},
        "bootstrap": {
            "dcs": {
                **TIMES,
                "synchronous_mode": True,
                "synchronous_node_count": len(members) - 1,
                "postgresql": {"use_pg_rewind": True},
            },
            "initdb": [
                *(
                    {key: value}
                    for key, value in {"encoding": "UTF8", "locale": "C", "wal-segsize": "4"}.items()
                ),
                "data-checksums",
            ],
        },
        "postgresql": {
            "listen": listen,
            "connect_address": listen,
            "data_dir": str(member.directory / "data"),
            "bin_dir": str(Path(machine.postgres("postgres")).parent),
            "pgpass": str(member.directory / "pgpass"),
            "use_unix_socket": True,
            "authentication": {
                "superuser": {"username": "postgres", "password": passwords["postgres"]},
                "replication": {"username": "replicator", "password": passwords["replicator"]},
            },
            "pg_hba": hba,
            "pg_ident": [f"lab {name} {role}" for name in names for role in (*ROLES, "replicator")],
            "parameters": {**PARAMETERS, "unix_socket_directories": str(member.directory)},
            "basebackup": [{"checkpoint": "fast"}, "no-sync"],
        },
    }


LOGINS = (("replication", "replicator"), ("all", "postgres"))


@contextmanager
def cluster(names: list[str], ports: list[int], run: Path) -> Iterator[Cluster]:
    """Two ports for etcd, two for each node. The data go when it is left."""
    user = postgres.user()
    owner = user or pwd.getpwuid(os.geteuid()).pw_name
    passwords = {role: secrets.token_hex(16) for role in ("postgres", "replicator")}
    # PostgreSQL's user must have access, which it may not have to the lab's own directory.
    with scratch.directory("plimsoll-sql-", "/tmp" if user else None) as root:
        if user:
            shutil.chown(root, user, user)
        client, peer, *rest = ports
        members = [
            Member(name, root / name, rest[2 * index], rest[2 * index + 1])
            for index, name in enumerate(names)
        ]
        programs = {"etcd": etcd_command(run, client, peer)}
        for member in members:
            member.directory.mkdir(mode=0o700)
            path = member.directory / "patroni.yaml"
            path.touch(mode=0o600)
            path.write_text(json.dumps(configuration(member, members, client, owner, passwords), indent=1))
            if user:
                for place in (member.directory, path):
                    shutil.chown(place, user, user)
            command = [machine.patroni(), str(path)]
            # In a space of user ids, which root does not need, PostgreSQL could not tell who asks it.
            apart = [*APART, *tied("KILL", user)] if user else [*APART, *AS_USER]
            programs[program(member.name)] = [*apart, *command]
        yield Cluster(members, programs)


def etcd_command(run: Path, client: int, peer: int) -> list[str]:
    urls = {"client": f"http://127.0.0.1:{client}", "peer": f"http://127.0.0.1:{peer}"}
    command = [machine.etcd(), "--name", "etcd", "--data-dir", str(run / "etcd"), "--logger", "zap"]
    command += ["--listen-client-urls", urls["client"], "--advertise-client-urls", urls["client"]]
    command += ["--listen-peer-urls", urls["peer"], "--initial-advertise-peer-urls", urls["peer"]]
    return [*command, "--initial-cluster", f"etcd={urls['peer']}"]


def entries(member: Member) -> set[str]:
    """All that its database has."""
    return set(member.sql("SELECT id FROM entries", SCOPE).split())
