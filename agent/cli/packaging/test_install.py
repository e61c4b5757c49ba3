"""`make install` into a directory."""

import os
import re
import subprocess

from tests.harness import ROOT, programs


def install(directory, **settings):
    told = [f"{key}={value}" for key, value in settings.items()]
    return subprocess.run(
        ["make", "install", f"DESTDIR={directory}", *told],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_installed_is_whole(tmp_path):
    binary = programs.agent()
    ran = install(tmp_path, PREFIX="/usr", BINARY=binary)
    assert ran.returncode == 0, ran.stderr
    unit = (tmp_path / "usr/lib/systemd/system/plimsoll.service").read_text()
    page = re.search(r"^Documentation=man:plimsoll\((\d)\)$", unit, re.MULTILINE)[1]
    assert ".TH plimsoll" in (tmp_path / f"usr/share/man/man{page}/plimsoll.{page}").read_text()
    started = re.findall(r"^ExecStart=(\S+) .*--config (\S+)$", unit, re.MULTILINE)
    assert started == [("/usr/bin/plimsoll", "/etc/plimsoll/agent.toml")]
    assert os.access(tmp_path / "usr/bin/plimsoll", os.X_OK)
    for completions in ("bash-completion/completions/plimsoll", "zsh/site-functions/_plimsoll"):
        assert "check-config" in (tmp_path / "usr/share" / completions).read_text()
    state = tmp_path / "var/lib/plimsoll"
    assert state.stat().st_mode & 0o777 == 0o750
    # The first configuration is one, but for the directory that is elsewhere here.
    config = tmp_path / "etc/plimsoll/agent.toml"
    config.write_text(config.read_text().replace("/var/lib/plimsoll", str(state)))
    command = [tmp_path / "usr/bin/plimsoll", "agent", "--check-config", "--config", config]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "configuration is valid" in checked.stdout, checked.stderr


def test_an_operators_configuration_stays_and_the_units_follow_the_prefix(tmp_path):
    config = tmp_path / "etc/plimsoll/agent.toml"
    config.parent.mkdir(parents=True)
    config.write_text("# mine\n")
    ran = install(tmp_path, BINARY=programs.agent())
    assert ran.returncode == 0, ran.stderr
    assert config.read_text() == "# mine\n"
    unit = tmp_path / "usr/local/lib/systemd/system/plimsoll.service"
    assert "ExecStart=/usr/local/bin/plimsoll " in unit.read_text()


def test_a_binary_that_is_not_built_is_said(tmp_path):
    ran = install(tmp_path, BINARY=tmp_path / "none")
    assert ran.returncode != 0
    assert "run `make build` first" in ran.stderr
    assert not (tmp_path / "usr").exists()
