"""Every example is one that Envoy takes."""

import subprocess

import pytest
from native_site import EXAMPLES

from compose.lab import envoy, machine
from compose.lab.errors import LabError


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_envoy_takes_it_without_a_warning(example, tmp_path):
    text = example.read_text()
    if envoy.MODULE in text:
        try:
            text = text.replace("/usr/share/plimsoll/envoy_wasm.wasm", str(envoy.module()))
        except LabError:
            pytest.skip("needs `make build`")
    config = tmp_path / example.name
    config.write_text(text)
    command = [machine.envoy(), "--mode", "validate", "--log-level", "warning", "-c", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[warning]" not in done.stderr
