import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from docs.tests.host import Network


@pytest.fixture
def network(tmp_path) -> Iterator[Network]:
    if os.geteuid() != 0:
        pytest.skip("hosts of their own need root")
    with ExitStack() as stack:
        yield Network(tmp_path, stack)
