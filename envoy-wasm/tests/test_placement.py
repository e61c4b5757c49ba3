"""Placement by the filter in real Envoys: no object set runs at two nodes at once, and no request is lost."""

import asyncio
import json
import random
import signal
import threading
import time
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from envoy_site import MODULE, Envoy, eventually, manager_of

from compose.lab.processes import free_ports
from compose.lab.topology import ROOT
from lua.tests.conftest import Redis
from lua.tests.names import HEADERS, PATHS
from lua.tests.primaries import NODES, Clients, Keeper, Primaries, ask, names_are_placed, pause, send
from lua.tests.traffic import until

EXAMPLE = ROOT / "envoy-wasm" / "examples" / "wasm-placement.yaml"
SETS = [f"s{number}" for number in range(12)]
OWN = {f"=s{number}": NODES[number % 3] for number in range(6)}
WORKERS = 2
# The main thread has a VM as well.
VMS = WORKERS + 1


class Agent:
    """Carries `/v1/placement` to Redis, as an agent does."""

    def __init__(self, keeper: Keeper) -> None:
        (self.port,) = free_ports(1)
        self.away = False

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(handler) -> None:  # noqa: N805
                body = handler.rfile.read(int(handler.headers["content-length"]))
                answer = None if self.away else carry(keeper, json.loads(body))
                text = json.dumps(answer or {"error": "away"}).encode()
                handler.send_response(200 if answer else 503)
                handler.send_header("content-length", str(len(text)))
                handler.end_headers()
                handler.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def carry(keeper: Keeper, message: dict) -> dict:
    words = [message["id"]]
    if message["op"] == "report":
        loads = " ".join(f"{name} {cost}" for name, cost in message["loads"].items())
        words += [message["generation"], message["version"], " ".join(message["busy"]) or "-", loads or "-"]
    try:
        answer = keeper.call(message["op"], *words)
    except Exception as error:
        return {"status": "unknown"} if "UNKNOWN" in str(error) else {"error": str(error)}
    status, *rest = [part.decode() if isinstance(part, bytes) else part for part in answer]
    if status == "wait":
        return {"status": status, "wait_ms": rest[0]}
    if status == "ok":
        return {"status": status, "version": rest[0], "deltas": rest[1:]}
    told = {"status": status, "generation": rest[0], "version": rest[1]}
    if status == "open":
        told |= {"lease_ms": rest[2], "request_limit_ms": rest[3], "when_lost": rest[4]}
    first = 5 if status == "open" else 2
    return told | {"entries": list(zip(rest[first::2], rest[first + 1 :: 2], strict=True))}


class Site:
    """Primaries, their keeper, an agent, and Envoys."""

    def __init__(self, stack: AsyncExitStack, directory: Path, redis: Redis, **keeper) -> None:
        self.stack, self.directory = stack, directory
        self.keeper = Keeper(redis.client, **keeper)

    async def start(
        self, proxies: int = 2, workers: int = WORKERS, connections: int = 8000, **settings
    ) -> "Site":
        self.nodes = await self.stack.enter_async_context(Primaries())
        self.keeper.open(OWN)
        self.agent = Agent(self.keeper)
        self.stack.callback(self.agent.stop)
        self.proxies = []
        for number in range(proxies):
            config = self._config(number, settings, connections)
            envoy = Envoy(self.directory / f"envoy{number}", config, workers)
            self.stack.callback(envoy.kill)
            self.proxies.append(envoy)
            await asyncio.to_thread(envoy.start)
        await until("dispatchers", lambda: len(self.keeper.read()[0]) == (workers + 1) * proxies)
        return self

    def _config(self, number: int, settings: dict, connections: int) -> dict:
        text = EXAMPLE.read_text().replace("/usr/share/plimsoll/envoy_wasm.wasm", str(MODULE))
        config = yaml.safe_load(text)
        listener = config["static_resources"]["listeners"][0]
        (own, _) = manager_of(listener)["http_filters"]
        value = own["typed_config"]["config"]["configuration"]
        told = {"cluster": "test", "proxy": f"envoy{number}", "period": 0.2, "wait": 5} | settings
        value["value"] = json.dumps(json.loads(value["value"]) | told)
        for cluster in config["static_resources"]["clusters"]:
            name = cluster["name"].removeprefix("primary-")
            if name in NODES:
                cluster["circuit_breakers"]["thresholds"][0]["max_connections"] = connections
            port = self.agent.port if name == "plimsoll_agents" else self.nodes.ports.get(name)
            (endpoint, *_) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
            endpoint["endpoint"]["address"]["socket_address"]["port_value"] = port or 1
            cluster["load_assignment"]["endpoints"][0]["lb_endpoints"] = [endpoint]
        return config

    def clients(self, count: int = 24) -> Clients:
        return Clients([envoy.port for envoy in self.proxies], SETS, count)

    async def move_by_chance(self, times: int) -> None:
        for _ in range(times):
            await self.keeper.move(random.choice(NODES), random.choice(sorted(self.keeper.primary)))


@pytest.fixture
def run_site(tmp_path, own_redis):
    if not MODULE.exists():
        pytest.skip("needs `make build`")
    own_redis.start()

    def run(test, **keeper) -> None:
        async def whole() -> None:
            async with AsyncExitStack() as stack:
                await test(Site(stack, tmp_path, own_redis, **keeper))

        asyncio.run(whole())

    return run


def test_sets_are_handed_over_under_load(run_site):
    async def test(site: Site) -> None:
        await site.start()
        async with site.clients() as clients:
            await site.move_by_chance(12)
        clients.check(site.nodes)
        assert set(clients.answers) == {"200"}
        assert sum(site.nodes.ran.values()) == clients.answers["200"] > 300
        placed = lambda: sum(envoy.stats()["placement_placed_total"] for envoy in site.proxies)  # noqa: E731
        await asyncio.to_thread(eventually, "counts", lambda: placed() == clients.answers["200"])
        assert sum(site.keeper.loads.values()) > 0

    run_site(test)


def test_a_primary_that_is_down_is_replaced_by_nobody(run_site):
    async def test(site: Site) -> None:
        await site.start(proxies=1)
        port = site.proxies[0].port
        async with site.clients() as clients:
            await until("load", lambda: len(clients.told) > 100)
            site.nodes.kill("node2")
            await until("refusals", lambda: clients.answers["503 down"] > 50)
        failed = [request for request, answer in clients.told.items() if answer != "200"]
        assert {site.nodes.where.get(request) for request in failed} <= {None, "node2"}
        assert site.nodes.twice == []
        assert max(site.nodes.ran.values()) == 1
        # Who reached no node leaves no doubt.
        assert site.proxies[0].stats()["placement_doubted_total"] <= clients.clients
        assert await ask(port, "s0", "other") == "200"
        await site.nodes.start("node2")
        assert await ask(port, "s1", "after") == "200"
        assert site.nodes.where["after"] == "node2"

    run_site(test)


def test_a_client_that_leaves_blocks_the_hand_over_for_as_long_as_its_request_may_run(run_site):
    async def test(site: Site) -> None:
        await site.start(proxies=1)
        streams = await asyncio.open_connection("127.0.0.1", site.proxies[0].port)
        task = asyncio.create_task(send(streams, "s1", "left", "/long"))
        await until("it runs", lambda: site.nodes.ran["left"] == 1)
        task.cancel()
        streams[1].close()
        left = time.monotonic()
        await site.keeper.move("node3", "=s1")
        assert time.monotonic() - left > 1.9

    run_site(test, request_limit=2)


def test_held_requests_are_refused_after_their_time_and_wait_for_nobody_who_left(run_site):
    async def test(site: Site) -> None:
        await site.start(proxies=1, wait=0.5)
        port = site.proxies[0].port
        since = site.keeper.leave("=s1")
        await site.keeper.known(since)
        assert await ask(port, "s1", "held") == "503 moving"
        streams = await asyncio.open_connection("127.0.0.1", port)
        task = asyncio.create_task(send(streams, "s1", "left"))
        await asyncio.sleep(0.1)
        task.cancel()
        streams[1].close()
        site.keeper.settle("node3", "=s1")
        await site.keeper.known(site.keeper.version)
        assert await ask(port, "s1", "after") == "200"
        assert site.nodes.where == {"after": "node3"}

    run_site(test)


@pytest.mark.parametrize("when_lost", ["serve", "hold"])
def test_agents_that_are_away(run_site, when_lost):
    async def test(site: Site) -> None:
        await site.start(proxies=1, wait=0.1)
        async with site.clients() as clients:
            await until("load", lambda: clients.answers["200"] > 100)
            site.agent.away = True
            if when_lost == "hold":
                await until("refusals", lambda: clients.answers["503 suspended"] > 100)
            else:
                enough = len(clients.told) + 500
                await until("load", lambda: len(clients.told) > enough)
                assert set(clients.answers) == {"200"}
            site.agent.away = False
            enough = clients.answers["200"] + 100
            await until("load", lambda: clients.answers["200"] > enough)
        clients.check(site.nodes)

    run_site(test, when_lost=when_lost, lease=1)


def test_a_paused_envoy_holds_hand_overs_up_and_breaks_none(run_site):
    async def test(site: Site) -> None:
        await site.start()
        paused = site.proxies[0].process
        async with site.clients() as clients:
            await site.move_by_chance(3)
            pause(paused)
            since = site.keeper.leave("=s1")
            behind = lambda: [told for told, *_ in site.keeper.read()[0].values() if told < since]  # noqa: E731
            await until("the other knows", lambda: len(behind()) == VMS)
            assert not site.keeper.is_through(since, "=s1")
            paused.send_signal(signal.SIGCONT)
            await until("all are through", lambda: site.keeper.is_through(since, "=s1"))
            site.keeper.settle("node3", "=s1")
            await site.move_by_chance(3)
        clients.check(site.nodes)

    run_site(test)


def test_what_waits_in_the_queue_of_a_paused_envoy_is_refused_by_the_former_primary(run_site):
    async def test(site: Site) -> None:
        # One request at a time at each node.
        await site.start(workers=1, connections=1)
        paused, other = site.proxies
        long = asyncio.create_task(ask(paused.port, "s4", "long", "/long"))
        await until("it runs", lambda: site.nodes.ran["long"] == 1)
        late = asyncio.create_task(ask(paused.port, "s1", "late"))
        waits = "cluster.primary-node2.upstream_rq_pending_active"
        await asyncio.to_thread(eventually, "it waits", lambda: paused.stats(waits)[waits] == 1)
        pause(paused.process)
        before, since = site.keeper.fence(), site.keeper.leave("=s1")
        await until("through", lambda: site.keeper.is_through(since, "=s1"))
        site.keeper.settle("node3", "=s1")
        assert await ask(other.port, "s1", "new") == "200"
        site.nodes.release.set()
        paused.process.send_signal(signal.SIGCONT)
        assert await late == "409 fenced"
        assert site.nodes.where == {"long": "node2", "new": "node3"}
        # Of the tables by which they were placed.
        assert [site.nodes.fence(request) for request in ("late", "new")] == [before, site.keeper.fence()]
        assert await long == "200"

    run_site(test, when_lost="hold", lease=1, request_limit=1)


def test_an_object_has_one_name_and_the_node_gets_it_whatever_the_client_sends(run_site):
    async def test(site: Site) -> None:
        await site.start(proxies=1)
        await names_are_placed(site.nodes, site.keeper, site.proxies[0].port, HEADERS, is_path=False)

    run_site(test)


def test_a_path_has_one_name_however_it_is_spelled(run_site):
    async def test(site: Site) -> None:
        await site.start(proxies=1, object_set={"path_segment": 2})
        await names_are_placed(site.nodes, site.keeper, site.proxies[0].port, PATHS, is_path=True)

    run_site(test)


def test_names_that_are_none_are_refused_and_nobody_names_a_primary(run_site):
    async def test(site: Site) -> None:
        await site.start(proxies=1)
        port = site.proxies[0].port
        for number, name in enumerate(["", "x" * 129, "a b", "sch\xf6n"]):
            assert await ask(port, name, f"bad{number}") == "400 name", name
        for number, name in enumerate(["x" * 128, "=", "*3", ">node1", "-"]):
            assert await ask(port, name, f"good{number}") == "200", name
        forged = "s1\r\nx-plimsoll-primary: primary-node3"
        assert await ask(port, forged, "forged") == "200"
        assert site.nodes.where["forged"] == "node2"
        assert set(site.nodes.ran) == {f"good{number}" for number in range(5)} | {"forged"}

    run_site(test)


def test_a_node_that_envoy_does_not_have_is_no_primary(run_site):
    async def test(site: Site) -> None:
        await site.start(proxies=1)
        site.keeper.leave("=s1")
        site.keeper.settle("node9", "=s1")
        await site.keeper.known(site.keeper.version)
        assert await ask(site.proxies[0].port, "s1", "lost") == "503 down"
        await site.keeper.move("node2", "=s1")
        await site.keeper.known(site.keeper.version)
        assert await ask(site.proxies[0].port, "s1", "after") == "200"
        assert site.nodes.where == {"after": "node2"}

    run_site(test, request_limit=3600)
