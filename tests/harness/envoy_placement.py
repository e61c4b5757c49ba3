"""Placement by Envoy's filter."""

import asyncio
import json
from http.server import BaseHTTPRequestHandler

from tests.harness.envoy import Envoy, endpoints, example, set_filter
from tests.harness.envoy_filter import FILTERS
from tests.harness.functions import Placement
from tests.harness.http_server import HttpServer
from tests.harness.placement import Site
from tests.harness.primaries import NODES

WORKERS = 2


class Agent(HttpServer):
    """Carries `/v1/placement` to Redis, as an agent does."""

    def __init__(self, functions: Placement) -> None:
        self.away = False
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                answer = None if agent.away else carry(functions, json.loads(body))
                text = json.dumps(answer or {"error": "away"}).encode()
                self.send_response(200 if answer else 503)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        super().__init__(Handler)


def carry(functions: Placement, message: dict) -> dict:
    words = [message["id"]]
    if message["op"] == "report":
        loads = " ".join(f"{name} {cost}" for name, cost in message["loads"].items())
        words += [message["generation"], message["version"], " ".join(message["busy"]) or "-", loads or "-"]
    try:
        status, *rest = functions.call(message["op"], *words)
    except Exception as error:
        return {"status": "unknown"} if "UNKNOWN" in str(error) else {"error": str(error)}
    if status == "wait":
        return {"status": status, "wait_ms": rest[0]}
    if status == "ok":
        return {"status": status, "version": rest[0], "deltas": rest[1:]}
    told = {"status": status, "generation": rest[0], "version": rest[1]}
    if status == "open":
        told |= {"lease_ms": rest[2], "request_limit_ms": rest[3], "when_lost": rest[4]}
    first = 5 if status == "open" else 2
    return told | {"entries": list(zip(rest[first::2], rest[first + 1 :: 2], strict=True))}


class EnvoySite(Site):
    """With an agent's stand-in, and Envoys of two workers each."""

    proxies: list[Envoy]
    filter_kind = FILTERS["wasm"]

    async def start(
        self, proxies: int = 2, workers: int = WORKERS, connections: int = 8000, **settings
    ) -> "EnvoySite":
        await self.open()
        self.agent = Agent(self.keeper.functions)
        self.stack.callback(self.agent.stop)
        for number in range(proxies):
            config = self._config(number, settings, connections)
            envoy = Envoy(self.stack, self.directory / f"envoy{number}", config, workers)
            envoy.command[0] = self.filter_kind.envoy()
            self.proxies.append(envoy)
            await asyncio.to_thread(envoy.start)
        await self.joined((workers + self.filter_kind.more_dispatchers) * proxies)
        return self

    def _config(self, number: int, settings: dict, connections: int) -> dict:
        config = example(f"{self.filter_kind.name}-placement.yaml")
        listener = config["static_resources"]["listeners"][0]
        quick = {"cluster": "test", "proxy": f"envoy{number}", "period": 0.2, "wait": 5}
        set_filter(listener, **(quick | settings))
        for cluster in config["static_resources"]["clusters"]:
            name = cluster["name"].removeprefix("primary-")
            if name in NODES:
                cluster["circuit_breakers"]["thresholds"][0]["max_connections"] = connections
            port = self.agent.port if name == "plimsoll_agents" else self.nodes.ports.get(name)
            group = cluster["load_assignment"]["endpoints"][0]
            group["lb_endpoints"] = endpoints([port or 1])["lb_endpoints"]
        return config
