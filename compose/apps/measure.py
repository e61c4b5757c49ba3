"""Measures one node of each application: its capacity within a quota, and the queueing in its histogram.

    python -m compose.apps.measure go flask --quota 0.25

The load is a burst of about twice the capacity for ten seconds, whose clients all wait for their responses,
so that client and histogram measure the same requests."""

import argparse
import json
import re
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from compose.apps import catalog
from compose.apps.quota import Quota
from compose.lab import machine
from compose.lab.processes import Processes, answers, free_ports, wait_until

HOST = "127.0.0.1"
SCRIPT = Path(__file__).with_name("measure.js")
BURST_SECONDS = 10
# Mean CPU seconds of a request, as in measure.js.
MEAN_CPU_SECONDS = 0.0118
OVERLOAD = 2


@dataclass(frozen=True)
class Seen:
    """Cumulative count and sum of a histogram."""

    count: float
    sum: float

    @staticmethod
    def at(url: str | None, source: dict | None) -> "Seen":
        if url is None or source is None:
            return Seen(0, 0)
        with urllib.request.urlopen(url, timeout=120) as response:
            text = response.read().decode()
        labels = [f'{key}="{value}"' for key, value in source.get("labels", {}).items()]

        def total(suffix: str) -> float:
            series = re.findall(rf"^{source['histogram']}_{suffix}(\{{.*\}})? (\S+)$", text, re.MULTILINE)
            return sum(float(value) for key, value in series if all(label in key for label in labels))

        return Seen(total("count"), total("sum"))


def memory_mib(pids: list[int]) -> float:
    """Resident, a page that is shared by n processes counted as 1/n in each."""
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    return sum(int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)[1]) for text in rollups) / 1024


def burst(url: str, rate: int, report: Path) -> dict:
    """k6's metrics of it."""
    settings = {"URL": url, "RATE": rate, "SECONDS": BURST_SECONDS}
    words = [word for key, value in settings.items() for word in ("--env", f"{key}={value}")]
    command = [machine.k6(), "run", "--quiet", *words, "--summary-export", str(report), str(SCRIPT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads(report.read_text())["metrics"]


def measure(name: str, fraction: float) -> dict[str, str]:
    app = catalog.app(name)
    port, metrics_port = free_ports(2)
    with catalog.directory() as root, Quota(name, 1) as quota:
        run = root / name
        run.mkdir()
        programs = app.programs(name, HOST, port, run, metrics_port)
        inside = {program: quota.inside(command) for program, command in programs.items()}
        with Processes(inside, root, root) as processes:
            wait_until(name, lambda: answers(app.ready(HOST, port)), 60, processes.check)
            quota.set(fraction)
            idle = memory_mib(quota.processes())
            metrics = app.metrics_url(HOST, port, metrics_port)
            before, used, began = Seen.at(metrics, app.source), quota.cpu_seconds(), time.monotonic()
            rate = round(OVERLOAD * fraction / MEAN_CPU_SECONDS)
            client = burst(f"http://{HOST}:{port}", rate, root / "k6.json")
            elapsed, used = time.monotonic() - began, quota.cpu_seconds() - used
            after = Seen.at(metrics, app.source)
            busy = memory_mib(quota.processes())
    finished = client["http_reqs"]["count"] * (1 - client["http_req_failed"]["value"])
    mean = client["http_req_duration"]["avg"] / 1000
    counted = after.count - before.count
    return {
        "requests/s": f"{finished / elapsed:.1f}",
        "failed": f"{client['http_req_failed']['value']:.1%}",
        "core used": f"{used / elapsed:.3f}",
        "CPU ms a request": f"{1000 * used / finished:.1f}",
        "MiB idle": f"{idle:.0f}",
        "MiB after": f"{busy:.0f}",
        "client's mean": f"{mean:.2f} s",
        "histogram's mean": f"{(after.sum - before.sum) / counted:.2f} s" if counted else "",
        "histogram saw": f"{(after.sum - before.sum) / counted / mean:.0%}" if counted else "",
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m compose.apps.measure")
    parser.add_argument("names", nargs="*", default=catalog.NAMES)
    parser.add_argument("--quota", type=float, default=0.25, help="of one core")
    args = parser.parse_args()
    for name in args.names:
        figures = measure(name, args.quota)
        print(name, *(f"{key} {value}" for key, value in figures.items() if value), sep="; ", flush=True)


if __name__ == "__main__":
    main()
