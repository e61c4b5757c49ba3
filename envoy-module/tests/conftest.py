"""Fixtures: sites with each version of Envoy that the module supports."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from module_site import ModuleSite

from tests.harness.envoy_filter import ENVOYS, FILTERS, needs_envoy

OLDEST = FILTERS["module"].oldest


@pytest.fixture(autouse=True)
def _is_new_enough() -> None:
    needs_envoy(ENVOYS["path"](), OLDEST)


@pytest.fixture(params=["path", pytest.param("1.39", marks=pytest.mark.other_version)])
def version(request: pytest.FixtureRequest) -> str:
    needs_envoy(ENVOYS[request.param](), OLDEST)
    return request.param


@pytest.fixture
def site(stack: ExitStack, tmp_path: Path) -> ModuleSite:
    return ModuleSite(stack, tmp_path)


@pytest.fixture
def site_of(stack: ExitStack, tmp_path: Path) -> Callable[[str], ModuleSite]:
    """Makes a site with the Envoy of the given version."""
    return lambda version: ModuleSite(stack, tmp_path, version)
