"""The agent's page for people, in a real browser without scripts."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, Page

from tests.harness.agent import Agent
from tests.harness.browser import CONTRASTS, chromium
from tests.harness.http_server import Answering
from tests.harness.ports import free_ports

# As narrow as a phone, and wide.
WIDTHS = (360, 1280)
# Least contrast, by WCAG 2.2 (AA).
LEAST = {"text": 4.5, "line": 3.0}
SERVICE = """\
[[service]]
name = "{name}"
{more}
[service.sla]
delay = "500ms"
[service.bound]
nominal = 18
[service.controller]
kind = "fixed"
[service.source]
kind = "prometheus"
url = "http://127.0.0.1:{port}/metrics"
histogram = "work_seconds"
[service.jobs]
kind = "prometheus"
gauge = "busy"
[service.output]
full_weight_bound = 36
"""


class Work:
    """A service's histogram: ten requests of 0.2 s in each scrape."""

    def __init__(self) -> None:
        self.scrapes = 0
        self.server = Answering(self.say)

    def say(self, *_: str) -> tuple[int, bytes]:
        self.scrapes += 1
        count = 10 * self.scrapes
        buckets = "".join(f'work_seconds_bucket{{le="{le}"}} {count}\n' for le in ("0.2", "0.5", "1", "+Inf"))
        totals = f"work_seconds_sum {0.2 * count}\nwork_seconds_count {count}\n"
        text = f"# TYPE work_seconds histogram\n{buckets}{totals}# TYPE busy gauge\nbusy 7\n"
        return 200, text.encode()


class Site:
    """An agent with a service that is obeyed, one that is observed and one that is lost; another agent."""

    def __init__(self, stack: ExitStack, directory) -> None:
        work = Work()
        stack.callback(work.server.stop)
        own, other, nobody = free_ports(3)
        peers = ", ".join(f'"http://127.0.0.1:{port}"' for port in (own, other, nobody))
        envoy = f"[envoy]\npeers = [{peers}]\n"

        def stocks(port: int, mode: str = "") -> str:
            more = f'address = "127.0.0.1:{port}"\nidentities = ["queries/<b>node1"]\n{mode}'
            return SERVICE.format(name="stocks", more=more, port=work.server.port)

        observed = SERVICE.format(
            name="a-name-that-is-as-long-as-an-operator-may-like-it-to-be-and-has-<b>-in-it",
            more='mode = "observe"',
            port=work.server.port,
        )
        lost = SERVICE.format(name="lost", more="", port=nobody)
        config = envoy + stocks(own) + observed + lost
        # Long enough for the page and /v1/node to be of the same step.
        self.agent = Agent(stack, directory, "agent", config, http=own, period="1s").start()
        config = envoy + stocks(other, 'mode = "observe"')
        self.peer = Agent(stack, directory, "peer", config, http=other).start()
        for agent in (self.agent, self.peer):
            agent.wait_ready()
        self.other, self.nobody = f"127.0.0.1:{other}", f"127.0.0.1:{nobody}"

    def ask_as_a_proxy(self) -> None:
        with socket.create_connection(("127.0.0.1", self.agent.check_port), 5) as proxy:
            proxy.sendall(b"queries/<b>node1 <script>lb1</script>\n")
            assert proxy.recv(1024).startswith(b"up ")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(stack, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(params=[(width, scheme) for width in WIDTHS for scheme in ("light", "dark")], ids=str)
def page(request: pytest.FixtureRequest, site: Site, browser: Browser) -> Iterator[Page]:
    """Once it has all, with what it asked for and complained of."""
    width, scheme = request.param
    viewport = {"width": width, "height": 800}
    with browser.new_context(viewport=viewport, color_scheme=scheme, java_script_enabled=False) as context:
        page = context.new_page()
        page.asked, page.complaints = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("console", lambda message: page.complaints.append(message.text))

        def has_all() -> bool:
            page.goto(site.agent.url)
            text = page.inner_text("body")
            return all(word in text for word in (site.other, site.nobody, "% of the SLA", "The source fails"))

        site.ask_as_a_proxy()
        site.agent.eventually("the whole page", has_all)
        yield page


def test_it_fits_is_readable_and_asks_nobody_else(site: Site, page: Page):
    assert set(page.asked) == {f"{site.agent.url}/"}
    assert page.complaints == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # The hash in the policy is that of the style.
    assert page.evaluate("getComputedStyle(document.body).maxWidth") == "1152px"
    found = page.evaluate(CONTRASTS)
    assert {one["kind"] for one in found} == set(LEAST) and len(found) > 100
    assert [one for one in found if one["ratio"] < LEAST[one["kind"]]] == []


def test_it_is_told_without_being_seen(page: Page):
    levels = [int(level) for level in re.findall(r"<h(\d)", page.content())]
    assert levels[0] == 1 and levels.count(1) == 1 and levels.count(2) == 3
    assert all(after <= before + 1 for before, after in pairwise(levels))
    charts = page.get_by_role("img").all()
    assert len(charts) == 12
    told = page.evaluate("[...document.querySelectorAll('figure desc')].map((one) => one.textContent)")
    assert any(
        text.startswith("SLA: 500\u00a0ms, known for 10.0 of the last 10 minutes. delay: ") for text in told
    )
    assert len(page.get_by_role("table").all()) == 2
    assert page.get_by_role("columnheader", name="Capacity").count() == 1


def test_it_says_what_the_node_says(site: Site, page: Page):
    """Of what is obeyed, of what is observed, and of what is not known."""
    services: dict[str, dict] = {}

    def is_of_one_step() -> bool:
        services.update(site.agent.json("/v1/node")["services"])
        page.reload()
        now = site.agent.json("/v1/node")["services"]
        return all(now[name]["stepped_at"] == service["stepped_at"] for name, service in services.items())

    site.agent.eventually("a page between two steps", is_of_one_step)
    for name, service in services.items():
        section = page.get_by_role("region", name=name)
        text = " ".join(section.inner_text().split())
        observed = service["settings"]["mode"] == "observe"
        if_obeyed = ", if obeyed" if observed else ""
        bound = f"{service['decision']['bound_jobs']:.3g}"
        weight = f"Weight{if_obeyed} {service['weight_percent']} %"
        for shown in (weight, f"the bound {'would allow' if observed else 'allows'} {bound}"):
            assert shown in text
        assert service["decision"]["reason"] in text
        lost = service["source_error"] is not None
        assert lost == (name == "lost")
        jobs = "unknown" if lost else f"{service['jobs']:.3g}"
        assert f"Jobs {jobs} " in text
        delay = service["decision"]["measured_delay"]
        assert (delay is None) == lost
        shown = "unknown" if lost else f"{1000 * delay:.3g} ms"
        assert f"Delay of 95 % of the requests {shown} " in text
        assert ("would be refused: " in text) == observed
