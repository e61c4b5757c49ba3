"""A Redis whose clock a test sets."""

import mmap
import struct
import subprocess
from pathlib import Path

from tests.harness.redis import Redis

# Where a clock that stands still begins.
START_MS = 1_700_000_000_000
# Redis reads two numbers from a file: by how many seconds its clock is ahead, and the milliseconds since the
# epoch at which it stands still; 0: it does not.
SOURCE = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
int gettimeofday(struct timeval *now, void *zone) {
    static int (*next)(struct timeval *, void *);
    static volatile int64_t *set;
    if (!set) {
        next = dlsym(RTLD_NEXT, "gettimeofday");
        set = mmap(NULL, 16, PROT_READ, MAP_SHARED, open(getenv("SET_CLOCK"), O_RDONLY), 0);
    }
    int result = next(now, zone);
    int64_t stopped = set[1];
    if (stopped) { now->tv_sec = stopped / 1000; now->tv_usec = stopped % 1000 * 1000; }
    else now->tv_sec += set[0];
    return result;
}
"""


class Clock:
    def __init__(self, directory: Path, redis: Redis) -> None:
        """Of a Redis that is not started yet."""
        source, library, file = (directory / name for name in ("clock.c", "clock.so", "clock"))
        source.write_text(SOURCE)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
        file.write_bytes(bytes(16))
        with file.open("r+b") as opened:
            self._set = mmap.mmap(opened.fileno(), 16)
        self._ahead_seconds = 0
        redis.environment = {"LD_PRELOAD": str(library), "SET_CLOCK": str(file)}

    def step(self, seconds: int) -> None:
        """Forward, or back."""
        self._ahead_seconds += seconds
        struct.pack_into("<q", self._set, 0, self._ahead_seconds)

    def stop_at(self, ms: int) -> None:
        struct.pack_into("<q", self._set, 8, ms)
