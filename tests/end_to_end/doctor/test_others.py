"""Findings of `plimsoll doctor` about Envoy, agents and Redis, made on the real programs; and bad input."""

import itertools
import subprocess

import pytest

from tests.end_to_end.doctor.site import BOUND, doctor
from tests.harness import agent, programs
from tests.harness.agent import Agent
from tests.harness.envoy import Envoy, endpoints, example
from tests.harness.eventually import eventually
from tests.harness.http_server import Answering
from tests.harness.ports import free_ports
from tests.harness.redis import Redis

HISTOGRAM = 'kind = "prometheus"\nurl = "http://127.0.0.1:{port}/metrics"\nhistogram = "work_seconds"\n'
GAUGE = '[service.jobs]\nkind = "prometheus"\ngauge = "work_in_progress"\n'


def metrics(scrapes: itertools.count) -> str:
    """Of a service in which forty requests wait, of which its histogram sees none for long."""
    count = 20 * next(scrapes)
    return (
        f'# TYPE work_seconds histogram\nwork_seconds_bucket{{le="1"}} {count}\n'
        f'work_seconds_bucket{{le="+Inf"}} {count}\nwork_seconds_sum {count * 0.02}\n'
        f"work_seconds_count {count}\n# TYPE work_in_progress gauge\nwork_in_progress 40\n"
    )


def opened(of_node: Agent) -> Agent:
    """Its HTTP server listens on all addresses."""
    file = of_node.log.with_suffix(".toml")
    own = f'"127.0.0.1:{of_node.http}"'
    file.write_text(file.read_text().replace(own, own.replace("127.0.0.1", "0.0.0.0")))
    return of_node


def test_agents_that_do_not_see_what_they_should_are_found(stack, tmp_path):
    scrapes = itertools.count()
    service = Answering(lambda *_: (200, metrics(scrapes).encode()))
    stack.callback(service.stop)
    nobody, refused = free_ports(2)
    text = agent.service(BOUND, source=HISTOGRAM.format(port=service.port) + GAUGE)
    blind = opened(Agent(stack, tmp_path, "blind", text)).start().wait_ready()
    text = agent.service(BOUND, source=HISTOGRAM.format(port=nobody))
    # Open to all networks, but not to everybody.
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o600)
    text += f'[http.tokens]\nobserve_file = "{token}"\n'
    fails = opened(Agent(stack, tmp_path, "fails", text)).start().wait_ready()
    eventually("a failure", lambda: fails.json("/v1/node")["services"]["stocks"]["source_error"])
    state = lambda: blind.json("/v1/node")["services"]["stocks"]["sight"] or {}  # noqa: E731
    eventually("the source is blind", lambda: state().get("unseen"))
    words = ("--agent", f"{blind.url},{fails.url}", "--agent", f"http://127.0.0.1:{refused}")
    told = doctor(*words)
    # One was not there, which counts more than the findings.
    assert told.status == 2
    (failure,) = told.answer["not_asked"]
    assert failure["what"] == f"agent 127.0.0.1:{refused}"
    assert told.codes() == [
        ("source-fails", f"127.0.0.1:{fails.http} stocks"),
        ("source-blind", f"127.0.0.1:{blind.http} stocks"),
        ("open-to-everybody", f"127.0.0.1:{blind.http} http.listen"),
    ]
    assert f"http.listen is 0.0.0.0:{blind.http}, and http.allow is not set" == told.found(
        "open-to-everybody"
    )
    ignored = [word for code in ("source-fails", "source-blind") for word in ("--ignore", code)]
    told = doctor("--agent", blind.url, *ignored, "--ignore", "open-to-everybody")
    assert (told.status, told.codes()) == (0, [])


def test_an_envoy_without_answers_is_found(stack, tmp_path):
    config = example("eds-fc-prop.yaml")
    queries, _, agents = config["static_resources"]["clusters"]
    agents["load_assignment"]["endpoints"] = [endpoints(free_ports(1))]
    del queries["circuit_breakers"]
    queries["eds_cluster_config"]["eds_config"]["initial_fetch_timeout"] = "0.1s"
    config["admin"]["address"]["socket_address"]["address"] = "0.0.0.0"
    envoy = Envoy(stack, tmp_path, config, 1).start()
    admin = f"127.0.0.1:{envoy.admin}"
    told = doctor("--envoy", f"http://{admin}")
    expected = [
        ("envoy-discovery-fails", f"{admin} queries"),
        ("envoy-circuit-breaker", f"{admin} queries"),
        ("open-to-everybody", admin),
    ]
    assert (told.status, told.codes()) == (1, expected)
    assert told.found("envoy-circuit-breaker") == "circuit_breakers has max_requests 1024"
    assert told.found("open-to-everybody") == f"admin on 0.0.0.0:{envoy.admin}"


def test_an_envoy_that_follows_its_agents_has_no_findings(stack, tmp_path):
    (nobody,) = free_ports(1)
    own = 'address = "127.0.0.1:1"'
    text = agent.service(
        BOUND, own, f'kind = "haproxy-log"\nlisten = "udp://127.0.0.1:{nobody}"\nnode = "a/b"'
    )
    (http,) = free_ports(1)
    text += f'[envoy]\npeers = ["http://127.0.0.1:{http}"]\n'
    node = Agent(stack, tmp_path, "node1", text, http=http).start().wait_ready()
    config = example("eds-fc-prop.yaml")
    config["static_resources"]["clusters"][2]["load_assignment"]["endpoints"] = [endpoints([http])]
    envoy = Envoy(stack, tmp_path, config, 1).start()
    hosts = lambda: envoy.stats("membership_total").get("cluster.queries.membership_total")  # noqa: E731
    eventually("a host", hosts)
    told = doctor("--envoy", f"http://127.0.0.1:{envoy.admin}", "--agent", node.url)
    assert (told.status, told.codes()) == (0, [])


def test_a_redis_that_cannot_hold_is_found(stack, tmp_path):
    master = Redis(stack, tmp_path, "--protected-mode", "no", "--repl-diskless-sync-delay", "0").start()
    replica = Redis(stack, tmp_path, "--replicaof", "127.0.0.1", str(master.port)).start()
    eventually("the replica is in step", replica.is_in_step)
    text = agent.redis(master.port) + '[placement]\ncluster = "test"\nwhen_lost = "hold"\n'
    text += agent.service(BOUND) + agent.ring("node1")
    node = Agent(stack, tmp_path, "node1", text).start().wait_ready()
    url = f"redis://127.0.0.1:{master.port}"
    eventually("the table's state", lambda: "hold" in node.get("/v1/placement"))
    words = ("--agent", node.url, "--ignore", "source-fails")
    told = doctor("--redis", url, *words)
    assert (told.status, told.codes()) == (1, [("redis-cannot-hold", url)])
    assert "min-replicas-to-write is 0, must be at least 1" in told.found("redis-cannot-hold")
    master.client.config_set("min-replicas-to-write", 1)
    master.client.config_set("min-replicas-max-lag", 1)
    assert doctor("--redis", url, *words).status == 0
    # As the agent reaches it.
    file = str(node.log.with_suffix(".toml"))
    assert doctor("--agent-config", file, *words).status == 0

    newer = "redis.register_function{function_name='plimsoll_version',"
    newer += " callback=function() return 99 end, flags={'no-writes'}}"
    node.kill()
    # A replica that is a moment behind must not refuse the write.
    master.client.config_set("min-replicas-to-write", 0)
    master.client.function_load(f"#!lua name=plimsoll\n{newer}", replace=True)
    told = doctor("--redis", url)
    assert (told.status, told.codes()) == (1, [("redis-library", url)])
    replicas = f"redis://127.0.0.1:{replica.port}"
    told = doctor("--redis", replicas)
    assert told.status == 2 and "is a replica" in told.answer["not_asked"][0]["problem"]


def test_a_redis_for_everybody_is_found(stack, tmp_path):
    redis = Redis(stack, tmp_path, "--protected-mode", "no", "--bind", "0.0.0.0").start()
    url = f"redis://127.0.0.1:{redis.port}"
    told = doctor("--redis", url)
    assert (told.status, told.codes()) == (1, [("open-to-everybody", url)])


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "nothing to check"),
        (("--haproxy", "nowhere"), "must be a path that begins with /"),
        (("--haproxy-config", "/nowhere"), "/nowhere: No such file"),
        (("--redis", "redis://u:secret@h:1"), "--redis: must be redis://host:port"),
        (("--envoy", "https://h"), "no TLS"),
        (("--agent", "ftp://h"), "or with https://"),
        (("--agent", "https://h", "--ca-file", "/nowhere"), "--ca-file: /nowhere: No such file"),
        (("--ignore", "nothing"), "must be one of agent-check-missing, "),
        (("--agent-config", "/nowhere"), "/nowhere"),
    ],
)
def test_bad_input_is_told(words, problem):
    command = [programs.agent(), "doctor", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2 and problem in done.stderr and "secret" not in done.stderr, done.stderr


def test_peers_that_are_no_such_programs_are_told(stack):
    other = Answering(lambda *_: (200, b'{"services": 1}\x1b[2J'))
    stack.callback(other.stop)
    at = f"127.0.0.1:{other.port}"
    told = doctor(
        "--haproxy", at, "--agent", f"http://{at}", "--envoy", f"http://{at}", "--redis", f"redis://{at}"
    )
    assert told.status == 2
    failed = [it["what"] for it in told.answer["not_asked"]]
    assert sorted(failed) == [f"Envoy {at}", f"HAProxy {at}", f"Redis redis://{at}", f"agent {at}"]
