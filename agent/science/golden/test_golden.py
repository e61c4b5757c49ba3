"""The golden values are those that their scripts make, on this machine as well."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from agent.science.golden import identify, tune

HERE = Path(__file__).parent


def differences(kept: Any, made: Any, place: str = "") -> list[str]:
    if isinstance(kept, dict) and isinstance(made, dict) and kept.keys() == made.keys():
        return [one for key in kept for one in differences(kept[key], made[key], f"{place}.{key}")]
    if isinstance(kept, list) and isinstance(made, list) and len(kept) == len(made):
        pairs = enumerate(zip(kept, made, strict=True))
        return [one for at, pair in pairs for one in differences(*pair, f"{place}[{at}]")]
    if isinstance(kept, float) and isinstance(made, float):
        return [] if math.isclose(kept, made, rel_tol=1e-6, abs_tol=1e-9) else [place]
    return [] if kept == made else [place]


@pytest.mark.parametrize("script", [identify, tune], ids=["identify", "tune"])
def test_the_script_makes_what_is_kept(script: Any) -> None:
    name = Path(script.__file__).with_suffix(".json").name
    kept = json.loads((HERE / name).read_text())
    assert differences(kept, json.loads(script.text())) == []
