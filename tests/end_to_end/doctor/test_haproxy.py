"""Each finding of `plimsoll doctor` about HAProxy and its agents, made on the real programs."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from tests.end_to_end.doctor.site import BOUND, CONFIG, NODES, Site, doctor
from tests.harness.eventually import eventually
from tests.harness.fixtures import HAPROXYS
from tests.harness.haproxy import HAProxy
from tests.harness.ports import free_ports

# Debian 12's, and the newest there is.
ENDS = pytest.mark.parametrize("haproxy", (HAPROXYS[0], HAPROXYS[-1]), indirect=True)
SHIFTED = """\
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int (*real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
    int done = real(now, zone);
    now->tv_sec -= 60;
    return done;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec -= 60;
    return done;
}
"""


def proxies(site: Site) -> int:
    """That the first node's agent was asked by, more than once."""
    return len(site.agents["node1"].json("/v1/node")["services"]["stocks"]["proxies"])


@ENDS
def test_a_set_up_in_order_has_no_findings(stack, tmp_path, haproxy):
    site = Site(stack, tmp_path, haproxy)
    user = f"    stats socket {tmp_path}/user.sock level user\n"
    site.start(("\ndefaults\n", f"{user}\ndefaults\n"))
    told = site.doctor()
    assert (told.status, told.codes()) == (0, [])
    assert told.answer == {"findings": [], "not_asked": [], "not_looked_at": []}
    less = doctor("--haproxy", f"{tmp_path}/user.sock")
    assert (less.status, len(less.answer["not_looked_at"])) == (0, 3)


@ENDS
def test_what_is_wrong_with_a_backend_is_found_at_the_socket_and_in_the_file(stack, tmp_path, haproxy):
    site = Site(stack, tmp_path, haproxy)
    port = site.agents["node2"].check_port
    send = ' agent-send "queries/node2\\n"'
    more = "    server plain 127.0.0.1:1 no-agent-check\n"
    more += '    server gone 127.0.0.1:1 agent-port 1 agent-send "queries/gone\\n"\n'
    site.start(
        ("timeout queue 50ms\n", "# none\n"),
        ("balance leastconn", "balance uri"),
        ("weight 100 ", "weight 10 "),
        (f"agent-port {port}{send}\n", f"agent-port {port}\n{more}"),
    )
    site.agents["node1"].node("force", "weight", "63")
    refused = lambda: "static LB algorithm" in site.haproxy.servers()["node1"]["last_agt"]  # noqa: E731
    eventually("HAProxy refused the weight", refused)
    live = site.doctor(config=False)
    assert live.status == 1
    small = [("weight-small", f"queries/{name}") for name in ("gone", "node1", "node2")]
    expected = {
        ("agent-check-missing", "queries/plain"),
        ("agent-silent", "queries/gone"),
        ("balance-ignores-weights", "queries"),
        *small,
    }
    # The one without a line gets its answer too late.
    assert set(live.codes()) - {("agent-silent", "queries/node2")} == expected
    assert "hash-type map-based refused a weight" in live.found("balance-ignores-weights")
    told = site.doctor()
    file = {("agent-send-missing", "queries/node2"), ("timeout-queue-unset", "queries")}
    assert set(told.codes()) - {("agent-silent", "queries/node2")} == expected | file
    lines = site.config.splitlines()
    line = 1 + next(i for i, text in enumerate(lines) if text.startswith("    server node2"))
    assert told.found("agent-send-missing").startswith(f"{tmp_path}/haproxy.cfg:{line}: no agent-send")
    line = 1 + lines.index("backend queries")
    assert told.found("timeout-queue-unset").startswith(f"{tmp_path}/haproxy.cfg:{line}: no timeout queue")


@ENDS
def test_agents_that_are_asked_for_another_server_are_found(stack, tmp_path, haproxy):
    site = Site(stack, tmp_path, haproxy, node1='["queries/node1", "queries/node3"]')
    one, two = (site.agents[node].check_port for node in NODES)
    third = f'    server node3 127.0.0.1:1 agent-port {one} agent-send "queries/node3\\n"\n'
    copied = f'{two} agent-send "queries/node1\\n"\n'
    site.start((f'{two} agent-send "queries/node2\\n"\n', copied + third))
    shared = lambda: proxies(site) == 2  # noqa: E731
    eventually("both were asked twice", shared)
    told = site.doctor()
    assert told.codes() == [
        ("agent-unknown-identity", "queries/node2"),
        ("agent-of-another-server", "queries/node1"),
        ("agent-of-another-server", "queries/node2"),
        ("agent-of-another-server", "queries/node3"),
    ]
    found = {it["at"]: it["found"] for it in told.answer["findings"][1:]}
    assert "queries/node1 and queries/node3, which are different servers" in found["queries/node1"]
    assert found["queries/node2"].endswith("haproxy.cfg:20 does")
    own = f"127.0.0.1:{site.ports['node1']}"
    assert found["queries/node3"].endswith(f"answers for {own}")


@ENDS
def test_a_limit_that_another_hand_set_and_a_check_that_is_off_are_found(stack, tmp_path, haproxy):
    site = Site(stack, tmp_path, haproxy)
    site.start(("agent-inter 100ms", "agent-inter 1s"))
    eventually("two questions", lambda: proxies(site) == 1)
    site.haproxy.ask("disable agent queries/node2")
    with ThreadPoolExecutor() as other:
        stop = Event()

        def sets_it() -> None:
            while not stop.wait(0.01):
                site.haproxy.ask("set maxconn server queries/node1 7")

        done = other.submit(sets_it)
        expected = [("agent-check-off", "queries/node2"), ("maxconn-not-following", "queries/node1")]
        told = []

        def found() -> bool:
            # Right after an answer of the agent the limit is as it should be.
            told[:] = [site.doctor()]
            return told[0].codes() == expected

        try:
            eventually("the findings", found)
        finally:
            stop.set()
        done.result()
    assert told[0].status == 1
    assert told[0].found("maxconn-not-following") == f"the limit in force is 7, the agent answered {BOUND}"


@ENDS
def test_clocks_and_open_sockets_are_found(stack, tmp_path, haproxy):
    (tmp_path / "shifted.c").write_text(SHIFTED)
    library = tmp_path / "shifted.so"
    source = str(tmp_path / "shifted.c")
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, source], check=True)
    site = Site(stack, tmp_path, haproxy)
    (port,) = free_ports(1)
    bound = f"    stats socket ipv4@*:{port} level operator\n"
    site.start(("\ndefaults\n", f"{bound}\ndefaults\n"), LD_PRELOAD=str(library))
    told = site.doctor()
    expected = {"clocks-apart", "open-to-everybody"}
    assert (told.status, {code for code, _ in told.codes()}) == (1, expected)
    assert told.found("clocks-apart") in {f"its clock is {n} s behind most others" for n in (59, 60, 61)}
    assert told.found("open-to-everybody").startswith(f"stats socket ipv4@0.0.0.0:{port}, level operator")
    # By TCP the same is told.
    assert doctor("--haproxy", f"127.0.0.1:{port}").found("clocks-apart")


@pytest.mark.parametrize("haproxy", HAPROXYS[-1:], indirect=True)
def test_proxies_of_two_versions_are_found(stack, tmp_path, haproxy):
    sockets = []
    for name, program in (("old", ""), ("new", haproxy), ("newer", haproxy)):
        directory = tmp_path / name
        directory.mkdir()
        (port,) = free_ports(1)
        head = CONFIG.format(directory=directory, port=port).replace("backend queries", "backend other")
        text = head.replace("default_backend queries\n", "\n")
        sockets += ["--haproxy", str(HAProxy(stack, directory, text, program=program).start().socket)]
    told = doctor(*sockets)
    assert told.codes() == [("versions-differ", f"unix://{tmp_path}/old/haproxy.sock")]
    assert told.found("versions-differ").startswith("HAProxy 2.6.")
