"""Programs: nodes with their agents, two HAProxys and an Envoy, three Redis with a sentinel beside each."""

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import redis
import yaml

from compose.chaos.network import Host, bridge, command
from compose.lab import machine, proxy, render
from compose.lab.envoy import BUILT, foreground, relocated
from compose.lab.errors import LabError
from compose.lab.processes import Processes, answers, wait_until

NODES = ("node1", "node2", "node3")
HAPROXYS = ("lb1", "lb2")
PROXIES = (*HAPROXYS, "lb3")
REDISES = ("redis1", "redis2", "redis3")
SENTINELS = ("sentinel1", "sentinel2", "sentinel3")
STORE = "store"
HOSTS = {
    **{name: 11 + index for index, name in enumerate(NODES)},
    **{name: 21 + index for index, name in enumerate(REDISES)},
    **{name: 31 + index for index, name in enumerate(PROXIES)},
    STORE: 41,
}
WEB, SERVICE, AGENT, CHECK, REDIS, SENTINEL, REPLICATION = 8080, 8101, 9464, 9101, 6379, 26379, 8199
CLUSTER = "stocks"
QUORUM = 2
# A dispatcher is a thread of HAProxy or a worker of Envoy.
THREADS = 1
# Items of queries that a node may have in hand, and of each.
BOUND_ITEMS = 120
QUERY_ITEMS, WRITE_ITEMS = 20, 12
LEASE_SECONDS, REQUEST_LIMIT_SECONDS = 3, 5
# A write has ended by then, wherever it waited: below REQUEST_LIMIT_SECONDS.
WRITE_SECONDS = 4
SYMBOLS, ACCOUNTS = 300, 3000
DATA = ["--symbols", str(SYMBOLS), "--history", "10", "--accounts", str(ACCOUNTS)]
SERVE = ["--workers", "8", "--process-latency", "4ms", "--read-latency", "0s", "--replication-timeout", "1s"]
# Prices are not what this is about.
PRICES = ["--price-update-min", "60s", "--price-update-max", "60s"]
STATE_SIZE, REDIS_SIZE = "1m", "24m"
CLOCK_SOURCE = Path(__file__).with_name("stepped_clock.c")
REDIS_CONFIGURATION = f"""\
bind {{address}}
protected-mode no
port {REDIS}
dir {{directory}}
save ""
appendonly yes
min-replicas-to-write 1
min-replicas-max-lag 1
repl-timeout 5
repl-diskless-sync-delay 0
"""
SENTINEL_CONFIGURATION = f"""\
bind {{address}}
protected-mode no
port {SENTINEL}
dir {{directory}}
sentinel monitor {CLUSTER} {{master}} {REDIS} {QUORUM}
sentinel down-after-milliseconds {CLUSTER} 1000
sentinel failover-timeout {CLUSTER} 4000
"""


@dataclass(frozen=True)
class Program:
    host: str
    command: list[str]
    # Whether it goes by a clock that may be set.
    has_clock: bool = True


def built_clock(directory: Path) -> Path:
    """The library that makes a program's clock one that can be set."""
    library = directory / "stepped_clock.so"
    command("cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(CLOCK_SOURCE))
    return library


class Site:
    def __init__(self, seed: int, directory: Path, stack: ExitStack) -> None:
        self.directory, self.seed = directory, seed
        bridge()
        self.hosts = {name: Host(name, number, stack) for name, number in HOSTS.items()}
        for kind in ("claims", "disks", "clocks", "logs", "journals"):
            (directory / kind).mkdir()
        self.clocks = {name: directory / "clocks" / name for name in HOSTS}
        for clock in self.clocks.values():
            clock.write_bytes(bytes(8))
        self.disks = {name: self._disk(name, STATE_SIZE, stack) for name in NODES}
        self.disks |= {name: self._disk(name, REDIS_SIZE, stack) for name in REDISES}
        self._library = built_clock(directory)
        self.programs = self._programs()
        started = {name: self._started(program) for name, program in self.programs.items()}
        self.processes = stack.enter_context(Processes(started, directory, directory / "logs"))

    def address(self, host: str) -> str:
        return self.hosts[host].address

    def _disk(self, name: str, size: str, stack: ExitStack) -> Path:
        disk = self.directory / "disks" / name
        disk.mkdir()
        command("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk))
        # Its directory cannot be removed before.
        stack.callback(command, "umount", "--lazy", str(disk))
        return disk

    def _started(self, program: Program) -> list[str]:
        words = program.command
        if program.has_clock:
            clock = [f"LD_PRELOAD={self._library}", f"CLOCK_OFFSET={self.clocks[program.host]}"]
            words = ["env", *clock, *words]
        return self.hosts[program.host].inside(*words)

    def _programs(self) -> dict[str, Program]:
        found = {STORE: Program(STORE, self._serve(STORE), False)}
        for name in NODES:
            found[name] = Program(name, self._serve(name), False)
            found[f"{name}-agent"] = Program(name, self._agent(name))
        for name, sentinel in zip(REDISES, SENTINELS, strict=True):
            found[name] = Program(name, self._redis(name))
            found[sentinel] = Program(name, self._sentinel(name, sentinel))
        found |= {name: Program(name, self._haproxy(name)) for name in HAPROXYS}
        found["lb3"] = Program("lb3", self._envoy("lb3"))
        return found

    def _serve(self, name: str) -> list[str]:
        master = name == STORE
        words = [machine.binary("stocks"), "serve", "--name", name, "--seed", str(self.seed), *DATA, *SERVE]
        words += [*PRICES, "--listen", f"{self.address(name)}:{SERVICE}"]
        words += ["--data-dir", str(self.directory / f"{name}.data")]
        replication = f"{self.address(STORE)}:{REPLICATION}"
        if master:
            return [*words, "--role", "master", "--replication-listen", replication]
        words += ["--role", "slave", "--primary", "--master", replication]
        words += ["--witness-directory", str(self.directory / "claims")]
        return [*words, "--journal", str(self.directory / "journals" / f"{name}.jsonl")]

    def _agent(self, name: str) -> list[str]:
        address = self.address(name)
        config = {
            "agent": {"period": "250ms", "state_directory": str(self.disks[name])},
            "http": {"listen": f"{address}:{AGENT}"},
            "agent_check": {"listen": f"{address}:{CHECK}"},
            "redis": {
                "urls": [f"redis://{self.address(host)}:{SENTINEL}" for host in REDISES],
                "mode": "sentinel",
                "sentinel_master": CLUSTER,
            },
            "placement": {
                "cluster": CLUSTER,
                "period": "500ms",
                "lease": f"{LEASE_SECONDS}s",
                "request_limit": f"{REQUEST_LIMIT_SECONDS}s",
                "when_lost": "hold",
            },
        }
        service = {
            "name": "stocks",
            "identities": [f"queries/{name}"],
            "address": f"{address}:{SERVICE}",
            "sla": {"delay": "1s"},
            "bound": {"nominal": BOUND_ITEMS, "min": BOUND_ITEMS},
            "controller": {"kind": "fixed"},
            "source": {
                "kind": "prometheus",
                "url": f"http://{address}:{SERVICE}/metrics",
                "histogram": "stocks_request_duration_seconds",
                "labels": {"class": "query"},
                "failed": "stocks_requests_failed_total",
                "cost": "stocks_items_total",
            },
            "ring": {"cluster": CLUSTER, "node": name, "lease": f"{LEASE_SECONDS}s"},
        }
        path = self.directory / f"{name}.agent.toml"
        path.write_text(render.with_service(config, service))
        return [machine.binary("plimsoll"), "agent", "--config", str(path)]

    def _redis(self, name: str) -> list[str]:
        # Sentinels have it rewritten.
        path = self.disks[name] / "redis.conf"
        text = REDIS_CONFIGURATION.format(address=self.address(name), directory=self.disks[name])
        if name != REDISES[0]:
            text += f"replicaof {self.address(REDISES[0])} {REDIS}\n"
        path.write_text(text)
        return [machine.redis(), str(path)]

    def _sentinel(self, host: str, name: str) -> list[str]:
        path = self.directory / f"{name}.conf"
        where = {"address": self.address(host), "master": self.address(REDISES[0])}
        path.write_text(SENTINEL_CONFIGURATION.format(directory=self.directory, **where))
        return [machine.redis(), str(path), "--sentinel"]

    def _haproxy(self, name: str) -> list[str]:
        settings = {
            "cluster": CLUSTER,
            "backend": "queries",
            "policy": "fc_hash",
            "proxy": name,
            "period": 0.25,
            "redis": {
                "addresses": [f"{self.address(host)}:{SENTINEL}" for host in REDISES],
                "sentinel": CLUSTER,
                "timeout": 0.5,
            },
            "cost": {"default": QUERY_ITEMS},
            "placement": {"backend": "transactions", "wait": 1},
        }
        lua = self.directory / f"{name}.lua"
        lua.write_text(f'require("plimsoll").start({render.lua_value(settings)})\n')
        moved = {
            "127.0.0.1:8080": f"{self.address(name)}:{WEB}",
            "127.0.0.1:8404": f"{self.address(name)}:8404",
            "/run/haproxy/plimsoll.sock": str(self.directory / f"{name}.sock"),
            "/usr/share/plimsoll/lua": str(machine.ROOT / "lua"),
            "/etc/haproxy/plimsoll.lua": str(lua),
            "    maxconn 8000": f"    maxconn 8000\n    nbthread {THREADS}",
            "timeout server 30s": f"timeout server {WRITE_SECONDS}s",
            # Few at a time, so that some wait in the proxy where a node is slow.
            "default-server weight 0": "default-server weight 0 maxconn 2",
        }
        text = (render.EXAMPLES / "lua-placement.cfg").read_text()
        for old, new in moved.items():
            if old not in text:
                raise LabError(f"lua-placement.cfg has no {old!r}")
            text = text.replace(old, new)

        def servers(line: str) -> list[str]:
            line = line.replace("agent-port", "agent-addr AGENT agent-port")
            return [
                render.server(line, index, f"{self.address(node)}:{SERVICE}", CHECK)
                .replace("agent-addr AGENT", f"agent-addr {self.address(node)}")
                for index, node in enumerate(NODES)
            ]  # fmt: skip

        path = self.directory / f"{name}.cfg"
        path.write_text(render.expanded(text, servers))
        return proxy.foreground(path)

    def _envoy(self, name: str) -> list[str]:
        example = machine.ROOT / "envoy-module" / "examples" / "module-placement.yaml"
        moved = {8080: (self.address(name), WEB), 9901: (self.address(name), 9901)}
        for index, node in enumerate(NODES):
            moved |= {8101 + index: (self.address(node), SERVICE), 9601 + index: (self.address(node), AGENT)}
        made = relocated(yaml.safe_load(example.read_text()), moved, BUILT)
        kept = {f"primary-{node}" for node in NODES}
        clusters = made["static_resources"]["clusters"]
        clusters[:] = [it for it in clusters if it["name"] in kept or not it["name"].startswith("primary-")]
        for cluster in clusters:
            for group in cluster["load_assignment"]["endpoints"]:
                group["lb_endpoints"] = [it for it in group["lb_endpoints"] if "10.88." in str(it)]
        text = yaml.safe_dump(made, sort_keys=False).replace("timeout: 30s", f"timeout: {WRITE_SECONDS}s")
        path = self.directory / f"{name}.yaml"
        path.write_text(text)
        return foreground(path, THREADS)

    def wait_ready(self) -> None:
        check = self.processes.check
        for name in REDISES:
            address = self.address(name)
            wait_until(f"{name}'s sentinel", lambda address=address: can_fail_over(address), 30, check)
        for name in (STORE, *NODES):
            url = f"http://{self.address(name)}:{SERVICE}/readyz"
            wait_until(name, lambda url=url: answers(url), 30, check)
        for name in NODES:
            url = f"http://{self.address(name)}:{AGENT}/readyz"
            wait_until(f"{name}-agent", lambda url=url: answers(url), 30, check)

    def master(self) -> str | None:
        """The Redis that the sentinels name; None where they name none."""
        for host in REDISES:
            with suppress(redis.RedisError), sentinel(self.address(host)) as client:
                found = client.sentinel_get_master_addr_by_name(CLUSTER)
                if found:
                    return next(name for name in REDISES if self.address(name) == found[0])
        return None


def sentinel(address: str) -> redis.Redis:
    return redis.Redis(
        address, SENTINEL, socket_timeout=0.5, socket_connect_timeout=0.5, decode_responses=True
    )


def can_fail_over(address: str) -> bool:
    try:
        with sentinel(address) as client:
            known = client.sentinel_master(CLUSTER)
            replicas = client.sentinel_slaves(CLUSTER)
    except redis.RedisError:
        return False
    level = [one for one in replicas if one["master-link-status"] == "ok"]
    others = len(REDISES) - 1
    return known["num-other-sentinels"] == others and len(level) == others
