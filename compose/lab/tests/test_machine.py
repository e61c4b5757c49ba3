"""The lab finds its programs, and says what is wrong with those it cannot use."""

from pathlib import Path

import pytest

from compose.lab import machine
from compose.lab.errors import LabError


@pytest.fixture(autouse=True)
def _forget():
    machine.found_envoy.cache_clear()
    yield
    machine.found_envoy.cache_clear()


def stand_in(directory: Path, version: str) -> None:
    program = directory / "envoy"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\necho "envoy  version: 0abc/{version}/Clean/RELEASE/BoringSSL"\n')
    program.chmod(0o755)


def test_the_envoy_on_the_path_comes_first(tmp_path, monkeypatch):
    stand_in(tmp_path / "path", "1.37.2")
    stand_in(tmp_path / ".venv" / "bin", "1.40.0")
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=":")
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    assert machine.envoy() == str(tmp_path / "path" / "envoy")
    assert machine.envoy_version() == "envoy 1.37.2"


def test_an_old_envoy_is_passed_over(tmp_path, monkeypatch):
    stand_in(tmp_path / "path", "1.29.0")
    stand_in(tmp_path / ".venv" / "bin", "1.40.0-dev")
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=":")
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    assert machine.envoy_version() == "envoy 1.40.0"


def test_missing_envoy_is_reported_with_the_versions_found(tmp_path, monkeypatch):
    stand_in(tmp_path / "path", "1.29.0")
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=":")
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    with pytest.raises(LabError, match=r"path/envoy is 1\.29\.0; 1\.34 or later is needed: run `make tools`"):
        machine.envoy()


def test_the_postgresql_on_the_path_comes_first(tmp_path, monkeypatch):
    # On the PATH by a link, as other versions are.
    programs = tmp_path / "17" / "bin"
    programs.mkdir(parents=True)
    (tmp_path / "bin").symlink_to(programs)
    for name in ("postgres", "initdb"):
        (programs / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    assert [machine.postgres(name) for name in ("postgres", "initdb")] == [
        str(programs / "postgres"),
        str(programs / "initdb"),
    ]
