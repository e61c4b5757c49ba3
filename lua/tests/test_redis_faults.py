"""The Lua side against Redis as it can be: slow, hung, closed to it, elsewhere, full, or not Redis at all."""

import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import redis

from lua.redis import library
from lua.tests.balancer import Balancer, Listener, at, follows_a_change, report
from tests.harness import ROOT, programs
from tests.harness.eventually import eventually
from tests.harness.ports import free_ports
from tests.harness.process import run
from tests.harness.redis import Redis

VERSION = library.version("plimsoll")
DOCUMENT = ROOT / "docs" / "redis.md"


def tap(port: int, delay: float) -> Callable[[socket.socket], None]:
    """Hands on what it is told, the answers after a delay."""

    def pump(source: socket.socket, sink: socket.socket, wait: float) -> None:
        with suppress(OSError):
            while chunk := source.recv(65536):
                time.sleep(wait)
                sink.sendall(chunk)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve(near: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", port)) as far:
            threading.Thread(target=pump, args=(near, far, 0), daemon=True).start()
            pump(far, near, delay)

    return serve


def test_a_slow_redis_slows_no_request(stack, tmp_path, one):
    slow = Listener(stack, tap(one.port, 0.2))
    asked = Balancer(stack, tmp_path / "lb", at(slow.port), lease=3)
    asked.wait_policy()
    asked.assert_prompt()
    until = time.monotonic() + 2
    while time.monotonic() < until:
        assert asked.policy_rules(), "news that arrive late are news"


def test_a_hung_redis_slows_no_request_and_is_taken_up_again(stack, tmp_path, one):
    asked = Balancer(stack, tmp_path / "lb", at(one.port))
    asked.wait_policy()
    one.process.send_signal(signal.SIGSTOP)
    asked.assert_prompt()
    asked.wait_balance()
    asked.wait_said("shares")
    asked.assert_prompt()
    one.process.send_signal(signal.SIGCONT)
    asked.wait_policy()


def test_a_wrong_password_is_told_once_and_never_shown(stack, tmp_path):
    server = Redis(stack, tmp_path, "--requirepass", "right-secret", password="right-secret").start()
    server.load()
    report(server)
    asked = Balancer(stack, tmp_path / "lb", at(server.port) + ', password = "wrong-secret"')
    refused = lambda: server.client.info("errorstats").get("errorstat_WRONGPASS", {"count": 0})["count"]  # noqa: E731
    eventually("six tries", lambda: int(refused()) >= 6)
    asked.assert_prompt()
    assert not asked.policy_rules()
    log = asked.said()
    for purpose in ("shares", "changes"):
        assert len(re.findall(rf"^plimsoll .* {purpose}: .*WRONGPASS", log, re.MULTILINE)) == 1
    assert "secret" not in log
    server.client.config_set("requirepass", "wrong-secret")
    asked.wait_policy()


def test_the_documented_user_has_the_rights_it_needs(stack, tmp_path, one):
    rule = re.search(r"^ACL SETUSER haproxy on >PASSWORD (.*)$", DOCUMENT.read_text(), re.MULTILINE)[1]
    one.client.execute_command("ACL", "SETUSER", "haproxy", "on", ">sesame", *rule.split())
    user = ', user = "haproxy", password = "sesame"'
    # Nothing but a published change can be what moves the key: the next period is too far away.
    asked = Balancer(stack, tmp_path / "lb", at(one.port) + user, period=30, lease=60, age=90)
    asked.wait_policy()
    follows_a_change(asked, one)
    assert "NOPERM" not in asked.said()
    assert one.client.acl_log() == []


def certificate(directory: Path, name: str) -> tuple[Path, Path]:
    key, cert = directory / f"{name}.key", directory / f"{name}.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=test"
    command = [
        "openssl",
        *words.split(),
        "-addext",
        "subjectAltName=DNS:redis.example",
        "-keyout",
        key,
        "-out",
        cert,
    ]
    subprocess.run(command, check=True, capture_output=True)
    return key, cert


@pytest.fixture
def over_tls(stack, tmp_path) -> tuple[Redis, int, Path]:
    """A Redis, its port for TLS and its certificate."""
    key, cert = certificate(tmp_path, "redis")
    (port,) = free_ports(1)
    words = ["--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no"]
    server = Redis(stack, tmp_path, *map(str, words)).start()
    server.load()
    report(server)
    return server, port, cert


def test_tls_hides_what_is_said_and_verifies_nobody(stack, tmp_path, over_tls):
    _, port, _ = over_tls
    # No authority that HAProxy knows has signed it, and it is to verify by default.
    asked = Balancer(stack, tmp_path / "lb", at(port) + ", tls = true")
    asked.wait_policy()
    plain = Balancer(stack, tmp_path / "plain", at(port))
    plain.wait_said("shares")
    assert not plain.policy_rules()


def test_tls_by_a_listen_section_verifies_redis(stack, tmp_path, over_tls):
    _, port, cert = over_tls
    text = re.search(r"```haproxy\n(listen plimsoll-redis\n.*?)```", DOCUMENT.read_text(), re.DOTALL)[1]
    _, stranger = certificate(tmp_path, "stranger")
    found = {}
    cases = {"good": (cert, "redis"), "stranger": (stranger, "redis"), "other": (cert, "other")}
    for name, (authority, host) in cases.items():
        (near,) = free_ports(1)
        section = text
        for documented, here in {
            "127.0.0.1:6379": f"127.0.0.1:{near}",
            "192.0.2.5:6380": f"127.0.0.1:{port}",
            "/etc/plimsoll/redis-ca.pem": str(authority),
            "redis.example": f"{host}.example",
        }.items():
            assert documented in section
            section = section.replace(documented, here)
        found[name] = Balancer(stack, tmp_path / name, at(near), more=section)
    found["good"].wait_policy()
    for name in ("stranger", "other"):
        found[name].wait_said("shares")
        assert not found[name].policy_rules()


def replica_of(stack: ExitStack, directory: Path, master: Redis) -> Redis:
    replica = Redis(stack, directory, "--replicaof", "127.0.0.1", str(master.port)).start()
    eventually("it is in step", replica.is_in_step)
    return replica


def test_sentinel_tells_who_is_master_after_a_failover(stack, tmp_path):
    master = Redis(stack, tmp_path, "--repl-diskless-sync-delay", "0").start()
    master.load()
    report(master)
    replica = replica_of(stack, tmp_path, master)
    file = tmp_path / "sentinel.conf"
    file.write_text(
        f"sentinel monitor stocks 127.0.0.1 {master.port} 1\n"
        "sentinel down-after-milliseconds stocks 500\nsentinel failover-timeout stocks 2000\n"
    )
    (port,) = free_ports(1)
    # Its configuration takes a port, but no --save.
    file.write_text(f"port {port}\nbind 127.0.0.1\n" + file.read_text())
    command = [programs.redis(), str(file), "--sentinel", "--dir", str(tmp_path)]
    run(stack, command, tmp_path / "sentinel.log")
    told = redis.Redis(port=port)

    def knows_both() -> bool:
        with suppress(redis.ConnectionError):
            return told.sentinel_master("stocks")["num-slaves"] == 1
        return False

    eventually("the sentinel knows both", knows_both)
    # The first of the sentinels is away.
    asked = Balancer(stack, tmp_path / "lb", at(free_ports(1)[0], port) + ', sentinel = "stocks"')
    asked.wait_policy()
    master.kill()
    asked.wait_balance()
    eventually("the policy rules", asked.policy_rules)
    # The news is the new master's.
    assert replica.client.info("replication")["role"] == "master"
    eventually("a subscription to the new one", lambda: replica.subscribers() == 1)


def test_a_redis_cluster_tells_who_has_the_ring(stack, tmp_path):
    words = ["--cluster-enabled", "yes", "--cluster-node-timeout", "500", "--cluster-port"]
    buses = free_ports(2)
    nodes = [Redis(stack, tmp_path, *words, str(bus)).start() for bus in buses]
    slot = nodes[0].client.cluster("KEYSLOT", "plimsoll:{test}:nodes")
    ranges = [(0, 8191), (8192, 16383)]
    for node, (first, last) in zip(nodes, ranges, strict=True):
        node.client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
    nodes[0].client.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port, buses[1])
    for node in nodes:
        eventually(
            "the cluster is whole", lambda node=node: node.client.cluster("INFO")["cluster_state"] == "ok"
        )
    holder = nodes[0 if slot <= ranges[0][1] else 1]
    other = next(node for node in nodes if node is not holder)
    # As the agents do, which look for the holder: only there.
    holder.load()
    report(holder)
    asked = Balancer(stack, tmp_path / "lb", at(other.port), period=30, lease=60, age=90)
    asked.wait_policy()
    follows_a_change(asked, other, holder)
    assert other.subscribers() == 1


def test_a_replica_is_left_for_the_next_address_and_used_once_it_is_the_master(stack, tmp_path):
    master = Redis(stack, tmp_path, "--repl-diskless-sync-delay", "0").start()
    master.load()
    report(master)
    replica = replica_of(stack, tmp_path, master)
    both = Balancer(stack, tmp_path / "both", at(replica.port, master.port))
    both.wait_policy()
    alone = Balancer(stack, tmp_path / "alone", at(replica.port))
    alone.wait_said("READONLY")
    alone.assert_prompt()
    assert not alone.policy_rules()
    replica.client.replicaof("NO", "ONE")
    alone.wait_policy()


def test_a_full_redis_is_told_and_taken_up_again(stack, tmp_path, one):
    asked = Balancer(stack, tmp_path / "lb", at(one.port))
    asked.wait_policy()
    one.client.config_set("maxmemory", 1)
    asked.wait_balance()
    assert "OOM" in asked.said()
    asked.assert_prompt()
    one.client.config_set("maxmemory", 0)
    asked.wait_policy()


def test_another_version_of_the_library_is_told_and_left_alone(stack, tmp_path, one):
    text = library.text("plimsoll").replace(f"VERSION = {VERSION}\n", f"VERSION = {VERSION + 1}\n")
    one.client.function_load(text, replace=True)
    asked = Balancer(stack, tmp_path / "lb", at(one.port))
    asked.wait_said(f"Redis has version {VERSION + 1} of the library, this is for version {VERSION}")
    asked.assert_prompt()
    assert not asked.policy_rules()
    assert one.client.hgetall("plimsoll:{test}:proxies") == {}
    one.load()
    asked.wait_policy()


def test_a_missing_library_is_told_and_used_once_it_is_there(stack, tmp_path):
    server = Redis(stack, tmp_path).start()
    asked = Balancer(stack, tmp_path / "lb", at(server.port))
    asked.wait_said("Function not found")
    assert not asked.policy_rules()
    server.load()
    report(server)
    asked.wait_policy()


SHARES = b"*%d\r\n:1\r\n:1\r\n$5\r\nnode1\r\n"


def endless(piece: bytes) -> Callable[[socket.socket], None]:
    def serve(stream: socket.socket) -> None:
        while True:
            stream.sendall(piece)

    return serve


def drip(stream: socket.socket) -> None:
    """Never silent for long, never done."""
    stream.sendall(b"$1000\r\n")
    while True:
        stream.sendall(b"x")
        time.sleep(0.05)


def says(*answers: bytes, version: bytes = b":%d\r\n" % VERSION) -> Callable[[socket.socket], None]:
    """The library's version, and then each of these in turn for ever, whatever is asked."""
    turn = 0

    def serve(stream: socket.socket) -> None:
        nonlocal turn
        while asked := stream.recv(65536):
            if b"plimsoll_version" in asked:
                stream.sendall(version)
            else:
                turn += 1
                stream.sendall(answers[turn % len(answers)])

    return serve


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text)


HOSTILE = {
    "garbage": says(b"\0\xff\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"\r\n", b"\n", version=b"SSH-2.0-x\r\n"),
    "an endless line": endless(b"+" + b"x" * 65536),
    "an endless string": endless(b"$4194000\r\n" + b"x" * 65536),
    "endless answers": endless(b":1\r\n" * 10_000),
    "lengths": says(b"$99999999999\r\n", b"$-7\r\n", b"*99999999\r\n", b"*-7\r\n", b"$\r\n", b"*x\r\n"),
    "a huge list": endless(b"*65536\r\n" + b"*65536\r\n" + b"$-1\r\n" * 60_000),
    "nested lists": says(b"*1\r\n" * 1000, b"*2\r\n" * 4, b"*3\r\n*1\r\n:1\r\n*0\r\n*1\r\n*0\r\n"),
    "wrong types": says(
        b":1\r\n", b"+OK\r\n", b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"*2\r\n$1\r\n1\r\n$1\r\n1\r\n",
        b"*3\r\n:1\r\n:1\r\n:1\r\n", SHARES % 8 + b"$-1\r\n" * 5, SHARES % 8 + b"*0\r\n" * 5,
        SHARES % 8 + b"-ERR\r\n" * 5,
        b"*8\r\n:1\r\n:1\r\n*0\r\n" + b":5\r\n" * 5, b"*3\r\n+message\r\n*0\r\n*0\r\n", b"*1\r\n+message\r\n",
    ),
    "numbers": says(
        *(SHARES % 8 + bulk(word) * 5 for word in (b"nan", b"-nan", b"inf", b"1e999", b"-1", b"", b"1e16")),
        b"*2\r\n:-5\r\n:-5\r\n", b"*2\r\n:9223372036854775807\r\n:9223372036854775807\r\n",
        b"*2\r\n:99999999999999999999\r\n:1\r\n",
    ),
    "half answers": says(SHARES % 8, b"*8\r\n:1\r\n", b"$100\r\nhalf", b"*", b"$5", version=b":"),
    "other places": says(
        b"-MOVED 1 nonsense\r\n", b"-MOVED 1 redis.example:6379\r\n", b"-MOVED 1 127.0.0.1:99999\r\n",
        b"-MOVED 1 :1\r\n", b"-MOVED\r\n", version=b"-MOVED 1 nowhere\r\n",
    ),
    "errors": says(b"-\r\n", b"-ERR \x1b[31m%s%n" + b"x" * 9000 + b"\r\n", b"-NOAUTH\r\n", b"-LOADING\r\n"),
    "a drip": drip,
    "silence": lambda stream: time.sleep(60),
    "nothing": lambda stream: None,
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_answers_change_nothing_and_the_real_redis_is_taken_up(stack, tmp_path, one, what):
    fake = Listener(stack, HOSTILE[what])
    asked = Balancer(stack, tmp_path / "lb", at(fake.port), age=0.5, timeout=0.3)
    # Both of its connections, and where it does not hold them, more than once.
    eventually("it was asked", lambda: fake.connections >= 2)
    until = time.monotonic() + 0.7
    while time.monotonic() < until:
        assert not asked.policy_rules()
    asked.assert_prompt()
    assert asked.resident_mib() < 300
    fake.close()
    real = Redis(stack, tmp_path, port=fake.port).start()
    real.load()
    report(real)
    asked.wait_policy()
    eventually("a subscription", lambda: real.subscribers() == 1)
    log = asked.said()
    assert "\x1b" not in log
    assert max(map(len, log.splitlines())) < 1000


def test_a_hostile_sentinel_ends_no_task(stack, tmp_path, one):
    answers = [
        b"*2\r\n*0\r\n*0\r\n",
        b"*2\r\n$-1\r\n$-1\r\n",
        b"*2\r\n+x\r\n+y\r\n",
        b"*2\r\n+1.1.1.1\r\n+0\r\n",
        b"+x\r\n",
    ]
    good = b"*2\r\n$9\r\n127.0.0.1\r\n" + bulk(str(one.port).encode())
    turn = 0

    def serve(stream: socket.socket) -> None:
        nonlocal turn
        turn += 1
        stream.recv(65536)
        stream.sendall(answers[turn] if turn < len(answers) else good)

    asked = Balancer(stack, tmp_path / "lb", at(Listener(stack, serve).port) + ', sentinel = "stocks"')
    asked.wait_policy()
    eventually("a subscription", lambda: one.subscribers() == 1)


def test_a_quiet_subscription_is_kept(stack, tmp_path, one):
    """Silence is broken by a ping before the connection is thought dead, also after Redis was away."""
    asked = Balancer(stack, tmp_path / "lb", at(one.port), period=1, lease=3, age=10, timeout=1)
    asked.wait_policy()
    one.kill()
    asked.wait_said("connection closed")
    one.start()
    one.load()
    report(one)
    eventually("a subscription", lambda: one.subscribers() == 1)
    eventually("a report", lambda: one.client.hlen("plimsoll:{test}:proxies") == 1)
    log = asked.said
    in_touch = lambda: set(re.findall(r"(\w+): in touch with Redis", log()))  # noqa: E731
    eventually("both are in touch", lambda: len(in_touch()) == 2)
    ids = lambda: {client["id"] for client in one.client.client_list() if client["name"] == ""}  # noqa: E731
    before, said = ids(), log()
    assert len(before) == 3
    # Longer than twice the time between pings, after which it would be given up.
    time.sleep(12)
    assert ids() == before
    assert log() == said
