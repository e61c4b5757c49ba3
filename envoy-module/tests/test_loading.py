"""Configurations and modules that Envoy rejects, and the problems that it logs."""

import json
import subprocess
from typing import Any

import pytest
from module_site import TEXT, built, entry, policy

GOOD = {"cluster": "test", "agents": "agents"}
UPSTREAM = '{"position": "upstream"}'
STRUCT = "type.googleapis.com/google.protobuf.Struct"
# Needs a callback that Envoy lacks, as after a change of its minor version.
TOMORROW = """
void envoy_dynamic_module_callback_of_tomorrow(void);
const char* envoy_dynamic_module_on_program_init(void) {
    envoy_dynamic_module_callback_of_tomorrow();
    return "v0.9.0";
}
"""


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (GOOD | {"spill": 7}, "spill: must be a number within 0..1, is 7"),
        (GOOD | {"agent": "x"}, "agent: unknown field"),
        ({"cluster": "test"}, "missing field `agents`"),
        ({"position": "upstream", "key": 1}, "key: unknown field"),
        ({"position": "primary", "cluster": "test", "agents": "agents"}, "missing field `object_set`"),
    ],
)
def test_a_wrong_setting_is_named(site, settings, problem):
    config = site.config(built("libplimsoll.so"), json.dumps(settings), UPSTREAM)
    status, said = site.validated(config)
    assert status == 1
    assert f"plimsoll: {problem}" in said


def test_settings_may_be_a_struct(site):
    config = site.config(built("libplimsoll.so"), "", UPSTREAM)
    manager = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    own = manager["http_filters"][0]["typed_config"]["filter_config"]
    own |= {"@type": STRUCT, "value": dict(GOOD)}
    assert site.validated(config)[0] == 0
    own["value"]["spill"] = 7
    status, said = site.validated(config)
    assert status == 1
    assert "plimsoll: spill: must be a number within 0..1, is 7" in said


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "missing field `cluster`"),
        ('{"cluster": ""}', "cluster: must be 1..120"),
        ('{"cluster": "a", "b": 1}', "b: unknown field"),
    ],
)
def test_a_wrong_setting_of_the_load_balancing_policy_is_named(site, text, problem):
    library = built("libplimsoll.so")
    config = site.config(library, json.dumps(GOOD), UPSTREAM)
    config["static_resources"]["clusters"][0]["load_balancing_policy"] = policy(library, text)
    status, said = site.validated(config)
    assert status == 1
    assert f"plimsoll: {problem}" in said


def test_settings_of_a_rejected_listener_do_not_come_into_force(site):
    """They did if another filter of the listener was wrong."""

    def listener(agents: str, second: str) -> dict[str, Any]:
        library = built("libplimsoll.so")
        config = site.config(library, json.dumps(GOOD | {"agents": agents}), UPSTREAM)
        (made,) = config["static_resources"]["listeners"]
        made["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"].insert(
            1, entry(library, {"@type": TEXT, "value": second})
        )
        made["address"]["socket_address"]["port_value"] = envoy.port
        return made

    envoy = site.envoy(
        site.config(built("libplimsoll.so"), json.dumps(GOOD), UPSTREAM) | {"dynamic_resources": {}}
    )
    envoy.start()
    envoy.wait_said("plimsoll: shares: Envoy has no cluster agents")
    envoy.put_listeners([listener("rejected", "{}")])
    envoy.wait_said("plimsoll: missing field")
    envoy.put_listeners([listener("accepted", UPSTREAM)])
    envoy.wait_said("plimsoll: shares: Envoy has no cluster accepted")
    assert envoy.said().count("plimsoll: cluster test: has new settings") == 1
    assert "Envoy has no cluster rejected" not in envoy.said()


def test_a_callback_missing_in_envoy_is_named(site, tmp_path):
    source, library = tmp_path / "tomorrow.c", tmp_path / "libtomorrow.so"
    source.write_text(TOMORROW)
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-z,now", "-o", library, source], check=True)
    status, said = site.validated(site.config(library, "", ""))
    assert status == 1
    assert "undefined symbol: envoy_dynamic_module_callback_of_tomorrow" in said


def test_a_missing_module_is_named(site, tmp_path):
    config = site.config(tmp_path / "libnone.so", "", "")
    status, said = site.validated(config)
    assert status == 1
    assert "libnone.so" in said
