"""Policies of loadtests/app-policies.toml; one with a sweep is as many as it has values."""

import itertools
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compose.lab import render
from compose.lab.errors import LabError
from compose.lab.topology import ROOT

POLICIES = ROOT / "loadtests" / "app-policies.toml"


@dataclass(frozen=True)
class Policy:
    """Policy ready to run, with its final settings."""

    base: render.Policy
    # Name of the requested policy, if this is one value of its sweep.
    group: str | None = None
    # A nominal bound in parts of what a node finishes within the SLA.
    nominal: float | None = None

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def source(self) -> str | None:
        return None if self.base.service is None else self.base.service["source"]["kind"]


def default_names(scenario: str, has_histogram: bool, path: Path = POLICIES) -> list[str]:
    defaults = render.table(path)["defaults"]
    names = defaults.get(scenario, defaults["overload"])
    return [name for name in names if has_histogram or not name.endswith("-histogram")]


def load(names: list[str], path: Path = POLICIES) -> list[Policy]:
    entries = {
        name: entry for name, entry in render.table(path).items() if name not in ("defaults", "common")
    }
    found = [policy for name in names for policy in named(name, entries, path)]
    if not found:
        raise LabError(f"--policies: name at least one of {' '.join(entries)}")
    for name, same in itertools.groupby(sorted(policy.name for policy in found)):
        if len(list(same)) > 1:
            raise LabError(f"--policies: {name} is named twice")
    return found


def named(name: str, entries: dict[str, Any], path: Path) -> list[Policy]:
    """A policy, all values of a sweep, or one of them: `static`, `static-4`."""
    one = re.fullmatch(r"(.+)-(\d+)", name)
    if name not in entries and one and "sweep" in entries.get(one[1], {}):
        return [value_of(one[1], int(one[2]), path)]
    [base] = render.policies([name], path)
    if base.sweep:
        return [run_as(base, label, settings) for label, settings in tries(base)]
    return [Policy(base, nominal=entries[name].get("nominal"))]


def tries(base: render.Policy) -> list[tuple[int, dict[str, Any]]]:
    """Variants of a sweep, as suffix and settings."""
    combinations = [
        dict(zip(base.sweep, values, strict=True)) for values in itertools.product(*base.sweep.values())
    ]
    if len(base.sweep) == 1:
        return [(next(iter(settings.values())), settings) for settings in combinations]
    return list(enumerate(combinations, 1))


def value_of(group: str, label: int, path: Path) -> Policy:
    [base] = render.policies([group], path)
    found = dict(tries(base))
    if label not in found and len(base.sweep) == 1 and label > 0:
        found = {label: {next(iter(base.sweep)): label}}
    if label not in found:
        raise LabError(f"--policies {group}-{label}: it must be {group}-1 to {group}-{len(found)}")
    return run_as(base, label, found[label])


def run_as(base: render.Policy, label: int, settings: dict[str, Any]) -> Policy:
    named = replace(base, name=f"{base.name}-{label}", settings=base.settings | settings, sweep={})
    return Policy(named, group=base.name)
