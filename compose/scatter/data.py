"""Descriptors of molecules' shapes as the paper's: 12 columns, eight clusters of the sizes of its table 3.

PubChem's are not to be had. These are normal deviates around eight centres. The query's point is the centre
of the fifth cluster; their width makes hits grow with R as in table 1. The first and the third are near,
so that they have some of the hits, as in table 4; the others are far away."""

from pathlib import Path

import numpy as np

# The paper's query, figure 2.
POINT = (
    3.0532197952271,
    1.0399824380875,
    -0.092431426048279,
    3.0814106464386,
    1.0752420425415,
    -0.49167355895042,
    5.3552670478821,
    5.1984167098999,
    -0.41230815649033,
    4.9449820518494,
    4.9576578140259,
    -0.093842931091785,
)
WIDTH = len(POINT)
COLUMNS = tuple(f"m{number}" for number in range(1, WIDTH + 1))
KEY = "cid"
# Table 3; the paper's hits (table 1) by R.
SIZES = (6_204_776, 616_133, 507_209, 2_018_281, 2_302_272, 4_634_860, 785_232, 163_017)
HITS = {0.3: 495, 0.4: 6_870, 0.5: 37_049, 0.6: 113_123, 0.7: 247_171}
QUERIED = 4
SPREAD = 0.4
# From the query's point, in all directions alike; the others are at least FAR from each other.
NEAR = {0: 1.55, 2: 1.4}
FAR = 3.0
ROWS_AT_ONCE = 50_000


def centres(random: np.random.Generator) -> np.ndarray:
    """Centres of the eight clusters."""
    found = np.tile(np.array(POINT), (len(SIZES), 1))
    signs = {number: random.choice((-1.0, 1.0), WIDTH) for number in NEAR}
    # Away from each other, or the two would meet.
    signs[2] = np.where(np.arange(WIDTH) % 2 == 0, signs[0], -signs[0])
    for number, distance in NEAR.items():
        found[number] += signs[number] * distance / np.sqrt(WIDTH)
    placed = [QUERIED, *NEAR]
    for number in set(range(len(SIZES))) - set(placed):
        while True:
            direction = random.standard_normal(WIDTH)
            there = np.array(POINT) + direction / np.linalg.norm(direction) * random.uniform(FAR, 2 * FAR)
            if all(np.linalg.norm(found[other] - there) >= FAR for other in placed):
                break
        found[number] = there
        placed.append(number)
    return found


def molecules(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points in any order, and the cluster of each; the first is the query's point itself."""
    random = np.random.default_rng(seed)
    shares = np.array(SIZES) / sum(SIZES)
    cluster = random.choice(len(SIZES), rows, p=shares)
    points = centres(random)[cluster] + random.standard_normal((rows, WIDTH)) * SPREAD
    # As short in a file as they need be.
    points = points.round(6)
    points[0], cluster[0] = POINT, QUERIED
    return points, cluster


def write(points: np.ndarray, path: Path) -> None:
    with path.open("w") as file:
        file.write(",".join((KEY, *COLUMNS)) + "\n")
        pattern = "%d" + ",%.15g" * WIDTH + "\n"
        for first in range(0, len(points), ROWS_AT_ONCE):
            some = points[first : first + ROWS_AT_ONCE].tolist()
            file.writelines(pattern % (first + at, *row) for at, row in enumerate(some))


def hits(points: np.ndarray, distance: float) -> np.ndarray:
    """Which points the query finds: those within the box, but the point itself."""
    near = np.abs(points - POINT).max(axis=1) <= distance
    return near & (points != POINT).any(axis=1)
