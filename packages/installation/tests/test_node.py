"""The package of a node, by docs/install.md's own commands, on a fresh Debian 12 with systemd."""

import re
import subprocess

import pytest

from packages.installation.tests.conftest import OLDER
from packages.installation.tests.pages import blocks
from tests.harness import ROOT

APT = "DEBIAN_FRONTEND=noninteractive"
KEEP_MINE = "-o Dpkg::Options::=--force-confold"
# What systemd-analyze may find at most; lower is tighter.
MAX_EXPOSURE = 2.0
# More than systemd's own limit of starts, which would end it.
KILLS = 8


@pytest.fixture(scope="module")
def configuration():
    """Of docs/haproxy.md's node 1, past the time in which it is only observed."""
    observed = blocks("haproxy.md", "### 2. Configure the agent", "toml")[0]
    enforced = observed.replace('mode = "observe" ', 'mode = "enforce" ')
    assert enforced != observed
    return enforced


def pid(host):
    return host.property("plimsoll", "MainPID")


def is_active(host):
    return host.tried("systemctl is-active plimsoll").stdout.strip() == "active"


def install(host, deb="./plimsoll_*_amd64.deb", options=""):
    return host.run(f"{APT} apt-get install --yes {options} {deb}")


def start(host, configuration):
    host.write("/etc/plimsoll/agent.toml", configuration)
    host.run("plimsoll agent --check-config && systemctl enable --now plimsoll")


def answer(host):
    """To HAProxy's question."""
    return host.tried(
        "exec 3<>/dev/tcp/192.0.2.11/9101; printf 'queries/node1\\n' >&3; timeout 5 head -n1 <&3"
    ).stdout


def test_a_node_from_install_to_purge(host, configuration):
    before = host.files()
    commands, first_start, look = blocks("install.md", "## A node", "sh")
    assert commands.count("\n") == 3
    commands = commands.replace("apt-get install", f"{APT} apt-get install --yes")
    said = host.run("editor() { test -s $1; }\n" + commands)
    assert "the agent is not started yet. Edit /etc/plimsoll/agent.toml" in said
    assert host.tried("systemctl is-enabled plimsoll").stdout.strip() == "disabled"
    assert host.tried("systemctl is-active plimsoll").stdout.strip() == "inactive"
    owners = host.run("stat --format='%a %U %G' /var/lib/plimsoll /etc/plimsoll/agent.toml")
    assert owners == "750 plimsoll plimsoll\n644 root root\n"
    # The example as it is checks.
    host.run("plimsoll agent --check-config")

    host.write("/etc/plimsoll/agent.toml", configuration)
    host.run(first_start)
    assert is_active(host) and host.run(f"stat --format=%U /proc/{pid(host)}").strip() == "plimsoll"
    looked = host.run(look)
    assert re.match(r"plimsoll \d+\.\d+\.\d+\ncommit: [\w-]+\nlicense: Apache-2.0\n", looked), looked
    assert "queries" in looked and "Started plimsoll.service" in looked and "blob data" not in looked
    host.wait("the answer to HAProxy", lambda: answer(host).startswith("up "))

    reloads(host, configuration)
    assert host.run("apt-get remove --yes plimsoll 2>&1")
    assert not host.tried("systemctl cat plimsoll").stdout.startswith("#")
    host.run("test -e /etc/plimsoll/agent.toml; test -d /var/lib/plimsoll; ! test -e /run/plimsoll")
    install(host)
    (purge,) = blocks("install.md", "## Remove", "sh")
    host.run(purge.replace("purge", "purge --yes"))
    host.run("! getent passwd plimsoll; ! getent group plimsoll")
    assert host.files() ^ before == set()


def reloads(host, configuration):
    main = pid(host)
    host.write("/etc/plimsoll/agent.toml", configuration.replace('"1s"', '"2s"'))
    host.run("systemctl reload plimsoll")
    host.wait("the new SLA", lambda: "of 2 s" in host.run("plimsoll node status"))
    host.write("/etc/plimsoll/agent.toml", configuration.replace('"1s"', '"soon"'))
    host.run("systemctl reload plimsoll")
    host.wait("the refusal", lambda: "reload refused, the old configuration stays" in host.journal())
    assert pid(host) == main and "of 2 s" in host.run("plimsoll node status")
    host.write("/etc/plimsoll/agent.toml", configuration)


def test_an_agent_that_is_killed_comes_back_for_ever(host, configuration):
    install(host)
    start(host, configuration)
    for _ in range(KILLS):
        killed = pid(host)
        host.run(f"kill -9 {killed}")
        host.wait("the next agent", lambda: is_active(host) and pid(host) not in {killed, "0"})  # noqa: B023
    assert int(host.property("plimsoll", "NRestarts")) == KILLS
    host.wait("the answer to HAProxy", lambda: answer(host).startswith("up "))


@pytest.mark.parametrize("unit", ["plimsoll", "plimsoll-gather"])
def test_the_units_are_sandboxed(host, unit):
    install(host)
    assert not host.run(f"systemd-analyze verify --man=no {unit}.service").strip()
    said = host.run(f"systemd-analyze security --no-pager {unit}.service")
    exposure = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", said)[1])
    print(f"{unit}: systemd-analyze security {exposure}")
    assert exposure <= MAX_EXPOSURE, said


def test_an_upgrade_restarts_what_runs_and_keeps_what_was_edited(host, configuration):
    install(host, "./older.deb")
    start(host, configuration)
    main = pid(host)
    install(host)
    assert is_active(host) and pid(host) != main
    assert host.run("cat /etc/plimsoll/agent.toml") == configuration
    assert host.run("dpkg-query --show --showformat='${Version}' plimsoll") != OLDER
    # Stopped it stays.
    host.run("systemctl stop plimsoll")
    install(host, "./older.deb", "--allow-downgrades")
    assert not is_active(host)


def test_an_upgrade_that_refuses_the_configuration_leaves_the_old_agent(host, configuration):
    install(host, "./older.deb")
    start(host, configuration)
    main = pid(host)
    host.write("/etc/plimsoll/agent.toml", configuration + "\n[no_such_table]\n")
    said = install(host)
    assert "still the previous version, since the new one refuses its configuration" in said
    assert "no_such_table" in said
    assert is_active(host) and pid(host) == main
    host.write("/etc/plimsoll/agent.toml", configuration)
    host.run("systemctl restart plimsoll")
    assert is_active(host)


@pytest.mark.parametrize("prefix", ["/usr", "/usr/local"])
def test_over_an_installation_by_hand(host, configuration, tmp_path, packages, prefix):
    name = next(packages.glob("plimsoll-[0-9]*-linux-x86_64.tar.gz"))
    subprocess.run(["tar", "-xzf", name, "-C", tmp_path, "--strip-components=1"], check=True)
    made = tmp_path / "made"
    subprocess.run(
        ["make", "install", f"DESTDIR={made}", f"PREFIX={prefix}", f"BINARY={tmp_path}/bin/plimsoll"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    host.put(made, "/made")
    host.run("cp -r /made/. / && rm -r /made && systemd-sysusers && systemctl daemon-reload")
    start(host, configuration)
    said = install(host, options=KEEP_MINE)
    assert host.run("cat /etc/plimsoll/agent.toml") == configuration
    assert "files of an installation by `make install` are left" in said
    for command in re.findall(r"^    ((?:rm|systemctl) .*)$", said, re.MULTILINE):
        host.run(command)
    assert "are left" not in install(host, options=f"--reinstall {KEEP_MINE}")
    assert is_active(host)
    unit = host.property("plimsoll", "FragmentPath")
    assert host.run(f"realpath {unit}").strip() == "/usr/lib/systemd/system/plimsoll.service"
    assert host.run(f"readlink /proc/{pid(host)}/exe").strip() == "/usr/bin/plimsoll"
    host.run("systemctl disable plimsoll; apt-get purge --yes plimsoll")
    left = host.run("find / -xdev -name '*plimsoll*' -not -path '/var/lib/dpkg/*' -not -path '/var/log/*'")
    assert not left


def test_a_unit_without_its_user_says_so_and_heals(host, configuration):
    install(host)
    start(host, configuration)
    host.run("systemctl stop plimsoll; userdel plimsoll")
    host.tried("systemctl start --no-block plimsoll")
    for reason in ("status=217/USER", "Failed to determine user credentials"):
        host.wait(reason, lambda: reason in host.journal())  # noqa: B023
    # As docs/install.md says; nothing else.
    host.run("systemd-sysusers")
    host.wait("the agent", lambda: is_active(host))


def test_the_archive_runs_without_the_package(host, configuration):
    (unpack,) = blocks("install.md", "## Without packages", "sh")
    host.run(unpack)
    start(host, configuration)
    assert host.run(f"readlink /proc/{pid(host)}/exe").strip() == "/usr/local/bin/plimsoll"
