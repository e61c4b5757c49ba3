"""Envoy accepts every example."""

import subprocess

import pytest

from tests.harness import programs
from tests.harness.envoy import examples
from tests.harness.envoy_filter import FILTERS, WITH_LOAD_REPORTS, needs_envoy, with_built

NEEDS = {"orca-cswrr": WITH_LOAD_REPORTS}


@pytest.mark.parametrize("example", examples().values(), ids=lambda path: path.stem)
def test_envoy_accepts_the_example_without_a_warning(example, tmp_path):
    text = example.read_text()
    kinds = [kind for kind in FILTERS.values() if kind.installed in text]
    if not programs.are_found(*(kind.built for kind in kinds)):
        pytest.skip("needs `make build`")
    needs_envoy(programs.envoy(), max([NEEDS.get(example.stem, (0, 0)), *(kind.oldest for kind in kinds)]))
    config = tmp_path / example.name
    config.write_text(with_built(text))
    command = [programs.envoy(), "--mode", "validate", "--log-level", "warning", "-c", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # Envoy 1.39 has one for the module, which is tested with it (docs/envoy-module.md).
    warnings = [line for line in done.stderr.splitlines() if "[warning]" in line]
    assert not [line for line in warnings if "Dynamic module ABI version v0.2.0 is deprecated" not in line]
