"""What the experiment needs."""

import pytest

from compose.lab import machine
from compose.lab.errors import LabError


def _built() -> bool:
    try:
        return bool(machine.binary("plimsoll") and machine.postgres("postgres"))
    except LabError:
        return False


needs_programs = pytest.mark.skipif(not _built(), reason="needs `make tools build`")
