"""Redis with two nodes, and one whose clock is set."""

import subprocess

import pytest

from lua.tests.balancer import report
from tests.harness.functions import Placement
from tests.harness.redis import Redis


@pytest.fixture
def one(own_redis: Redis) -> Redis:
    """With the functions and two nodes; a test may kill it."""
    report(own_redis.start().load())
    return own_redis


# The clock of a program, so many seconds later than the machine's.
SET_CLOCK = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
int gettimeofday(struct timeval *now, void *zone) {
    int (*next)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
    int result = next(now, zone);
    FILE *file = fopen(getenv("CLOCK_OFFSET"), "r");
    long later = 0;
    if (file) { if (fscanf(file, "%ld", &later) != 1) later = 0; fclose(file); }
    now->tv_sec += later;
    return result;
}
"""


@pytest.fixture
def placement_of_set_clock(tmp_path, own_redis):
    """Placement in a Redis whose clock is set, and what sets it, by so many seconds."""
    source, library, offset = (tmp_path / name for name in ("clock.c", "clock.so", "offset"))
    source.write_text(SET_CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    offset.write_text("0")
    own_redis.environment = {"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(offset)}
    own_redis.start().load()

    def step(by: int) -> None:
        # In one piece: Redis reads it whenever it looks at the time.
        later = int(offset.read_text()) + by
        (tmp_path / "next").write_text(str(later))
        (tmp_path / "next").rename(offset)

    yield Placement(own_redis.client), step
