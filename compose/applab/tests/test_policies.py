"""The policies of loadtests/app-policies.toml, and whether their programs take what is written for them."""

import subprocess
import tomllib

import pytest

from compose.applab import nodes, policies, render
from compose.applab.render import Addresses
from compose.apps import catalog
from compose.lab.errors import LabError
from compose.lab.render import table
from tests.harness import programs

HAS_AGENT = programs.are_found(programs.agent)
# Those of libraries are tested with these (loadtests/families/proxies/tests).
EVERY = [
    name
    for name, entry in table(policies.POLICIES).items()
    if name not in ("defaults", "common") and not entry["example"].endswith(".json")
]


def names(*wanted: str) -> list[str]:
    return [policy.name for policy in policies.load(list(wanted))]


def test_a_sweep_is_as_many_policies_as_it_has_values():
    assert names("rr", "static") == ["rr", *(f"static-{n}" for n in (2, 3, 4, 6, 8, 12, 16))]
    [policy] = policies.load(["static-5"])
    assert (policy.group, policy.base.settings) == ("static", {"maxconn": 5})


def test_settings_that_are_swept_together_are_numbered():
    swept = policies.load(["envoy-adaptive-concurrency-swept"])
    assert [policy.name[-2:] for policy in swept] == [f"-{n}" for n in range(1, 9)]
    assert len({tuple(policy.base.settings.values()) for policy in swept}) == 8


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ([], "--policies: name at least one of rr leastconn static"),
        (["fc-hash"], "--policies fc-hash: "),
        (["rr", "rr"], "--policies: rr is named twice"),
        (["static", "static-4"], "--policies: static-4 is named twice"),
        (["static-0"], "--policies static-0: "),
        (["envoy-adaptive-concurrency-swept-9"], "--policies envoy-adaptive-concurrency-swept-9: it must be"),
    ],
)
def test_policies_that_are_not_there(wanted, error):
    with pytest.raises(LabError) as raised:
        policies.load(wanted)
    assert str(raised.value).startswith(error)


def test_an_application_without_a_histogram_has_no_policy_by_it():
    assert "fc-leastconn-histogram" in policies.default_names("overload", True)
    assert "fc-leastconn-histogram" not in policies.default_names("overload", False)
    assert policies.default_names("nominal", False)[0] == "fc-leastconn"


@pytest.mark.parametrize("name", EVERY)
def test_programs_accept_their_configurations(name, tmp_path):
    [policy, *_] = policies.load([name])
    if policy.base.has_ring and not programs.are_found(programs.wasm):
        pytest.skip("needs `make build`")
    addresses = Addresses.free()
    # The proxy itself checks.
    front = render.proxy(policy, addresses, tmp_path)
    text = (tmp_path / ("lb1.yaml" if policy.base.proxy == "envoy" else "lb1.cfg")).read_text()
    assert "transactions" not in text
    assert "/readyz" not in text
    assert all(str(port) in text for port in addresses.ports.slaves)
    assert front.frontend == addresses.ports.frontend
    if policy.source is None:
        return
    for app in ("go", "flask", "express"):
        metrics = nodes.source(catalog.app(app), 1, addresses)
        config = tmp_path / f"{app}.toml"
        config.write_text(render.agent(policy, 1, addresses, tmp_path, metrics, 20.0))
        if HAS_AGENT:
            command = [programs.agent(), "agent", "--check-config", "--config", str(config)]
            checked = subprocess.run(command, capture_output=True, text=True, check=False)
            assert checked.returncode == 0, checked.stderr


def test_agent_configuration_has_sla_identity_and_source(tmp_path):
    [policy] = policies.load(["fc-prop"])
    addresses = Addresses.free()
    [service] = tomllib.loads(render.agent(policy, 1, addresses, tmp_path, None, 20.0))["service"]
    log = f"udp://127.0.0.1:{addresses.logs[1]}"
    assert service == {
        "name": "queries",
        "identities": ["queries/node2"],
        "address": addresses.ports.node(1),
        "sla": {"delay": "500ms"},
        "source": {"kind": "haproxy-log", "listen": log, "node": "queries/node2"},
    }
    assert f"log 127.0.0.1:{addresses.logs[1]} local0 info" in render.haproxy(
        policy, addresses, tmp_path / "lb1.sock"
    )


def test_wrong_nominal_is_a_share_of_the_timely_capacity(tmp_path):
    [policy] = policies.load(["fc-leastconn-nominal-tenfold"])
    [service] = tomllib.loads(render.agent(policy, 0, Addresses.free(), tmp_path, None, 20.0))["service"]
    assert service["bound"] == {"nominal": 100.0}


def test_a_histogram_that_is_not_there_is_said(tmp_path):
    [policy] = policies.load(["fc-leastconn-histogram"])
    with pytest.raises(LabError, match="--policies fc-leastconn-histogram: the application has no histogram"):
        render.agent(policy, 0, Addresses.free(), tmp_path, None, 20.0)
