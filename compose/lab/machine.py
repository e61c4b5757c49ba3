"""Machine and versions of a run."""

import functools
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from compose.lab.errors import LabError
from compose.lab.topology import ROOT

ENVOY_NEEDED = (1, 34)


def k6() -> str:
    local = ROOT / ".tools" / "bin" / "k6"
    found = str(local) if local.exists() else shutil.which("k6") or str(Path.home() / "go" / "bin" / "k6")
    if not Path(found).exists():
        raise LabError("k6 is neither in .tools/bin nor on the PATH; run `make tools`")
    return found


def haproxy() -> str:
    found = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not found:
        raise LabError("haproxy is not on the PATH; run `make tools`")
    return found


def redis() -> str:
    return _packaged("redis-server")


def patroni() -> str:
    return _packaged("patroni")


def patroni_version() -> str:
    """`patroni 3.0.2`, for one."""
    return _output([patroni(), "--version"]).strip()


def etcd() -> str:
    return _packaged("etcd")


def prometheus() -> str:
    return _packaged("prometheus")


def _packaged(name: str) -> str:
    found = shutil.which(name)
    if not found:
        raise LabError(f"{name} is not on the PATH; run `make tools`")
    return found


def postgres(name: str) -> str:
    """A program beside the server on the PATH, or else of the newest PostgreSQL: Debian keeps them off it,
    one directory a version."""
    server = shutil.which("postgres")
    if server and (beside := Path(server).resolve().parent / name).exists():
        return str(beside)
    found = [
        path
        for path in Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
        if path.parent.parent.name.isdecimal()
    ]
    if found:
        return str(max(found, key=lambda path: int(path.parent.parent.name)))
    elsewhere = shutil.which(name)
    if not elsewhere:
        raise LabError(
            f"PostgreSQL's {name} is neither below /usr/lib/postgresql nor on the PATH; run `make tools`"
        )
    return elsewhere


def database(kind: str) -> str:
    """Name of the nodes' database, with its version if it is a separate program."""
    if kind == "sqlite":
        return kind
    match = re.search(r"(\d+(?:\.\d+)+)", _output([postgres("postgres"), "--version"]))
    return f"postgres {match[1]}" if match else "postgres"


def _envoy_version(path: str) -> tuple[int, ...]:
    match = re.search(r"/(\d+)\.(\d+)\.(\d+)[/-]", _output([path, "--version"]))
    return tuple(map(int, match.groups())) if match else ()


@functools.cache
def found_envoy() -> tuple[str, str]:
    """Path and version of the first Envoy that is new enough: that on the PATH, then that of `make tools`."""
    found = []
    for path in (shutil.which("envoy"), str(ROOT / ".venv" / "bin" / "envoy")):
        if path and Path(path).exists():
            version = _envoy_version(path)
            if version >= ENVOY_NEEDED:
                return path, ".".join(map(str, version))
            found.append(f"{path} is {'.'.join(map(str, version)) or 'of no known version'}")
    needed = ".".join(map(str, ENVOY_NEEDED))
    what = "; ".join(found) or "envoy is neither on the PATH nor in .venv/bin"
    raise LabError(f"{what}; {needed} or later is needed: run `make tools`")


def envoy() -> str:
    return found_envoy()[0]


def envoy_version() -> str:
    return f"envoy {found_envoy()[1]}"


def binary(name: str) -> str:
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = Path(os.environ.get("PLIMSOLL_BIN_DIR", target / "release")) / name
    if not path.exists():
        raise LabError(f"{path} is not there; run `make build`")
    return str(path)


def wasm() -> Path:
    """Envoy's filter."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = target / "wasm32-wasip1" / "release" / "envoy_wasm.wasm"
    if not path.exists():
        raise LabError(f"{path} is not there; run `make build`")
    return path


def dynamic_module() -> Path:
    """Envoy's module."""
    return Path(binary("libplimsoll.so"))


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def haproxy_version() -> str:
    match = re.search(r"version (\d+\.\d+\.\d+)", _output([haproxy(), "-v"]))
    return f"haproxy {match[1]}" if match else "haproxy"


def _installed_envoy() -> str:
    """Its version; empty where there is none, which only Envoy's policies need."""
    try:
        return found_envoy()[1]
    except LabError:
        return ""


def library(name: str) -> str:
    """The reverse proxy over an overload control library."""
    path = ROOT / ".tools" / "families" / "bin" / name
    if not path.exists():
        raise LabError(f"{path} is not there; run `make libraries`")
    return str(path)


def proxy_version(kind: str) -> str:
    known = {"haproxy": haproxy_version, "envoy": envoy_version}
    return known[kind]() if kind in known else _output([library(kind), "--version"]).strip()


def cores() -> int:
    return len(os.sched_getaffinity(0))


def describe() -> dict[str, str | int]:
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return {
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": cores(),
        "memory": f"{int(memory[1]) / 1048576:.1f} GiB" if memory else "",
        "kernel": platform.release(),
        "haproxy": haproxy_version().removeprefix("haproxy "),
        "envoy": _installed_envoy(),
        "k6": _output([k6(), "version"]).split()[1] if _output([k6(), "version"]).split() else "",
    }
