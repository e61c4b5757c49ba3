"""The panels about pushed updates, put to a real Prometheus that scrapes a real HAProxy."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from dashboards.preview.recording import Prometheus, Span, every
from dashboards.tests.built import BUILT, panels
from dashboards.tests.recorded import PUSHED, choices, numbers
from tests.harness import programs
from tests.harness.eventually import eventually
from tests.harness.ports import answers, free_ports
from tests.harness.process import run
from tests.harness.programs import needs_lab
from tests.harness.updates import Site, site  # noqa: F401 (a fixture)


def scraping(address: str) -> str:
    labels = {"cluster": "stocks", "instance": "lb1"}
    job = {"job_name": "haproxy-updates", "metrics_path": "/plimsoll/updates"}
    job["static_configs"] = [{"targets": [address], "labels": labels}]
    return yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]})


@needs_lab
@pytest.mark.timeout(90)
def test_panels_show_haproxys_held_updates(stack: ExitStack, site: Site, tmp_path: Path) -> None:  # noqa: F811
    site.agents[0].wants(A=60)
    (tmp_path / "prometheus.yml").write_text(scraping(f"127.0.0.1:{site.port}"))
    (port,) = free_ports(1)
    options = [f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    options.append(f"--web.listen-address=127.0.0.1:{port}")
    run(stack, [programs.prometheus(), *options], tmp_path / "prometheus.log")
    began = time.time()
    eventually("Prometheus", lambda: answers(f"http://127.0.0.1:{port}/-/ready"))
    source = Prometheus(f"http://127.0.0.1:{port}")
    held = f'{PUSHED}s_total{{outcome="held"}} == 1'
    site.push("A", "1")
    assert site.push("A", "2")[0] == 202
    eventually("it is scraped", lambda: source.get("query", query=held)["result"])
    # A rate needs two samples.
    eventually("it is scraped again", lambda: source.get("query", query=f"rate({held[:-5]}[4s])")["result"])
    found = {}
    for panel in panels(BUILT["updates"]):
        for target in (one for one in panel["targets"] if PUSHED in one["expr"]):
            expr = Span(began, time.time()).filled(target["expr"], every(BUILT["updates"]))
            found[panel["title"]] = source.at(expr, time.time())
    proxies = choices(source, Span(began, time.time()), "updates", "proxy")
    assert proxies == ["lb1"]
    assert len(found) == 4
    assert all(series["metric"] for answer in found.values() for series in answer)
    (waiting,) = found["Pushed updates held"]
    assert (waiting["metric"], list(numbers(waiting))) == ({"instance": "lb1"}, [1.0])
    (watched,) = found["Pushed items"]
    assert list(numbers(watched)) == [1.0]
    assert {one["metric"]["outcome"] for one in found["Pushed updates"]} >= {"passed", "held", "failed"}
