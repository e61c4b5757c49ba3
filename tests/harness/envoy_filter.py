"""The builds of Plimsoll's filter for Envoy: the same tests run over each."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from compose.lab import machine
from tests.harness import ROOT, programs

# Oldest with load reports out of band.
WITH_LOAD_REPORTS = (1, 39)
# Each that the module supports: that of requirements.txt, or what `make matrix` puts on the PATH; the oldest.
ENVOYS = {"path": programs.envoy, "1.39": lambda: str(ROOT / ".tools" / "envoy-1.39" / "bin" / "envoy")}


@dataclass(frozen=True)
class Filter:
    """Configuration of a build in Envoy, and its statistics."""

    name: str
    # Path in a package, and path in the build.
    installed: str
    built: Callable[[], Path]
    # Path to the configuration within an entry of `http_filters`.
    configuration: tuple[str, ...]
    # Statistics in the admin interface are `<prefix><name><label><cluster>`.
    prefix: str
    label: str
    # Dispatchers of a process besides its workers'.
    more_dispatchers: int
    # Oldest version of Envoy, major and minor.
    oldest: tuple[int, int]
    envoy: Callable[[], str] = programs.envoy

    @property
    def examples(self) -> Path:
        return ROOT / f"envoy-{self.name}" / "examples"


FILTERS = {
    found.name: found
    for found in (
        Filter(
            name="wasm",
            installed="/usr/share/plimsoll/envoy_wasm.wasm",
            built=programs.wasm,
            configuration=("config", "configuration"),
            prefix="wasmcustom.plimsoll_",
            label=".cluster.",
            # The main thread has a VM as well.
            more_dispatchers=1,
            oldest=machine.ENVOY_NEEDED,
        ),
        Filter(
            name="module",
            installed="/usr/lib/plimsoll/libplimsoll.so",
            built=programs.dynamic_module,
            configuration=("filter_config",),
            prefix="dynamicmodulescustom.plimsoll_",
            label=".plimsoll_cluster.",
            more_dispatchers=0,
            oldest=(1, 39),
        ),
    )
}


# The same on the oldest Envoy that it supports, for the tests that use most of Envoy's interface.
OLDEST = "module on 1.39"
ON_OLDEST = pytest.param(OLDEST, marks=pytest.mark.other_version)
KINDS = FILTERS | {OLDEST: replace(FILTERS["module"], envoy=ENVOYS["1.39"])}


def needs_envoy(program: str, oldest: tuple[int, int]) -> None:
    """Skips where the program is not there, or older."""
    if not Path(program).exists():
        pytest.skip("scripts/install-versions has that Envoy for x86_64 only")
    path, version = machine.found_envoy()
    if program == path and tuple(map(int, version.split("."))) < oldest:
        pytest.skip(f"needs Envoy {'.'.join(map(str, oldest))}, not {version}")


def with_built(text: str) -> str:
    """A configuration with what is built, where it has a filter."""
    for kind in FILTERS.values():
        if kind.installed in text:
            text = text.replace(kind.installed, str(kind.built()))
    return text


def configuration_of(entry: dict[str, Any]) -> dict[str, Any]:
    """The filter's own, of its entry in `http_filters`."""
    typed = entry["typed_config"]
    kind = next(kind for kind in FILTERS.values() if kind.configuration[0] in typed)
    return reduce(dict.__getitem__, kind.configuration, typed)


def statistic(name: str) -> str:
    """A statistic's name without what is common to a filter's; others stay as they are."""
    for kind in FILTERS.values():
        if name.startswith(kind.prefix):
            found, _, cluster = name.removeprefix(kind.prefix).partition(kind.label)
            return found if cluster == "test" else f"{found}.cluster.{cluster}"
    return name
