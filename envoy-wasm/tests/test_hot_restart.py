"""Hot restart of an Envoy under load."""

from envoy_site import Client, Load, Site

from tests.harness.envoy import Envoy
from tests.harness.eventually import eventually
from tests.harness.ports import answers


def runs(site: Site) -> set[str]:
    """The runs of Envoys that have shares in Redis."""
    return {name.decode().rsplit("/", 1)[0] for name in site.redis.client.hkeys(site.cluster.proxies)}


def test_hot_restart_loses_no_request(site, stack):
    base = site.directory / "base-id"
    words = ("--drain-time-s", "2", "--parent-shutdown-time-s", "4")
    envoy = Envoy(stack, site.directory / "envoy1", site.config(), 2, words)
    old = envoy.begin("--use-dynamic-base-id", "--base-id-path", str(base))
    eventually("the old Envoy", lambda: answers(f"http://127.0.0.1:{envoy.admin}/ready"))
    site.wait_in_force(envoy)
    (first,) = runs(site)
    client = Client(envoy.port, "/stock/S0001?items=60&hold=over")
    eventually("one in flight", lambda: site.in_flight(envoy) == (60, 1))

    envoy.log = envoy.log.with_name("new.log")
    with Load(envoy) as load:
        envoy.begin("--restart-epoch", "1", "--base-id", base.read_text().strip())
        eventually("both with shares", lambda: len(runs(site)) == 2)
        site.nodes.let_go("over")
        assert client.status() == 200
        eventually("the end of the old", lambda: old.poll() is not None)
        eventually("its shares given back", lambda: first not in runs(site))
        load.goes_on()
    assert set(load.answers) == {200}
    assert old.returncode == 0
    eventually("nothing in flight", lambda: site.in_flight(envoy) == (0, 0))
    site.wait_in_force(envoy)
