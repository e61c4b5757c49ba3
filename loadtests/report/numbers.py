"""Numbers as summary.json and the tables have them."""

from typing import Any

import numpy as np


def rounded(value: Any, digits: int = 4) -> float | None:
    return None if value is None or not np.isfinite(value) else round(float(value), digits)


def ratio(a: float, b: float) -> float | None:
    return a / b if b > 0 else None


def show(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
