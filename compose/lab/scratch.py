"""Temporary directories of a lab; the next lab removes those that a killed one left."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Locked for as long as its maker lives, however that ends.
OWNER = "owner.lock"
CONFIGURATIONS = (".cfg", ".yaml", ".toml", ".lua")


@contextlib.contextmanager
def directory(prefix: str, parent: str | None = None) -> Iterator[Path]:
    """A new one below `parent`, or where temporary files are; left-over ones of this prefix there go."""
    above = Path(parent or tempfile.gettempdir())
    remove_left(above, prefix)
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=above))
    try:
        fresh = made / "owner.new"
        with fresh.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            # Under its name only once it is locked.
            fresh.rename(made / OWNER)
            yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def remove_left(above: Path, prefix: str) -> None:
    for path in above.glob(f"{prefix}*/{OWNER}"):
        # Its lab still runs, or it belongs to another user.
        with contextlib.suppress(OSError), path.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(held.fileno()).st_uid == os.geteuid():
                shutil.rmtree(path.parent, ignore_errors=True)


@contextlib.contextmanager
def own_directory(keep: Path) -> Iterator[Path]:
    """A short directory for sockets, databases and configurations; the configurations stay with the run."""
    with directory("plimsoll-lab-") as run:
        (run / "data").mkdir()
        try:
            yield run
        finally:
            for path in [found for suffix in CONFIGURATIONS for found in run.glob(f"*{suffix}")]:
                shutil.copy(path, keep)
