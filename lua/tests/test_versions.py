"""The second tier on each HAProxy: it works, and what broke it on some of them."""

import signal

import pytest

from lua.tests.balancer import Balancer, Listener, at, follows_a_change
from tests.harness.eventually import eventually
from tests.harness.functions import Cluster
from tests.harness.haproxy_placement import HAProxySite
from tests.harness.primaries import ask
from tests.harness.updates import Site


def test_a_timeout_shorter_than_the_period_does_not_crash_haproxy(stack, tmp_path, one, haproxy):
    asked = Balancer(
        stack, tmp_path / "lb", at(one.port), period=1, lease=3, age=10, timeout=0.3, program=haproxy
    )
    asked.wait_policy()
    reports = set()

    def three() -> bool:
        asked.check()
        reports.update(one.client.hgetall("plimsoll:{test}:proxies").values())
        return len(reports) >= 3

    eventually("three reports", three)
    follows_a_change(asked, one)


def test_it_is_logged_that_redis_is_back(stack, tmp_path, one, haproxy):
    asked = Balancer(stack, tmp_path / "lb", at(one.port), program=haproxy)
    asked.wait_policy()
    one.kill()
    asked.wait_said("shares: ")
    one.start()
    one.load()
    asked.wait_said("shares: in touch with Redis")


def test_writes_run_at_their_primary_which_moves(run_site, haproxy):
    async def test(site: HAProxySite) -> None:
        await site.start(proxies=1, program=haproxy)
        port = site.proxies[0].port
        assert await ask(port, "s1", "before") == "200"
        await site.keeper.move("node3", "=s1")
        assert await ask(port, "s1", "after") == "200"
        assert (site.nodes.where["before"], site.nodes.where["after"]) == ("node2", "node3")

    run_site(test)


def test_a_ring_larger_than_haproxys_buffer_is_there_at_once(stack, tmp_path, one, haproxy):
    one.client.flushall()
    for node in ("node1", "node2"):
        Cluster(one.client).report(node, 1000, lease=3_600_000, slots=65_536)
    asked = Balancer(stack, tmp_path / "lb", at(one.port), program=haproxy)
    asked.wait_policy()
    assert "shares: " not in asked.said().replace("shares: in touch", "")


def test_periods_larger_than_haproxys_buffer_are_there_at_once(stack, tmp_path, haproxy):
    site = Site(tmp_path, stack, 1, haproxy)
    site.agents[0].wants(**{f"S{number:05}": 60 for number in range(5000)})
    site.push("S04999", "1")
    assert site.push("S04999", "2")[0] == 202


@pytest.mark.parametrize("half", [b":", b"$5\r\nab"], ids=["line", "string"])
def test_half_an_answer_of_redis_hangs_no_task(stack, tmp_path, haproxy, half):
    def serve(stream) -> None:
        while stream.recv(65536):
            stream.sendall(half)

    fake = Listener(stack, serve)
    Balancer(stack, tmp_path / "lb", at(fake.port), timeout=0.2, program=haproxy)
    # Two tasks, each more than once.
    eventually("both ask again", lambda: fake.connections >= 5)


def test_half_an_answer_of_an_agent_hangs_no_task(stack, tmp_path, haproxy):
    agent = Site(tmp_path, stack, 1, haproxy).agents[0]
    agent.halves = True
    requests = agent.requests
    eventually("it is polled again", lambda: agent.requests >= requests + 2)


def test_updates_that_wait_outlive_a_reload_at_once(stack, tmp_path, haproxy):
    site = Site(tmp_path, stack, 1, haproxy)
    for items in (("A", "B"), ("C", "D"), ("E", "F")):
        site.agents[0].wants(**dict.fromkeys(items, 60))
        for item in items:
            site.push(item, "1")
            assert site.push(item, "2")[0] == 202
        site.haproxy.process.send_signal(signal.SIGUSR2)
        eventually("they are there", lambda: set(site.service.stored.values()) == {"2"})


# Takes all the memory that Lua may have, in pieces that get smaller, and keeps it for a while.
HOG = """
core.register_task(function()
  while not io.open("{file}") do
    core.msleep(20)
  end
  local held, sizes = {{}}, {{ 1 << 18, 1 << 12, 64 }}
  local function take(bytes)
    held[#held + 1] = ("x"):rep(bytes) .. #held
  end
  for _ = 1, 50 do
    for i = 1, #sizes do
      while pcall(take, sizes[i]) do
      end
    end
    -- A little for itself.
    held[#held], held[#held - 1], held[#held - 2] = nil, nil, nil
    pcall(core.msleep, 10)
  end
  held = nil
  core.Warning("it is given back")
end)
"""


def test_tasks_outlive_a_shortage_of_memory(stack, tmp_path, one, haproxy):
    file = tmp_path / "hog"
    limit = "global\n    tune.lua.maxmem 4\n"
    asked = Balancer(
        stack, tmp_path / "lb", at(one.port), lua=HOG.format(file=file), more=limit, program=haproxy
    )
    asked.wait_policy()
    file.touch()
    asked.wait_said("it is given back")
    # The task that looks at HAProxy's servers.
    asked.ask("set server queries/node1 state maint")
    keys = [f"/stock/S{number:04}" for number in range(20)]
    placed = lambda: {asked.get(key)[1]["x-policy"] for key in keys}  # noqa: E731
    eventually("all go to the other", lambda: placed() == {"node2"})
    # The ones that exchange, follow and tell.
    eventually("errors are counted", lambda: asked.metrics()["plimsoll_task_failures_total", ""] > 0)
