"""Golden values for identification, by NumPy and SciPy: `python -m agent.science.golden.identify`.

Traces are made here, from known plants; models are fitted by numpy.linalg.lstsq and judged by SciPy's
distributions. Nothing is shared with the Rust code but the definitions.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from agent.science.golden.tune import rounded

Segment = dict[str, list[float]]
ORDERS = (1, 2, 3, 4)
LAGS = 20


def walk(generator: random.Random, count: int, low: float, high: float) -> list[float]:
    """A load that wanders between two limits."""
    at, made = (low + high) / 2, []
    for _ in range(count):
        at = min(max(at + generator.gauss(0, (high - low) / 6), low), high)
        made.append(round(at, 6))
    return made


def plant(
    generator: random.Random, loads: list[float], a: list[float], b: list[float], noise: float
) -> Segment:
    delays: list[float] = []
    for k in range(len(loads)):
        past = [delays[k - i] if k >= i else 0.0 for i in range(1, len(a) + 1)]
        load = [loads[k - i] if k >= i else loads[0] for i in range(1, len(b) + 1)]
        clean = np.dot(a, past) + np.dot(b, load)
        delays.append(round(max(clean + generator.gauss(0, noise), 0.0), 6))
    return {"load": loads, "delay": delays}


def traces() -> dict[str, list[Segment]]:
    generator = random.Random(2007)
    chronos = ([0.507, -0.089], [0.115, 0.009])
    steady = [plant(generator, walk(generator, n, 2, 20), *chronos, 0.05) for n in (220, 90)]
    # Chronos section 3.2: linear in the square roots only, over a wide range.
    roots = [plant(generator, walk(generator, n, 1, 30), *chronos, 0.1) for n in (260, 3)]
    wide = [{name: [round(v * v, 6) for v in values] for name, values in one.items()} for one in roots]
    return {"chronos": steady, "wide": wide}


def regression(segments: list[Segment], order: int) -> tuple[np.ndarray, np.ndarray]:
    rows, outputs = [], []
    for segment in segments:
        for k in range(max(ORDERS), len(segment["delay"])):
            past = [segment["delay"][k - i] for i in range(1, order + 1)]
            loads = [segment["load"][k - i] for i in range(1, order + 1)]
            rows.append(past + loads)
            outputs.append(segment["delay"][k])
    return np.array(rows), np.array(outputs)


def residuals(segments: list[Segment], errors: np.ndarray, order: int) -> dict[str, Any]:
    # With gaps of NaN between the segments a lag across them counts for nothing.
    gap = [np.nan] * LAGS
    runs, loads, at = [], [], 0
    for segment in segments:
        count = max(len(segment["delay"]) - max(ORDERS), 0)
        runs += [*(errors[at : at + count] - errors.mean()), *gap]
        loads += [*segment["load"][len(segment["load"]) - count :], *gap]
        at += count
    e, u = np.array(runs), np.array(loads)
    u -= np.nanmean(u)

    def correlation(early: np.ndarray, late: np.ndarray, lag: int) -> float:
        return np.nansum(early[:-lag] * late[lag:]) / np.sqrt(np.nansum(early**2) * np.nansum(late**2))

    n = len(errors)
    auto = [correlation(e, e, lag) for lag in range(1, LAGS + 1)]
    box = n * (n + 2) * sum(r * r / (n - lag) for lag, r in enumerate(auto, start=1))
    return {
        "mean": errors.mean(),
        "bound": stats.norm.ppf(0.975) / np.sqrt(n),
        "autocorrelations": auto,
        "ljung_box": box,
        "ljung_box_p": stats.chi2.sf(box, LAGS - order),
        "with_earlier_load": [correlation(u, e, lag) for lag in range(1, LAGS + 1)],
        "with_later_load": [correlation(e, u, lag) for lag in range(1, LAGS + 1)],
    }


def fitted(segments: list[Segment], order: int, square_root: bool) -> dict[str, Any]:
    if square_root:
        segments = [{name: list(np.sqrt(values)) for name, values in one.items()} for one in segments]
    rows, outputs = regression(segments, order)
    weights = np.linalg.lstsq(rows, outputs, rcond=None)[0]
    errors = outputs - rows @ weights
    squares, (n, p) = errors @ errors, rows.shape

    def in_seconds(values: np.ndarray) -> np.ndarray:
        return np.maximum(values, 0) ** 2 if square_root else values

    half = n // 2
    first = np.linalg.lstsq(rows[:half], outputs[:half], rcond=None)[0]
    missed = in_seconds(outputs[half:]) - in_seconds(rows[half:] @ first)
    return {
        "a": weights[:order],
        "b": weights[order:],
        "rmse": np.sqrt(squares / n),
        "rmse_seconds": np.sqrt(np.mean((in_seconds(outputs) - in_seconds(rows @ weights)) ** 2)),
        "r2_chronos": 1 - errors.var() / outputs.var(),
        "r2_chronos_c": errors.var() / outputs.var(),
        "aic": n * np.log(squares / n) + 2 * p,
        "bic": n * np.log(squares / n) + np.log(n) * p,
        "validation_rmse_seconds": np.sqrt(np.mean(missed**2)),
        "residuals": residuals(segments, errors, order),
    }


def golden() -> dict[str, Any]:
    made = {}
    for name, segments in traces().items():
        models = {
            scale: [fitted(segments, order, scale == "square_root") for order in ORDERS]
            for scale in ("raw", "square_root")
        }
        made[name] = {"segments": segments, "models": models}
    return made


def text() -> str:
    return json.dumps(rounded(golden()), indent=None, separators=(",", ":")) + "\n"


if __name__ == "__main__":
    target = Path(__file__).with_name("identify.json")
    target.write_text(text())
    print(target, file=sys.stderr)
