"""Fixtures: sites with each version of Envoy that the module supports."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from module_site import ModuleSite

from tests.harness.envoy_filter import ENVOYS, needs_envoy


@pytest.fixture(params=ENVOYS)
def version(request: pytest.FixtureRequest) -> str:
    needs_envoy(ENVOYS[request.param]())
    return request.param


@pytest.fixture
def site(stack: ExitStack, tmp_path: Path) -> ModuleSite:
    return ModuleSite(stack, tmp_path)


@pytest.fixture
def site_of(stack: ExitStack, tmp_path: Path) -> Callable[[str], ModuleSite]:
    """Makes a site with the Envoy of the given version."""
    return lambda version: ModuleSite(stack, tmp_path, version)
