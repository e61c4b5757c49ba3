/* Preloaded into PostgreSQL: each page read from a file takes PAGE_DELAY_US longer, as from a disk that serves one
 * request of a session at a time. Reads of any other length (catalogues at the start, the log) are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>

#define PAGE 8192

typedef ssize_t (*pread_t)(int, void *, size_t, off_t);

static pread_t real;
static struct timespec delay;

__attribute__((constructor)) static void start(void)
{
    const char *us = getenv("PAGE_DELAY_US");
    long value = us ? atol(us) : 0;

    delay.tv_sec = value / 1000000;
    delay.tv_nsec = value % 1000000 * 1000;
    real = (pread_t)dlsym(RTLD_NEXT, "pread64");
}

ssize_t pread64(int file, void *to, size_t length, off_t offset)
{
    if (length == PAGE)
        nanosleep(&delay, NULL);
    return real(file, to, length, offset);
}

ssize_t pread(int file, void *to, size_t length, off_t offset)
{
    return pread64(file, to, length, offset);
}
