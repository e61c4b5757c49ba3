"""Pushed updates through a real HAProxy, to a service that stores the last value of each item."""

import http.client
import re
import signal
import subprocess
import threading

import pytest

from tests.harness import programs
from tests.harness.eventually import eventually
from tests.harness.updates import Site, site

# A fixture of this module's, too.
__all__ = ["site"]


def test_updates_pass_where_nobody_wants_them_less_often(site: Site) -> None:
    for value in ("1", "2", "3"):
        assert site.push("A", value) == (200, "passed")
    assert site.service.taken["A"] == ["1", "2", "3"]


def test_early_updates_wait_and_only_the_latest_goes_on(site: Site) -> None:
    site.agents[0].wants(A=2)
    assert site.push("A", "1") == (200, "passed")
    for number, value in enumerate(("2", "3", "4")):
        status, became = site.push("A", value, content_type="text/quote", x_feed="nasdaq")
        word, due = re.fullmatch(r"(held|replaced); due=(\d\.\d{3})", became).groups()
        assert (status, word) == (202, "held" if number == 0 else "replaced")
        assert 0 < float(due) <= 2
    assert site.push("B", "5") == (200, "passed")
    assert site.service.stored == {"A": "1", "B": "5"}
    eventually("the latest goes on", lambda: site.service.stored["A"] == "4")
    assert site.service.taken["A"] == ["1", "4"]
    head = site.service.heads[-1].lower()
    assert "content-type: text/quote" in head
    assert "x-feed: nasdaq" in head
    assert "plimsoll-flush" not in head
    # The node has it before HAProxy knows that it has.
    eventually("HAProxy knows", lambda: site.counts()["flushed"] == 1)
    assert site.push("A", "5")[0] == 202
    counts = site.counts()
    assert (counts["held"], counts["replaced"], counts["flushed"]) == (2, 2, 1)


def test_what_waits_goes_on_at_once_when_usual_periods_are_back(site: Site) -> None:
    site.agents[0].wants(A=60)
    site.push("A", "1")
    assert site.push("A", "2")[0] == 202
    site.agents[0].wants()
    eventually("it goes on", lambda: site.service.stored["A"] == "2")
    assert site.push("A", "3") == (200, "passed")


@pytest.mark.parametrize("trouble", ["gone", "status", "garbage"])
def test_what_waits_goes_on_when_the_agent_is_of_no_use(site: Site, trouble: str) -> None:
    agent = site.agents[0]
    agent.wants(A=60)
    site.push("A", "1")
    assert site.push("A", "2")[0] == 202
    if trouble == "gone":
        agent.stop()
    elif trouble == "status":
        agent.status = 503
    else:
        agent.text = "1 5\nA minus\n"
    eventually("it goes on", lambda: site.service.stored["A"] == "2")
    # Until HAProxy has the service's answer to the one before, the next takes its place.
    eventually("the next passes", lambda: site.push("A", "3") == (200, "passed"))
    assert "plimsoll updates: agent" in site.haproxy.said()


@pytest.mark.parametrize("site", [2], indirect=True)
def test_the_agent_that_wants_an_item_most_often_counts(site: Site) -> None:
    first, second = site.agents
    first.wants(A=60, B=60)
    second.wants(B=1)
    site.push("A", "1")
    assert site.push("A", "2") == (200, "passed")
    site.push("B", "1")
    assert site.push("B", "2")[0] == 202
    eventually("it goes on", lambda: site.service.stored["B"] == "2", 5)


def test_late_and_doubled_updates_are_not_taken(site: Site) -> None:
    site.agents[0].wants(A=60)
    assert site.push("A", "2", plimsoll_update_sequence="2") == (200, "passed")
    assert site.push("A", "1", plimsoll_update_sequence="1") == (200, "stale")
    assert site.push("A", "2", plimsoll_update_sequence="2") == (200, "stale")
    assert site.push("A", "9", plimsoll_update_sequence="9")[0] == 202
    assert site.push("A", "8", plimsoll_update_sequence="8") == (200, "stale")
    site.agents[0].wants()
    eventually("the latest goes on", lambda: site.service.stored["A"] == "9")


def test_a_sequence_that_cannot_be_is_refused_and_later_updates_are_taken(site: Site) -> None:
    site.agents[0].wants(A=60)
    wrong = ("9007199254740992", "9" * 400, "nan", "-1", "1e99", "0x10", "later", "1 2")
    for sequence in wrong:
        assert site.push("A", "0", plimsoll_update_sequence=sequence) == (400, "malformed"), sequence
    assert site.push("A", "1", plimsoll_update_sequence="1") == (200, "passed")
    assert site.counts()["malformed"] == len(wrong)
    # The largest that can be, by mistake: one without a number is the latest, and they begin anew.
    assert site.push("A", "2", plimsoll_update_sequence="9007199254740991")[0] == 202
    assert site.push("A", "3", plimsoll_update_sequence="3") == (200, "stale")
    assert site.push("A", "4")[0] == 202
    assert site.push("A", "5", plimsoll_update_sequence="5")[0] == 202
    site.agents[0].wants()
    eventually("the latest goes on", lambda: site.service.stored["A"] == "5")


def test_what_the_service_does_not_take_is_tried_again(site: Site) -> None:
    site.agents[0].wants(A=0.3)
    site.push("A", "1")
    assert site.push("A", "2")[0] == 202
    site.service.status = 503
    eventually("it was tried", lambda: site.counts()["failed"] >= 2)
    assert site.service.stored["A"] == "1"
    site.service.status = 200
    eventually("it is taken", lambda: site.service.stored["A"] == "2")
    assert site.service.taken["A"] == ["1", "2"]


def test_a_client_that_leaves_blocks_its_item_for_no_longer_than_its_request(site: Site) -> None:
    site.agents[0].wants(A=0.2)
    site.service.go.clear()
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=15)
    connection.request("PUT", "/quote/A", "1")
    assert site.service.waiting.wait(10)
    assert site.push("A", "2")[0] == 202
    connection.close()
    site.service.go.set()
    eventually("what came after it goes on", lambda: site.service.stored.get("A") == "2")


def test_hostile_items_and_bodies_lose_nothing(site: Site) -> None:
    site.agents[0].wants(**{"A": 60, "x" * 128: 60})
    for item in ("%00", "%ff%fe", "x" * 129, "x" * 2000, "%20"):
        assert site.push(item, "1") == (200, "passed")
        assert site.push(item, "2") == (200, "passed")
    site.push("x" * 128, "1")
    assert site.push("x" * 128, "2")[0] == 202
    # More than there is room for, and more than is here at once.
    site.push("A", "1")
    assert site.push("A", "y" * 9000)[0] == 202
    assert site.push("A", "z" * 100_000) == (503, "refused")
    # Nobody passes by saying so.
    assert site.push("A", "3", plimsoll_flush="true")[0] == 202
    assert site.push("A", "4", "POST")[0] == 202
    site.agents[0].wants()
    eventually("the latest goes on", lambda: site.service.stored["A"] == "4")


def test_a_reload_takes_what_waits_along(site: Site) -> None:
    site.agents[0].wants(A=3, B=3)
    for item in ("A", "B"):
        site.push(item, "1")
        assert site.push(item, "2")[0] == 202
    site.haproxy.process.send_signal(signal.SIGUSR2)
    # The old process gives it to the new one, which knows of no earlier update and sends it on.
    eventually("both are there", lambda: site.service.stored == {"A": "2", "B": "2"})
    site.agents[0].heard()
    eventually("the new one coalesces", lambda: site.push("A", "3")[0] == 202)


def test_many_clients_leave_each_items_last_value(site: Site) -> None:
    items = [f"S{number}" for number in range(20)]
    site.agents[0].wants(**dict.fromkeys(items[:15], 0.4))

    def feed(mine: list[str]) -> None:
        for value in range(40):
            for item in mine:
                status, _ = site.push(item, str(value), plimsoll_update_sequence=str(value))
                assert status in (200, 202)

    feeds = [threading.Thread(target=feed, args=(items[number::4],)) for number in range(4)]
    for thread in feeds:
        thread.start()
    for thread in feeds:
        thread.join()
    eventually("the last values", lambda: set(site.service.stored.values()) == {"39"})
    assert set(site.service.stored) == set(items)
    for item in items:
        values = [int(value) for value in site.service.taken[item]]
        assert values == sorted(set(values))
    assert all(len(site.service.taken[item]) < 40 for item in items[:15])
    assert all(len(site.service.taken[item]) == 40 for item in items[15:])


def test_a_wrong_setting_keeps_haproxy_from_starting(site: Site) -> None:
    file = site.directory / "updates.lua"
    good = file.read_text()
    for wrong, problem in (
        (good.replace("forward", "forwards"), "forwards: unknown key"),
        (good.replace("period = 0.1", "period = 0"), "period: must be a number within 0.1..60 s"),
        (good.replace(f'"127.0.0.1:{site.port}"', '"service:80"'), "forward: must be"),
        (good.replace("start({", 'start({ token = "a\\nb",'), "token: must be printable"),
    ):
        file.write_text(wrong)
        command = [programs.haproxy(), "-c", "-f", str(site.config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
        assert done.returncode != 0
        assert problem in done.stderr
