"""wrk: a closed loop at full rate, or clients that pause between requests."""

import re
import subprocess
import tempfile
from dataclasses import dataclass

CONNECTIONS, SECONDS = 32, 2
# Number of clients that pause: enough to hold the rate if requests are short compared with the pause.
PAUSING = 64
READS = """\
local n = 0
request = function()
  n = n + 1
  return wrk.format("GET", ("/stock/S%04d?items=80"):format(n % 3000))
end
"""
# In milliseconds, evenly between nothing and twice the mean.
PAUSE = "delay = function() return math.random(0, {twice}) end\n"
UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}


@dataclass(frozen=True)
class Seen:
    per_second: float
    # Microseconds.
    median: float
    p99: float


def closed(
    port: int,
    cores: str | None,
    connections: int = CONNECTIONS,
    requests: str = READS,
    seconds: int = SECONDS,
) -> Seen:
    """As fast as answers come."""
    return _run(port, cores, connections, requests, seconds)


def paced(port: int, cores: str | None, per_second: float, seconds: int = SECONDS) -> Seen:
    """About this many requests a second."""
    twice = max(1, round(2e3 * PAUSING / per_second))
    return _run(port, cores, PAUSING, READS + PAUSE.format(twice=twice), seconds)


def _run(port: int, cores: str | None, connections: int, script: str, seconds: int) -> Seen:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", file.name]
        pinned = ["taskset", "--cpu-list", cores] if cores else []
        done = subprocess.run(
            [*pinned, *command, f"http://127.0.0.1:{port}/"], capture_output=True, text=True, check=True
        )
    return parse(done.stdout)


def parse(out: str) -> Seen:
    """Parses wrk's output."""
    if refused := re.search(r"Non-2xx or 3xx responses: \d+|Socket errors: .*", out):
        raise SystemExit(f"bench: requests failed: {refused[0]}")
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1])
    return Seen(rate, _latency(out, 50), _latency(out, 99))


def _latency(out: str, percent: int) -> float:
    value, unit = re.search(rf"{percent}%\s+([\d.]+)(us|ms|s)", out).groups()
    return float(value) * UNITS[unit]
