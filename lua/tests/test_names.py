"""Two proxies of one host: each has a name by default; with one name they do not take each other for dead."""

from collections import defaultdict

from lua.tests.balancer import Balancer, at
from tests.harness.eventually import eventually, until
from tests.harness.haproxy_placement import HAProxySite
from tests.harness.primaries import ask
from tests.harness.redis import Redis

WARNING = "another proxy has this name too"


def wait_both(server: Redis) -> None:
    """Until two dispatchers have reported many times, with no other one under their names between."""
    reports = defaultdict(set)

    def both() -> bool:
        for name, record in server.client.hgetall("plimsoll:{test}:proxies").items():
            lease, *_, instance = record.split()
            for known in list(reports):
                if known[0] == name and known[1] != instance:
                    del reports[known]
            reports[name, instance].add(lease)
        return sum(len(leases) >= 8 for leases in reports.values()) == 2

    eventually("both report", both)


def test_two_proxies_of_one_host_have_two_names_by_default(stack, tmp_path, one):
    pair = [Balancer(stack, tmp_path / name, at(one.port), proxy="") for name in "ab"]
    wait_both(one)
    assert [WARNING in asked.said() for asked in pair] == [False, False]
    # The same after a restart.
    names = set(one.client.hkeys("plimsoll:{test}:proxies"))
    pair[0].kill()
    Balancer(stack, tmp_path / "a", at(one.port), proxy="")
    wait_both(one)
    assert set(one.client.hkeys("plimsoll:{test}:proxies")) == names


def test_two_proxies_with_one_name_do_not_replace_each_other_forever(stack, tmp_path, one):
    pair = [Balancer(stack, tmp_path / name, at(one.port)) for name in "ab"]
    wait_both(one)
    assert any(WARNING in asked.said() for asked in pair)


def test_two_placing_proxies_with_one_name_do_not_replace_each_other_forever(run_site):
    async def test(site: HAProxySite) -> None:
        await site.start(proxy_name="lb")
        logs = lambda: [asked.said() for asked in site.proxies]  # noqa: E731
        await until("it is told", lambda: any(WARNING in log for log in logs()))
        await until("both have joined", lambda: len(site.keeper.read()[0]) == 4)
        await site.keeper.move("node3", "=s1")
        for number, asked in enumerate(site.proxies):
            assert await ask(asked.port, "s1", f"after{number}") == "200"
            assert site.nodes.where[f"after{number}"] == "node3"

    run_site(test)
