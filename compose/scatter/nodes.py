"""The agents of the nodes, and the aggregator before them."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from compose.lab import machine
from compose.lab.processes import Processes, answers, free_ports, wait_until
from compose.scatter.databases import READER, Databases
from compose.scatter.partitionings import NODES, QUERY, SQL, Partitioning

GATHER = "gather"
READY_SECONDS = 20
# As the paper's queries, none of which is called off.
DEADLINE = "60s"
_AGENT = """\
[http]
listen = "127.0.0.1:{http}"
[agent_check]
listen = "127.0.0.1:{check}"
[[service]]
name = "molecules"
[service.sla]
delay = "1s"
[service.bound]
nominal = 10
[service.source]
kind = "haproxy-log"
listen = "unix://{run}/{name}.log.sock"
node = "molecules/{name}"
"""


def _quoted(text: str | Path) -> str:
    return json.dumps(str(text))


@dataclass(frozen=True)
class Nodes:
    """Their programs, and where the aggregator listens."""

    programs: dict[str, list[str]]
    agents: dict[str, int]
    gather: int

    def wait(self, processes: Processes) -> None:
        for name, port in {**self.agents, GATHER: self.gather}.items():
            url = f"http://127.0.0.1:{port}/healthz"
            wait_until(name, lambda url=url: answers(url), READY_SECONDS, processes.check)


def configure(partitionings: tuple[Partitioning, ...], databases: Databases, run: Path) -> Nodes:
    ports = free_ports(2 * NODES + 1)
    names = [f"node{number + 1}" for number in range(NODES)]
    agents = dict(zip(names, ports[:NODES], strict=True))
    checks = dict(zip(names, ports[NODES:-1], strict=True))
    lines = [f'[http]\nlisten = "127.0.0.1:{ports[-1]}"\n[gather]\nmax_deadline = "{DEADLINE}"\n[nodes]\n']
    lines += [f'{name} = "127.0.0.1:{port}"\n' for name, port in agents.items()]
    texts = {name: _AGENT.format(http=agents[name], check=checks[name], run=run, name=name) for name in names}
    for one in partitionings:
        for name in names[: one.nodes]:
            database = one.database(name)
            texts[name] += (
                f'[[partition]]\nname = "{database}"\naddress = "unix://{databases.socket}"\n'
                f'user = "{READER}"\ndatabase = "{database}"\n[partition.queries]\n{QUERY} = {_quoted(SQL)}\n'
            )
            lines.append(f'[[partition]]\nname = "{database}"\nnodes = ["{name}"]\n')
    programs = {}
    cores = sorted(os.sched_getaffinity(0))
    for number, name in enumerate(names):
        path = run / f"{name}.toml"
        path.write_text(texts[name])
        # An agent runs as many queries at once as it has cores: a node of these has one.
        pinned = [shutil.which("taskset") or "taskset", "-c", str(cores[number % len(cores)])]
        programs[name] = [*pinned, machine.binary("plimsoll"), "agent", "--config", str(path)]
    path = run / "gather.toml"
    path.write_text("".join(lines))
    programs[GATHER] = [machine.binary("plimsoll"), "gather", "--config", str(path)]
    return Nodes(programs, agents, ports[-1])
