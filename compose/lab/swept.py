"""The best settings that sweeps found, for policies that have settings to sweep."""

import json
from pathlib import Path
from typing import Any

from compose.lab.errors import LabError
from compose.lab.render import Policy
from compose.lab.topology import ROOT

PATH = ROOT / "loadtests" / "swept.json"


def load(path: Path = PATH) -> dict[str, Any]:
    """Results of sweeps, by policy and scenario; empty without any."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except json.JSONDecodeError as error:
        raise LabError(f"{path}: {error}") from error
    return found


def best(policy: Policy, scenario: str, path: Path = PATH) -> dict[str, Any]:
    """The settings to run a policy with; none for a policy that has none to sweep."""
    if not policy.sweep:
        return {}
    try:
        return load(path)[policy.name][scenario]["best"]
    except KeyError:
        raise LabError(
            f"policy {policy.name}: {path} has no settings for {scenario}; "
            f'run `make sweep SCENARIO={scenario} POLICIES="{policy.name}"` first'
        ) from None


def save(policy: str, scenario: str, entry: dict[str, Any], path: Path = PATH) -> None:
    swept = load(path)
    swept.setdefault(policy, {})[scenario] = entry
    path.write_text(json.dumps(swept, indent=2) + "\n")
