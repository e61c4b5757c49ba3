"""k6's requests reach the record file, and the sampler's readings their columns."""

import gzip
import urllib.request

import pytest

from compose.lab import proxy
from compose.lab.collector import Collector
from compose.lab.processes import free_ports
from compose.lab.sampler import Reads, node_counters


def post(url: str, body: str) -> None:
    with urllib.request.urlopen(
        urllib.request.Request(url, body.encode(), method="POST"), timeout=5
    ) as answer:
        assert answer.status == 204


def test_records_are_written_and_counted(tmp_path):
    path = tmp_path / "requests.csv.gz"
    with Collector(path, 1.0, {"127.0.0.1:8102": "node2"}) as collector:
        post(f"{collector.url}/start", "1000")
        post(
            f"{collector.url}/records",
            "1.0 9.0\n0.5,0.2,200,query,ok,80,node1,0.25\n0.6,1.5,200,query,ok,80,127.0.0.1:8102,\n"
            "0.7,0.0,503,query,refused,70,,\n0.8,0.1,200,transaction,ok,60,master,",
        )
        assert collector.started.is_set()
        assert collector.timely(0, 1) == 80
        assert collector.counts == {"ok": 3, "refused": 1}
        assert collector.lag(1.0) == pytest.approx(0.009)
    with gzip.open(path, "rt") as file:
        lines = file.read().splitlines()
    assert lines[0].split(",")[0] == "t_s"
    assert [line.split(",")[-2] for line in lines[1:]] == ["node1", "node2", "", "master"]
    assert [line.split(",")[-1] for line in lines[1:]] == ["0.25", "", "", ""]
    assert len(lines) == 5


def test_counters_leave_transactions_and_buckets_out():
    text = (
        "# HELP stocks_jobs x\nstocks_jobs 3\n"
        'stocks_request_duration_seconds_bucket{class="query",le="1"} 9\n'
        'stocks_request_duration_seconds_count{class="query"} 10\n'
        'stocks_request_duration_seconds_count{class="transaction"} 5\n'
    )
    assert node_counters(text) == {"stocks_jobs": 3.0, "stocks_request_duration_seconds_count": 10.0}


def test_hot_items_are_read_more_often_than_they_are_updated():
    reads = Reads()

    def listed(second: int) -> dict:
        return {
            "items": [
                {"name": "hot", "period_seconds": 0.5, "accesses": 4 * second},
                {"name": "cool", "period_seconds": 0.5, "accesses": 3 * second},
                {"name": "slow", "period_seconds": 5.0, "accesses": second},
            ]
        }

    assert [reads.hot(float(t), listed(t)) for t in range(10)] == [set()] * 10
    assert reads.hot(10.0, listed(10)) == {"hot", "slow"}


def test_only_the_queries_backend_is_looked_at():
    text = "# pxname,svname,status,weight,slim\nqueries,node1,UP,50,20\ntransactions,master,UP,1,\n"
    rows = proxy.rows(text)
    assert list(rows) == ["node1"]
    assert rows["node1"]["slim"] == "20"


def test_a_silent_proxy_has_no_servers(tmp_path):
    assert proxy.servers(tmp_path / "none.sock") == {}


def test_ports_are_distinct_and_below_the_ephemeral_range():
    ports = free_ports(40)
    assert len(set(ports)) == 40
    assert max(ports) < 32768
    # The first ones may not be bound yet.
    assert not any(set(ports) & set(free_ports(40)) for _ in range(4))
