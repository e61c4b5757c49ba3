"""Looks at agents, nodes and proxy once a second and writes nodes.csv."""

import csv
import http.client
import json
import re
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from compose.lab.stack import Plan
from compose.lab.topology import Node

COLUMNS = [
    "t_s",
    "node",
    "up",
    "bound",
    "bound_jobs",
    "reason",
    "weight_percent",
    "proxy_weight",
    "proxy_maxconn",
    "jobs",
    "delay_s",
    "capacity_items_per_s",
    "cache_hits",
    "cache_misses",
    "updates",
    "update_items",
    "update_relaxed",
    "update_longest_s",
    "update_hot_relaxed",
]
_COUNTER = re.compile(r"^(stocks_\w+?)(?:\{([^}]*)\})? ([0-9.eE+-]+)$", re.MULTILINE)


def fetch(url: str) -> str | None:
    """Body of the response; empty after a timeout or an error, None if the connection is refused."""
    try:
        with urllib.request.urlopen(url, timeout=0.8) as response:
            return response.read().decode()
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return None if isinstance(reason, ConnectionRefusedError) else ""


def node_counters(text: str) -> dict[str, float]:
    """The node's counters that the lab needs, summed over labels; queries only with a class."""
    totals: dict[str, float] = {}
    for name, labels, value in _COUNTER.findall(text):
        if name.endswith("_bucket") or 'class="transaction"' in labels:
            continue
        totals[name] = totals.get(name, 0.0) + float(value)
    return totals


class Reads:
    """Which items are hot beyond doubt: over the last ten seconds, read twice as often as updated."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, dict[str, float]]] = deque(maxlen=11)

    def hot(self, t: float, listed: dict[str, Any]) -> set[str]:
        now = {item["name"]: item["accesses"] for item in listed["items"]}
        self._counts.append((t, now))
        since, then = self._counts[0]
        if len(self._counts) < 11:
            return set()
        wanted = {item["name"]: 2 / item["period_seconds"] for item in listed["items"]}
        return {
            name for name, count in now.items() if count - then.get(name, 0) >= wanted[name] * (t - since)
        }


class EverySecond:
    """Looks by as many threads as there are things to look at, until it is left."""

    def __init__(self, threads: int, now: Callable[[], float]) -> None:
        self._threads, self._now = threads, now
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.close()

    def _loop(self) -> None:
        with ThreadPoolExecutor(self._threads) as pool:
            while not self._stop.wait(max(0.0, 1 - self._now() % 1)):
                self.look(pool)

    def look(self, pool: ThreadPoolExecutor) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Sampler(EverySecond):
    def __init__(self, path: Path, slaves: list[Node], plan: Plan, now: Callable[[], float]) -> None:
        super().__init__(4 * len(slaves) + 1, now)
        self._slaves, self._plan = slaves, plan
        self._file = path.open("w", newline="")
        self._csv = csv.DictWriter(self._file, COLUMNS, restval="")
        self._csv.writeheader()
        self._last: dict[str, dict[str, float]] = {}
        self._read: dict[str, Reads] = {node.name: Reads() for node in slaves}
        self._hit_ratio = dict.fromkeys((node.name for node in slaves), 0.0)

    def close(self) -> None:
        self._file.close()

    def look(self, pool: ThreadPoolExecutor) -> None:
        t, plan = round(self._now(), 2), self._plan
        answer = pool.submit(next(iter(plan.proxies.values())).servers)
        addresses = [plan.ports.node(index) for index in range(len(self._slaves))]
        nodes = [pool.submit(fetch, f"http://{address}/metrics") for address in addresses]
        agents = plan.ports.agents if plan.has_agents else []
        wanted = [
            (
                pool.submit(fetch, f"http://127.0.0.1:{port}/v1/updates"),
                pool.submit(fetch, f"http://{node}/accesses"),
            )
            for port, node in zip(agents if plan.has_updates else [], addresses, strict=False)
        ]
        views = [pool.submit(fetch, f"http://127.0.0.1:{port}/v1/node") for port in agents]
        servers = answer.result()
        for index, node in enumerate(self._slaves):
            row: dict[str, Any] = {"t_s": t, "node": node.name, "up": 0, "capacity_items_per_s": 0}
            if server := servers.get(f"node{index + 1}"):
                row["up"] = int(server.up)
                row["proxy_weight"], row["proxy_maxconn"] = server.weight, server.maxconn
            metrics = nodes[index].result()
            if metrics is not None:
                row |= self._node(node, node_counters(metrics)) if metrics else self._silent(node)
            if views and (view := views[index].result()):
                row |= agent_row(json.loads(view))
            if wanted and (periods := wanted[index][0].result()) and (reads := wanted[index][1].result()):
                hot = self._read[node.name].hot(t, json.loads(reads))
                row["update_hot_relaxed"] = len(hot & json.loads(periods)["periods"].keys())
            self._csv.writerow(row)
        self._file.flush()

    def _silent(self, node: Node) -> dict[str, Any]:
        """A node that is there and did not answer in time: as fast as it was."""
        return {"capacity_items_per_s": round(node.capacity(self._hit_ratio[node.name]), 1)}

    def _node(self, node: Node, now: dict[str, float]) -> dict[str, Any]:
        before, self._last[node.name] = self._last.get(node.name, {}), now

        # A node that was started again counts from 0.
        if any(now.get(name, 0.0) < value for name, value in before.items() if name.endswith("_total")):
            before = {}

        def change(name: str) -> float:
            return now.get(name, 0.0) - before.get(name, 0.0)

        hits, misses = change("stocks_cache_hits_total"), change("stocks_cache_misses_total")
        if hits + misses > 0:
            self._hit_ratio[node.name] = hits / (hits + misses)
        # Samples are a second apart.
        updates = change("stocks_price_updates_total") if before else 0.0
        row: dict[str, Any] = {
            "jobs": now.get("stocks_jobs", ""),
            "capacity_items_per_s": round(node.capacity(self._hit_ratio[node.name], updates), 1),
        }
        if before:
            row["updates"] = round(updates)
            row["cache_hits"], row["cache_misses"] = round(hits), round(misses)
        finished = change("stocks_request_duration_seconds_count")
        if finished > 0:
            row["delay_s"] = round(change("stocks_request_duration_seconds_sum") / finished, 4)
        return row


def agent_row(view: dict[str, Any]) -> dict[str, Any]:
    """The columns an agent's /v1/node fills."""
    for service in view.get("services", {}).values():
        decision = service["decision"]
        row = {
            "bound": round(decision["bound"], 2),
            "bound_jobs": round(decision["bound_jobs"], 2),
            "reason": decision["reason"],
            "weight_percent": service["weight_percent"],
        }
        if decision.get("measured_delay") is not None:
            row["delay_s"] = round(decision["measured_delay"], 4)
        if updates := service.get("updates"):
            row["update_items"], row["update_relaxed"] = updates["items"], updates["relaxed"]
            row["update_longest_s"] = round(updates["longest_now"], 3)
        return row
    return {}
