"""Looks at agents, proxy and cgroups once a second: nodes.csv for the report, the rest for who asks why."""

import csv
import gzip
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from compose.apps.quota import Quota
from compose.lab import proxy
from compose.lab.proxy import HAProxy, Proxy
from compose.lab.sampler import COLUMNS, EverySecond, agent_row, fetch

CPU_COLUMNS = ["t_s", "node", "cpu_s", "throttled_s"]


class Sampler(EverySecond):
    """`capacity` says what each node can do now, `agents` are ports, none where a policy has no agents."""

    def __init__(
        self,
        directory: Path,
        nodes: Mapping[str, Quota],
        front: Proxy,
        agents: list[int],
        capacity: Callable[[str], float],
        now: Callable[[], float],
    ) -> None:
        super().__init__(len(agents) + 1, now)
        self._nodes, self._front, self._agents, self._capacity = nodes, front, agents, capacity
        self._files = [(directory / name).open("w", newline="") for name in ("nodes.csv", "cpu.csv")]
        self._rows = csv.DictWriter(self._files[0], COLUMNS, restval="")
        self._cpu = csv.DictWriter(self._files[1], CPU_COLUMNS)
        # All that agents say, a line a node and second.
        self._said = gzip.open(directory / "agents.jsonl.gz", "wt", compresslevel=3) if agents else None  # noqa: SIM115 (closed by close)
        self._rows.writeheader()
        self._cpu.writeheader()

    def close(self) -> None:
        for file in filter(None, (*self._files, self._said)):
            file.close()

    def look(self, pool: ThreadPoolExecutor) -> None:
        t = round(self._now(), 2)
        answer = pool.submit(self._proxy_rows)
        views = [pool.submit(fetch, f"http://127.0.0.1:{port}/v1/node") for port in self._agents]
        seen = answer.result()
        for index, (name, quota) in enumerate(self._nodes.items()):
            row: dict[str, Any] = {"t_s": t, "node": name, "up": 0, **seen.get(name, {})}
            row["capacity_items_per_s"] = round(self._capacity(name), 2)
            if views and (view := views[index].result()):
                said = json.loads(view)
                row |= agent_row(said)
                print(json.dumps({"t_s": t, "node": name, **said["services"]["queries"]}), file=self._said)
            self._rows.writerow(row)
            used, throttled = quota.cpu_seconds(), quota.throttled_seconds()
            self._cpu.writerow(
                dict(zip(CPU_COLUMNS, (t, name, round(used, 3), round(throttled, 3)), strict=True))
            )
        for file in self._files:
            file.flush()

    def _proxy_rows(self) -> dict[str, dict[str, Any]]:
        """The proxy's state of each node; with HAProxy also its requests in flight there."""
        found = {
            name: {"up": int(server.up), "proxy_weight": server.weight, "proxy_maxconn": server.maxconn}
            for name, server in self._front.servers().items()
        }
        if isinstance(self._front, HAProxy):
            for name, row in proxy.servers(self._front.socket).items():
                found.setdefault(name, {})["jobs"] = row["scur"]
        return found
