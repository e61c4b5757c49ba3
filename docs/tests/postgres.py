"""A host's PostgreSQL, as Debian's is: by a socket in /run/postgresql it knows users by their names."""

from docs.tests.host import Host
from tests.harness import programs

DATA = "/var/lib/postgresql/guide"
SETTINGS = "-c dynamic_shared_memory_type=mmap -c fsync=off -c listen_addresses="


def start(host: Host, hba: str = "", ident: str = "") -> None:
    """With lines before those of its own."""
    made = f"{programs.postgres('initdb')} -D {DATA} --no-sync --auth peer -U postgres"
    host.run(f"chown postgres: /run/postgresql; runuser -u postgres -- {made}")
    host.write("/tmp/hba", hba + host.read(f"{DATA}/pg_hba.conf"))
    host.write("/tmp/ident", ident)
    host.run(f"cat /tmp/hba >{DATA}/pg_hba.conf; cat /tmp/ident >{DATA}/pg_ident.conf")
    server = f"{programs.postgres('postgres')} -D {DATA} -k /run/postgresql {SETTINGS}"
    host.start("postgres", "runuser", "-u", "postgres", "--", *server.split())
    host.wait("PostgreSQL", lambda: "accepting" in host.run("pg_isready || true"))


def sql(host: Host, statements: str, database: str = "postgres") -> str:
    host.write("/tmp/statements.sql", statements)
    asked = f"psql -X -A -t -v ON_ERROR_STOP=1 -f /tmp/statements.sql {database}"
    return host.run(f"runuser -u postgres -- {asked}")
