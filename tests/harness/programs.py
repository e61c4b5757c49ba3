"""Paths of programs, and a mark that skips tests of missing ones."""

from collections.abc import Callable

import pytest

from compose.lab.errors import LabError
from compose.lab.machine import (
    binary,
    dynamic_module,
    envoy,
    envoy_version,
    etcd,
    haproxy,
    k6,
    library,
    patroni,
    postgres,
    prometheus,
    redis,
    wasm,
)  # fmt: skip

__all__ = [
    "agent", "are_found", "binary", "database", "dynamic_module", "envoy", "envoy_version", "etcd", "haproxy",
    "k6", "library", "needs", "needs_lab", "needs_partitions", "patroni", "postgres", "prometheus", "redis",
    "stocks", "wasm",
]  # fmt: skip


def are_found(*finds: Callable[[], object]) -> bool:
    try:
        return all(find() for find in finds)
    except LabError:
        return False


def needs(*finds: Callable[[], object]) -> pytest.MarkDecorator:
    """Skips where one of these is not found."""
    return pytest.mark.skipif(not are_found(*finds), reason="needs `make tools build`")


def agent() -> str:
    return binary("plimsoll")


def stocks() -> str:
    return binary("stocks")


def database() -> str:
    return postgres("postgres")


# Programs of the lab.
needs_lab = needs(agent, stocks, k6, haproxy, envoy, wasm, dynamic_module, database)
# Programs for partitions.
needs_partitions = needs(agent, database)
