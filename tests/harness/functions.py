"""The Redis functions, as agents and proxies call them."""

import redis
import xxhash

# The owner of a slot that no node has.
NOBODY = 255


def owner(key: str, names: list[str], owners: bytes) -> str:
    """The node that a key belongs to."""
    return names[owners[xxhash.xxh32_intdigest(key.encode()) * len(owners) >> 32]]


class Cluster:
    """The functions for one cluster's keys."""

    def __init__(self, server: redis.Redis, name: str = "test") -> None:
        self.server = server
        prefix = f"plimsoll:{{{name}}}:"
        self.nodes, self.ring_key, self.proxies, self.shares, self.observations = self.keys = [
            prefix + part for part in ("nodes", "ring", "proxies", "shares", "observations")
        ]

    def call(self, function: str, *arguments):
        return self.server.fcall(f"plimsoll_{function}", 5, *self.keys, *arguments)

    def report(self, node, bound, **other):
        default = {"instance": "a1", "bound": bound, "bound_jobs": 64, "mean_cost": 80, "jobs": 5}
        default |= {"load": 0.4, "lease": 60_000, "slots": 1000, "dead_band": 0.05, "settle": 0}
        default |= {"address": ""}
        given = default | other
        order = [*default, *(["capacity"] if "capacity" in other else [])]
        return self.call("report", node, *(given[name] for name in order))

    def observe(self, proxy, nodes, instance="p1", lease=60_000):
        flat = [word for node, demand, seen in nodes for word in (node, demand, seen)]
        version, count, *rest = self.call("observe", proxy, instance, lease, *flat)
        names = [name.decode() for name in rest[::6]]
        return version, count, dict(zip(names, map(float, rest[1::6]), strict=True))

    def live_nodes(self):
        version, *rest = self.server.fcall_ro("plimsoll_nodes", 5, *self.keys)
        words = [word.decode() for word in rest]
        return version, {words[i]: words[i + 1 : i + 7] for i in range(0, len(words), 7)}

    def capacities(self) -> dict[str, float]:
        _, *rest = self.server.fcall_ro("plimsoll_nodes", 5, *self.keys, "capacity")
        words = [word.decode() for word in rest]
        return {words[i]: float(words[i + 7]) for i in range(0, len(words), 8)}

    def ring(self):
        version, slots, names, owners = self.server.fcall_ro("plimsoll_ring", 5, *self.keys)
        return version, slots, names.decode().split("\n"), owners

    def ring_or_none(self) -> list[str] | None:
        found = self.server.fcall_ro("plimsoll_ring", 5, *self.keys)
        return found[2].decode().split("\n") if found else None

    def sizes(self) -> dict[str, int]:
        _, _, names, owners = self.ring()
        return {name: owners.count(i) for i, name in enumerate(names) if name}


class Placement:
    """The functions of placement for one cluster's keys."""

    GENERATION = "g1"

    def __init__(self, server: redis.Redis, name: str = "test") -> None:
        self.server = server
        self.meta = f"plimsoll:{{{name}}}:placement"
        self.table, self.log, self.dispatchers, self.busy, self.loads, self.gone = (
            f"{self.meta}:{part}" for part in ("table", "log", "dispatchers", "busy", "loads", "gone")
        )
        self.keys = [self.meta, self.table, self.log, self.dispatchers, self.busy, self.loads, self.gone]
        self.epoch = 0

    def call(self, function: str, *arguments):
        return told(self.server.fcall(f"plimsoll_placement_{function}", 7, *self.keys, *arguments))

    def status(self):
        return told(self.server.fcall_ro("plimsoll_placement_status", 7, *self.keys))

    def claim(
        self, agent="keeper", lease=60_000, told_lease=10_000, limit=60_000, when_lost="serve", margin=1000,
        server="s1",
    ):  # fmt: skip
        word, *rest = self.call("claim", agent, lease, told_lease, limit, when_lost, margin, server)
        if word == "keeper":
            self.epoch, _ = rest
        return word, *rest

    def open(self, generation=GENERATION, version=1, wait=0, ids="", agent="keeper", **named):
        entries = " ".join(f"*{rest} node{rest % 2 + 1}" for rest in range(64))
        entries += "".join(f" ={name} {state}" for name, state in named.items())
        return self.call("open", agent, self.epoch, generation, version, wait, ids, entries)

    def start(self, **other) -> None:
        """A keeper and a table."""
        self.claim(**other)
        self.open()

    def publish(self, delta: str, generation=GENERATION, agent="keeper"):
        return self.call("publish", agent, self.epoch, generation, delta)

    def join(self, id_: str):
        return self.call("join", id_)

    def report(self, id_, version, busy="-", loads="-", generation=GENERATION):
        return self.call("report", id_, generation, version, busy, loads)

    def read(self, passed=0, lease=60_000, limit=60_000, loads=0, plan="", agent="keeper"):
        reply = self.call("read", agent, self.epoch, lease, limit, loads, plan, passed)
        generation, version, open_in, ahead, wishes, count, gone = reply[:7]
        flat = reply[7:]
        dispatchers = {
            flat[i]: {
                "age": flat[i + 1],
                "version": flat[i + 2],
                "joined": flat[i + 3],
                "busy": flat[i + 4],
            }
            for i in range(0, 5 * count, 5)
        }
        flat = flat[5 * count :]
        return {
            "generation": generation,
            "version": version,
            "open_in": open_in,
            "ahead": ahead,
            "wishes": wishes,
            "dispatchers": dispatchers,
            "gone": dict(zip(flat[: 2 * gone : 2], flat[1 : 2 * gone : 2], strict=True)),
            "loads": {
                name: float(cost)
                for name, cost in zip(flat[2 * gone :: 2], flat[2 * gone + 1 :: 2], strict=True)
            },
        }


def told(answer):
    """An answer with its texts as text."""
    if isinstance(answer, list):
        return [told(part) for part in answer]
    return answer.decode() if isinstance(answer, bytes) else answer
