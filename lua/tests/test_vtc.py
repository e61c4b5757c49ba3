"""The Lua policy in a real HAProxy, each case a script for varnishtest (lua/tests/vtc)."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.harness import ROOT, programs
from tests.harness.functions import Cluster, owner
from tests.harness.ports import free_ports
from tests.harness.process import TIED

SCRIPTS = Path(__file__).parent / "vtc"
POLICY = (ROOT / "haproxy" / "snippets" / "lua-policy.cfg").read_text()


def in_force(policy: str, variable: str) -> str:
    """The policy with its commented rule that sets this variable."""
    rule = f"   http-request set-var({variable})"
    assert f"#{rule}" in policy
    return policy.replace(f"#{rule}", f" {rule}")


# Of an operator who trusts clients to say what they cost.
TRUSTING = in_force(POLICY, "txn.plimsoll_cost").replace(
    ",lua.plimsoll_admit", ',concat(" ",txn.plimsoll_cost),lua.plimsoll_admit'
)
# Of an operator who has classes, and takes the cost from the client as well.
CLASSED = (
    in_force(TRUSTING, "txn.plimsoll_class")
    .replace("xxh32,", 'xxh32,concat("/",txn.plimsoll_class),')
    .replace("str(-),", 'str(-),concat("/",txn.plimsoll_class),')
)
# What follows the decision, for scripts that ask for one in another way.
DECISION = POLICY[POLICY.index("    http-request return") :]
TOLD = """\
        http-response set-header x-policy %[var(txn.plimsoll)]
        http-response set-header x-server %s
"""
HEAD = """\
    global
        nbthread 1
    .if version_atleast(3.2)
        tune.lua.bool-sample-conversion normal
    .endif
        lua-prepend-path {root}/lua/?.lua
        lua-prepend-path {root}/lua/?/init.lua
        {load} {lua}
    defaults
        mode http
        timeout connect 500ms
        timeout client 10s
        timeout server 10s
        timeout queue 50ms
"""
PROXY = """\
    frontend web
        bind "fd@${fe}"
        default_backend queries
    backend queries
        balance roundrobin
"""
# Whatever came before: two are admitted at once, and a third is not.
TWO_FIT = """\
barrier b8 cond 3
barrier b9 cond 3
server s0 {
    rxreq
    barrier b8 sync
    barrier b9 sync
    txresp -hdr "connection: close"
} -dispatch
haproxy h1 -cli {
    send "set server queries/s1 addr ${s0_addr} port ${s0_port}"
    expect ~ "port changed"
}
client c7 -connect ${h1_fe_sock} {
    txreq -url "/stock/Z?given=-"
    rxresp
    expect resp.status == 200
} -start
client c8 -connect ${h1_fe_sock} {
    txreq -url "/stock/Z?given=-"
    rxresp
    expect resp.status == 200
} -start
client c9 -connect ${h1_fe_sock} {
    barrier b8 sync
    txreq -url "/stock/Z?given=-"
    rxresp
    expect resp.status == 503
    barrier b9 sync
} -run
client c7 -wait
client c8 -wait
"""
SETTINGS = """\
require("plimsoll").start({{
  cluster = "{cluster}", backend = "queries", proxy = "lb", period = 0.1, lease = 10,
  redis = {{ addresses = {{ "127.0.0.1:{port}" }} }},
}})
"""
SECONDS = 15


def key_of(cluster: Cluster, node: str) -> str:
    _, _, names, owners = cluster.ring()
    keys = (f"S{number:04}" for number in range(10_000))
    return next(key for key in keys if owner(key, names, owners) == node)


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.vtc")), ids=lambda path: path.stem)
def test_script(server, tmp_path, script):
    cluster = Cluster(server.client, script.stem)
    server.client.delete(*cluster.keys)
    bounds = re.findall(r"(s\d)=(\d+)", re.search(r"^# bounds: (.*)$", script.read_text(), re.MULTILINE)[1])
    for node, bound in bounds:
        cluster.report(node, int(bound))
    lua = tmp_path / "plimsoll.lua"
    lua.write_text(SETTINGS.format(cluster=script.stem, port=server.port))
    head = HEAD.format(root=ROOT, load="lua-load-per-thread", lua=lua)
    macros = {
        "head": head,
        "web": PROXY,
        "policy": POLICY + TOLD,
        "decision": DECISION + TOLD,
        "proxy": head + PROXY + POLICY + TOLD,
        "two_fit": TWO_FIT,
        "trusting": head + PROXY + TRUSTING + TOLD,
        "classed": head + PROXY + CLASSED + TOLD,
        "await": f"{SCRIPTS}/await {server.port} {script.stem}",
        "placed": f"{SCRIPTS}/placed",
        "dead_port": free_ports(1)[0],
        "long": "9" * 10_000,
        **{f"key_{node}": key_of(cluster, node) for node, _ in bounds},
    }
    # Not by -D, which takes short values only.
    text = re.sub(r"\$\{(\w+)\}", lambda found: str(macros.get(found[1], found[0])), script.read_text())
    rendered = tmp_path / script.name
    rendered.write_text(text)
    done = subprocess.run(
        [*TIED, "varnishtest", "-t", str(SECONDS), str(rendered)],
        env=os.environ | {"HAPROXY_PROGRAM": programs.haproxy(), "TMPDIR": str(tmp_path)},
        capture_output=True, text=True, check=False, timeout=2 * SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def config(load: str, threads: int, directory: Path) -> Path:
    lua = directory / "plimsoll.lua"
    lua.write_text(SETTINGS.format(cluster="c", port=6379))
    head = HEAD.format(root=ROOT, load=load, lua=lua).replace("nbthread 1", f"nbthread {threads}")
    proxy = PROXY.replace("fd@${fe}", f"127.0.0.1:{free_ports(1)[0]}")
    file = directory / "haproxy.cfg"
    file.write_text(f"{head}{proxy}{POLICY}{TOLD}        server s1 127.0.0.1:1\n")
    return file


# From 3.0 on more threads than processors are a warning.
@pytest.mark.parametrize("threads", [1, 2])
def test_the_snippet_is_accepted_without_a_warning(tmp_path, haproxy, threads):
    file = config("lua-load-per-thread", threads, tmp_path)
    done = subprocess.run(
        [haproxy, "-dW", "-c", "-f", str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("threads", [1, 2])
def test_one_lua_for_all_threads_is_refused(tmp_path, haproxy, threads):
    file = config("lua-load", threads, tmp_path)
    done = subprocess.run([haproxy, "-c", "-f", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "plimsoll: load it with lua-load-per-thread, not with lua-load" in done.stderr
