"""The module in each version of Envoy that it supports."""

import json
import subprocess

import pytest
from module_site import built, executable, policy, symbols

from tests.harness import programs
from tests.harness.eventually import eventually

SETTINGS = json.dumps({"cluster": "test", "agents": "nobody", "key": {"path_segment": 1}, "period": 0.1})


def test_envoy_exports_each_callback_that_the_module_needs(version):
    needed = symbols(built("libplimsoll.so"), "undefined")
    assert len(needed) > 20
    assert not needed - symbols(executable(version), "defined")


def test_requests_pass_a_filter_that_does_nothing(site_of, version):
    site = site_of(version)
    envoy = site.envoy(site.config(built("examples/libnoop.so"), "", "")).start()
    for number in range(20):
        assert envoy.get(f"/{number}")[0] == 200
    envoy.process.terminate()
    assert envoy.process.wait(30) == 0


def test_requests_pass_while_no_agent_answers(site_of, version):
    site, library = site_of(version), built("libplimsoll.so")
    config = site.config(library, SETTINGS, '{"position": "upstream"}')
    config["static_resources"]["clusters"][0]["load_balancing_policy"] = policy(
        library, '{"cluster": "test"}'
    )
    envoy = site.envoy(config).start()
    for number in range(20):
        assert envoy.get(f"/{number}")[0] == 200
    assert envoy.counted((0, 0, 0), 20) == (0, 0, 20)
    eventually("nothing in flight", lambda: envoy.stats()["in_flight_requests"] == 0)
    envoy.wait_said("plimsoll: shares: Envoy has no cluster nobody")
    envoy.process.terminate()
    assert envoy.process.wait(30) == 0
    assert "panicked" not in envoy.said()


def test_another_abi_version_is_logged(site_of, version):
    """Envoy only warns of another version; test_loading.py has what it rejects."""
    site = site_of(version)
    status, said = site.validated(site.config(built("examples/libnoop.so"), "", ""))
    assert status == 0, said
    is_older = version == "1.39" or programs.envoy_version().startswith("envoy 1.39.")
    assert ("ABI version v0.2.0 is deprecated" in said) == is_older


@pytest.mark.parametrize(
    ("told", "warning", "refusal"),
    [
        # Rejected in any case, as the hooks are missing.
        (
            '"v7.0.0"',
            "ABI version v7.0.0 is deprecated",
            "symbol envoy_dynamic_module_on_http_filter_config_new",
        ),
        ("0", "", "Failed to initialize dynamic module"),
    ],
)
def test_a_module_without_hooks_or_version_is_rejected(site_of, version, tmp_path, told, warning, refusal):
    source, library = tmp_path / "stub.c", tmp_path / "libstub.so"
    source.write_text(f"const char *envoy_dynamic_module_on_program_init(void) {{ return {told}; }}")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    site = site_of(version)
    status, said = site.validated(site.config(library, "", ""))
    assert status == 1
    assert warning in said
    assert refusal in said
