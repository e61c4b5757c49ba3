"""A reverse proxy over somebody's overload control library (loadtests/families/proxies)."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from compose.lab import machine, render
from compose.lab.proxy import Server
from compose.lab.sampler import fetch


@dataclass(frozen=True)
class Library:
    frontend: int
    command: list[str]
    metrics: int

    @classmethod
    def written(cls, policy: render.Policy, ports: render.Ports, run: Path) -> Self:
        """One with the policy's configuration, which is written into `run`."""
        config = json.loads(policy.example.read_text())
        config |= {
            "listen": f"127.0.0.1:{ports.frontend}",
            "admin": f"127.0.0.1:{ports.stats}",
            "nodes": {name: address for address, name in ports.names().items()},
            "settings": render.merged(config["settings"], policy.settings),
        }
        path = run / "lb1.json"
        path.write_text(json.dumps(config, indent=2) + "\n")
        return cls(ports.frontend, [machine.library(policy.proxy), "--config", str(path)], ports.stats)

    def servers(self) -> dict[str, Server]:
        """These proxies check no health: a node is up as far as they know."""
        answer = fetch(f"http://127.0.0.1:{self.metrics}/nodes")
        rows = json.loads(answer) if answer else {}
        return {name: Server(True, maxconn=str(row["limit"] or "")) for name, row in rows.items()}
