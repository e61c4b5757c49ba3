"""Golden values for the closed loop, by NumPy and SciPy: `python -m agent.science.golden.tune`.

Nothing is shared with the Rust code but the papers: the loop is simulated from its difference equations in
state space, its poles are that matrix's eigenvalues, and margins come from a dense sweep with Brent's method.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize, signal

CASES = {
    "chronos": {"a": [0.507, -0.089], "b": [0.115, 0.009], "kp": 1.29, "ki": 2.01},
    "chronos_c": {"a": [-0.0228, -0.1371], "b": [0.0179, 0.0084], "kp": 6.0, "ki": 1.5},
    "first_order": {"a": [0.7], "b": [0.3], "kp": 0.25, "ki": 1.0},
    "slow": {"a": [0.95], "b": [0.05], "kp": 1.0, "ki": 0.05},
    "underdamped": {"a": [0.6, -0.5], "b": [0.9, 0.0], "kp": 0.1, "ki": 1.5},
    "dead_time": {"a": [0.5], "b": [0.0, 0.5], "kp": 0.3, "ki": 0.8},
    "fourth_order": {"a": [0.4, 0.2, -0.1, 0.05], "b": [0.2, 0.1, 0.05, 0.1], "kp": 0.3, "ki": 0.7},
    "unstable": {"a": [0.507, -0.089], "b": [0.115, 0.009], "kp": 12.9, "ki": 2.01},
}
PERIODS = 40


def matrices(case: dict[str, Any], literal: bool) -> tuple[np.ndarray, np.ndarray]:
    """x(k+1) = F x(k) + g r(k), where x is past delays, past bounds, the last error and the last step.

    In each period the delay follows from the past, then the error, then the bound: by eq. 7 of Chronos, or
    by eq. 5 of Chronos-C, with the step added to the bound.
    """
    a, b = np.array(case["a"]), np.array(case["b"])
    kp, ki = case["kp"], case["ki"]
    n = max(len(a), len(b))
    a, b = np.pad(a, (0, n - len(a))), np.pad(b, (0, n - len(b)))
    size = 2 * n + 2

    def next_state(x: np.ndarray, target: float) -> np.ndarray:
        delays, bounds, error_before, step_before = x[:n], x[n : 2 * n], x[-2], x[-1]
        delay = a @ delays + b @ bounds
        error = target - delay
        change = kp * ((ki + 1) * error - error_before)
        step = step_before + change if literal else change
        return np.concatenate([[delay], delays[:-1], [bounds[0] + step], bounds[:-1], [error, step]])

    zero = np.zeros(size)
    columns = [next_state(unit, 0.0) for unit in np.eye(size)]
    return np.array(columns).T, next_state(zero, 1.0)


def poles(case: dict[str, Any], literal: bool) -> list[list[float]]:
    """The eigenvalues that the papers' polynomial has; the rest are zeros of the delay lines."""
    found = np.linalg.eigvals(matrices(case, literal)[0])
    n = max(len(case["a"]), len(case["b"]))
    kept = sorted(found, key=lambda pole: (-round(abs(pole), 7), -pole.imag))[: n + (2 if literal else 1)]
    return [[pole.real, pole.imag] for pole in kept]


def margins(case: dict[str, Any]) -> dict[str, float | None]:
    a, b = case["a"], case["b"]
    n = max(len(a), len(b))
    plant = ([*b, *[0] * (n - len(b))], [1, *[-c for c in a], *[0] * (n - len(a))])
    controller = ([case["kp"] * (case["ki"] + 1), -case["kp"]], [1, -1])
    top, bottom = np.convolve(plant[0], controller[0]), np.convolve(plant[1], controller[1])

    def loop(angle: float | np.ndarray) -> Any:
        return signal.freqz(np.concatenate([np.zeros(len(bottom) - len(top)), top]), bottom, worN=angle)[1]

    def one(angle: float) -> complex:
        return complex(loop(np.array([angle]))[0])

    angles = np.concatenate([np.geomspace(1e-6, 1e-2, 20_000), np.linspace(1e-2, np.pi, 400_000)])
    values = loop(angles)
    gains = [-1 / one(np.pi).real]
    for at in np.flatnonzero(np.diff(np.sign(values.imag[:-1]))):
        crossing = optimize.brentq(lambda angle: one(angle).imag, angles[at], angles[at + 1], xtol=1e-15)
        gains.append(-1 / one(crossing).real)
    phases = []
    for at in np.flatnonzero(np.diff(np.sign(np.abs(values) - 1))):
        crossing = optimize.brentq(lambda angle: abs(one(angle)) - 1, angles[at], angles[at + 1], xtol=1e-15)
        phases.append(abs(np.degrees(np.angle(-one(crossing)))))
    nearest = int(np.argmin(np.abs(values + 1)))
    around = (angles[max(nearest - 1, 0)], angles[min(nearest + 1, len(angles) - 1)])
    best = optimize.minimize_scalar(
        lambda angle: abs(one(angle) + 1), bounds=around, method="bounded", options={"xatol": 1e-12}
    )
    return {
        "gain": min((gain for gain in gains if gain > 1), default=None),
        "phase_degrees": min(phases, default=None),
        "modulus": min(float(best.fun), float(np.abs(values + 1).min())),
    }


def step(case: dict[str, Any]) -> dict[str, list[float]]:
    transition, entry = matrices(case, literal=False)
    x = np.zeros(len(entry))
    delays, bounds = [], []
    n = max(len(case["a"]), len(case["b"]))
    for _ in range(PERIODS):
        x = transition @ x + entry
        delays.append(x[0])
        bounds.append(x[n])
    return {"delay": delays, "bound": bounds}


def golden() -> dict[str, Any]:
    made = {}
    for name, case in CASES.items():
        found = poles(case, literal=False)
        stable = all(np.hypot(*pole) < 1 for pole in found)
        made[name] = case | {
            "poles": found,
            "stable": stable,
            "literal_poles": poles(case, literal=True),
            "margins": margins(case) if stable else None,
            "step": step(case) if stable else None,
        }
    return made


def text() -> str:
    """With as many digits as all machines agree on."""
    return json.dumps(rounded(golden()), indent=1) + "\n"


def rounded(value: Any) -> Any:
    match value:
        case dict():
            return {key: rounded(one) for key, one in value.items()}
        case list() | np.ndarray():
            return [rounded(one) for one in value]
        case float():
            return float(f"{value:.9g}") + 0.0
        case np.floating():
            return rounded(float(value))
        case _:
            return bool(value) if isinstance(value, np.bool_) else value


if __name__ == "__main__":
    target = Path(__file__).with_name("tune.json")
    target.write_text(text())
    print(target, file=sys.stderr)
