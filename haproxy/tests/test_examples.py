"""Every example is a configuration that each HAProxy takes without a warning."""

import re
import subprocess

import pytest

from tests.harness import ROOT

EXAMPLES = sorted((ROOT / "haproxy" / "examples").glob("*.cfg"))
POLICIES = {
    *("rr", "leastconn", "random2", "static-maxconn", "prop"),
    *(
        "fc-prop",
        "fc-prop-mean",
        "fc-hash",
        "limits-fc-hash",
        "lua-fc-hash",
        "lua-scheduler",
        "lua-placement",
        "gather",
    ),
}


def test_there_is_an_example_for_each_policy():
    assert {path.stem for path in EXAMPLES} == POLICIES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_haproxy_accepts_it_without_a_warning(example, tmp_path, haproxy):
    # The directory of the packaged socket may not exist where the tests run.
    text = example.read_text().replace("/run/haproxy/plimsoll.sock", str(tmp_path / "socket"))
    text = text.replace("/usr/share/plimsoll/lua", str(ROOT / "lua"))
    settings = "plimsoll-placement.lua" if example.stem == "lua-placement" else "plimsoll.lua"
    text = text.replace("/etc/haproxy/plimsoll.lua", str(ROOT / "haproxy" / "examples" / settings))
    config = tmp_path / example.name
    config.write_text(text)
    check = subprocess.run(
        [haproxy, "-c", "-f", str(config)], capture_output=True, text=True, timeout=20, check=False
    )
    output = check.stdout + check.stderr
    assert check.returncode == 0, output
    assert not re.search("warning|alert", output, re.IGNORECASE), output


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_agent_send_is_on_every_server_or_on_none(example):
    # A server without it beside one with it waits 200 ms for each agent check.
    (queries,) = re.findall(
        r"^backend queries\n(.*?)(?:\n\n|\Z)", example.read_text(), re.MULTILINE | re.DOTALL
    )
    servers = re.findall(r"^    server node\d.*$", queries, re.MULTILINE)
    assert len(servers) == 5
    assert len({"agent-send" in server for server in servers}) == 1


def test_refusals_give_their_reason_in_one_vocabulary():
    places = [
        *ROOT.glob("haproxy/*/*.cfg"),
        *ROOT.glob("compose/**/*.cfg"),
        *ROOT.glob("envoy-wasm/examples/*.yaml"),
    ]
    reasons = {
        reason
        for path in places
        for line in path.read_text().splitlines()
        for reason in re.findall(r'plimsoll-reason(?: |, value: )("[^"]*"|[^ }]+(?: [^}]*)?)', line)
    }
    # The others are Lua's, or the filter's, own.
    told = {reason.split(" if ")[0].strip() for reason in reasons if "%[" not in reason}
    assert told == {"full", "down", "name", "lua"}
