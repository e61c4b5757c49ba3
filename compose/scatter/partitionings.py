"""One database, and the paper's three ways to spread it over eight: what is where, and what asks it."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from compose.lab import machine
from compose.lab.errors import LabError
from compose.scatter.data import COLUMNS, KEY, POINT, SIZES
from compose.scatter.databases import OWNER, Databases

NODES = 8
TABLE = "molecules"
QUERY = "similar"
_POINT = "'(" + ", ".join(map(repr, POINT)) + ")'::cube"
# Figure 2, with R as a parameter.
SQL = (
    f"select * from (select cid, momsim, 1.0 / (1.0 + cube_distance({_POINT}, momsim)) as sim from {TABLE} "
    f"where cube_enlarge({_POINT}, $1, {len(POINT)}) @> momsim order by sim desc) as foo where foo.sim != 1.0"
)
_COLUMNS = f"{KEY} bigint NOT NULL, " + ", ".join(f"{name} float8 NOT NULL" for name in COLUMNS)
_CUBE = f"momsim cube GENERATED ALWAYS AS (cube(ARRAY[{', '.join(COLUMNS)}])) STORED"
_DEFINITION = f"({_COLUMNS}, {_CUBE})"


@dataclass(frozen=True)
class Partitioning:
    """A way to spread the table."""

    name: str
    options: tuple[str, ...]
    nodes: int = NODES
    # Whether a node's database has several parts, as children of one table.
    several: bool = False

    def database(self, node: str) -> str:
        return f"{self.name}_{node}"

    @property
    def databases(self) -> list[str]:
        return [self.database(f"node{number + 1}") for number in range(self.nodes)]

    @property
    def setup(self) -> str:
        """SQL to run in each database before it is loaded."""
        return f"CREATE TABLE {TABLE} {_DEFINITION}" if self.several else ""


_CLUSTERED = ("--columns", ",".join(COLUMNS))
PARTITIONINGS = (
    Partitioning("single", ("--by", "rows", "--parts", "1"), nodes=1),
    Partitioning("horizontal", ("--by", "rows", "--parts", str(NODES))),
    Partitioning("clusters", ("--by", "clusters", "--parts", str(NODES), *_CLUSTERED)),
    # Every cluster is split over all nodes, as in the paper.
    Partitioning(
        "both",
        ("--by", "both", "--clusters", str(len(SIZES)), "--parts", str(NODES * len(SIZES)), *_CLUSTERED),
        several=True,
    ),
)


def plimsoll(*words: str) -> str:
    done = subprocess.run(
        [machine.binary("plimsoll"), "partition", *words], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise LabError(f"plimsoll partition {words[0]}: {done.stderr.strip()}")
    return done.stdout


def load(partitioning: Partitioning, databases: Databases, rows: Path, seed: int, run: Path) -> dict:
    """Makes the map, fills the databases and has them checked; the sizes of the parts and the rate."""
    databases.make(partitioning.databases, partitioning.setup)
    name = partitioning.name
    path = run / f"{name}.map.json"
    nodes = [f"node{number + 1}" for number in range(partitioning.nodes)]
    make = ("--input", str(rows), "--key", KEY, "--seed", str(seed), "--nodes", ",".join(nodes))
    plimsoll("make", *make, *partitioning.options, "--output", str(path))
    parts = json.loads(path.read_text())["parts"]
    at = run / f"{name}.databases.toml"
    at.write_text(
        "".join(
            f'[[partition]]\nname = "{part["name"]}"\naddress = "unix://{databases.socket}"\n'
            f'user = "{OWNER}"\ndatabase = "{partitioning.database(part["node"])}"\n'
            for part in parts
        )
    )
    table = f"{TABLE}_{{part}}" if partitioning.several else TABLE
    define, after = run / f"{name}.define.sql", run / f"{name}.after.sql"
    define.write_text(f"CREATE TABLE {table} {_DEFINITION}")
    parent = f"; ALTER TABLE {table} INHERIT public.{TABLE}" if partitioning.several else ""
    after.write_text(f"CREATE INDEX ON {table} USING gist (momsim){parent}")
    where = ("--databases", str(at), "--table", table)
    said = plimsoll(
        "load", str(path), "--input", str(rows), *where, "--define", str(define), "--after", str(after)
    )
    plimsoll("check", str(path), *where)
    sizes: dict[str, int] = {}
    for part in parts:
        sizes[part["node"]] = sizes.get(part["node"], 0) + part["rows"]
    return {"rows_by_node": sizes, "parts": len(parts), "loaded": said.splitlines()[-1]}
