"""The library's one thread, which wakes all clusters of a process."""

import json
import subprocess

from module_site import built

SETTINGS = json.dumps({"cluster": "test", "agents": "nobody"})
UPSTREAM = '{"position": "upstream"}'
# Refuses the library's first thread, as if the limit on threads were reached.
REFUSE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int pthread_create(pthread_t *thread, const pthread_attr_t *with, void *(*run)(void *), void *of) {
    static int refused;
    Dl_info caller;
    if (dladdr(__builtin_return_address(0), &caller) && strstr(caller.dli_fname, "libplimsoll") && !refused++)
        return EAGAIN;
    return ((create *)dlsym(RTLD_NEXT, "pthread_create"))(thread, with, run, of);
}
"""


def test_a_configuration_is_woken_after_the_thread_failed_to_start_once(site, tmp_path):
    """The configuration was accepted, but no agent was ever called for it."""
    source, library = tmp_path / "refuse.c", tmp_path / "librefuse.so"
    source.write_text(REFUSE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    config = site.config(built("libplimsoll.so"), SETTINGS, UPSTREAM) | {"dynamic_resources": {}}
    (listener,) = config["static_resources"]["listeners"]
    envoy = site.envoy(config)
    envoy.environment["LD_PRELOAD"] = str(library)
    envoy.start()
    rejected = "plimsoll: no thread: Resource temporarily unavailable"
    envoy.wait_said(rejected)
    envoy.put_listeners([listener])
    envoy.wait_said("plimsoll: shares: Envoy has no cluster nobody")
    assert envoy.get("/")[0] == 200
    assert envoy.said().count(rejected) == 1
    envoy.process.terminate()
    assert envoy.process.wait(30) == 0


def test_the_library_cannot_be_unloaded():
    """Its thread would go on in unmapped code."""
    command = ["readelf", "--dynamic", built("libplimsoll.so")]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert any("(FLAGS_1)" in line and "NODELETE" in line for line in told.splitlines())
