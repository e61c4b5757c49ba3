"""`scripts/package` on stand-ins for what was built."""

import os
import subprocess
import tarfile
import tomllib

import pytest

from tests.harness import ROOT

VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The script's input."""
    directory = tmp_path_factory.mktemp("built")
    program = directory / "plimsoll"
    program.write_text('#!/bin/sh\necho "$0 $*" | sed "s|.*/||"\n')
    program.chmod(0o755)
    (directory / "arm").write_text("of aarch64")
    (directory / "arm").chmod(0o755)
    for name in ("libplimsoll.so", "envoy_wasm.wasm", "plimsoll.cdx.json", "THIRD-PARTY-LICENSES.txt"):
        (directory / name).write_text(name)
    return {
        "BINARY": program,
        "ARM_BINARY": directory / "arm",
        "MODULE": directory / "libplimsoll.so",
        "FILTER": directory / "envoy_wasm.wasm",
        "NOTICES": directory,
        "SOURCE_DATE_EPOCH": "1700000000",
        "MACHINE": "x86_64",
    }


def package(settings, umask=-1, **more):
    environment = {**os.environ, **{key: str(value) for key, value in {**settings, **more}.items()}}
    return subprocess.run(
        ["scripts/package"],
        cwd=ROOT,
        env=environment,
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def dist(built, tmp_path_factory):
    directory = tmp_path_factory.mktemp("dist")
    ran = package(built, DIST=directory)
    assert ran.returncode == 0, ran.stderr
    return directory


def contents(deb):
    """Modes, owners and names."""
    listed = subprocess.run(
        ["dpkg-deb", "--contents", deb], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return {line.split()[5]: line.split()[:2] for line in listed}


def test_the_same_input_makes_the_same_bytes(built, dist, tmp_path):
    # Nothing of where and when it is made gets in.
    os.utime(built["BINARY"])
    ran = package(built, umask=0o077, DIST=tmp_path / "again", TZ="Asia/Tokyo", LC_ALL="C")
    assert ran.returncode == 0, ran.stderr
    sums = (dist / "SHA256SUMS").read_text()
    assert (tmp_path / "again/SHA256SUMS").read_text() == sums
    assert {line.split()[1] for line in sums.splitlines()} | {"SHA256SUMS"} == {
        path.name for path in dist.iterdir()
    }
    subprocess.run(["sha256sum", "--quiet", "--check", "SHA256SUMS"], cwd=dist, check=True)


@pytest.mark.parametrize(("architecture", "binary"), [("amd64", "BINARY"), ("arm64", "ARM_BINARY")])
def test_the_package_of_a_node_is_whole(built, dist, tmp_path, architecture, binary):
    deb = dist / f"plimsoll_{VERSION}_{architecture}.deb"
    field = subprocess.run(
        ["dpkg-deb", "--field", deb, "Architecture"], capture_output=True, text=True, check=True
    )
    assert field.stdout == f"{architecture}\n"
    subprocess.run(["dpkg-deb", "--extract", deb, tmp_path], check=True)
    assert (tmp_path / "usr/bin/plimsoll").read_text() == built[binary].read_text()
    files = contents(deb)
    assert {owner for _, owner in files.values()} == {"root/root"}
    assert files["./usr/bin/plimsoll"][0] == "-rwxr-xr-x"
    for name in (
        "./etc/plimsoll/agent.toml",
        "./usr/lib/systemd/system/plimsoll.service",
        "./usr/lib/systemd/system/plimsoll-gather.service",
        "./usr/lib/sysusers.d/plimsoll.conf",
        "./usr/share/bash-completion/completions/plimsoll",
        "./usr/share/doc/plimsoll/THIRD-PARTY-LICENSES.txt.gz",
        "./usr/share/doc/plimsoll/copyright",
        "./usr/share/doc/plimsoll/examples/agent.toml",
        "./usr/share/fish/vendor_completions.d/plimsoll.fish",
        "./usr/share/man/man1/plimsoll.1.gz",
        "./usr/share/zsh/vendor-completions/_plimsoll",
    ):
        assert files[name][0] == "-rw-r--r--", name
    assert not [name for name in files if name.startswith(("./usr/local", "./var"))]
    conffiles = subprocess.run(
        ["dpkg-deb", "--info", deb, "conffiles"], capture_output=True, text=True, check=True
    )
    assert conffiles.stdout == "/etc/plimsoll/agent.toml\n"


def test_the_package_of_a_proxy_has_what_the_guides_name(dist):
    files = contents(dist / f"plimsoll-haproxy_{VERSION}_all.deb")
    for module in (ROOT / "lua/plimsoll").rglob("*.*"):
        assert f"./usr/share/plimsoll/{module.relative_to(ROOT)}" in files
    assert "./usr/share/plimsoll/haproxy/snippets/lua-policy.cfg" in files
    assert "./usr/share/doc/plimsoll-haproxy/examples/lua-fc-hash.cfg" in files
    assert not [name for name in files if name.startswith(("./etc", "./usr/bin"))]


@pytest.mark.parametrize(
    ("archive", "files"),
    [
        ("-{}-linux-aarch64", ["bin/plimsoll", "share/doc/plimsoll/THIRD-PARTY-LICENSES.txt"]),
        ("-{}-linux-x86_64", ["bin/plimsoll", "lib/sysusers.d/plimsoll.conf", "share/doc/plimsoll/LICENSE"]),
        ("-envoy-{}-linux-x86_64", ["plimsoll.wasm", "libplimsoll.so", "examples/filter/wasm-fc-hash.yaml"]),
        ("-haproxy-{}", ["lua/plimsoll/init.lua", "snippets/limits.cfg"]),
        ("-redis-{}", ["plimsoll.lua", "plimsoll_placement.lua"]),
        ("-dashboards-{}", ["dashboards/sla.json", "rules/plimsoll.yaml"]),
    ],
)  # fmt: skip
def test_archives_have_one_directory_of_their_name(dist, archive, files):
    name = "plimsoll" + archive.format(VERSION)
    with tarfile.open(dist / f"{name}.tar.gz") as opened:
        names = opened.getnames()
        assert {member.mtime for member in opened} == {1_700_000_000}
        assert {member.uid for member in opened} | {member.gid for member in opened} == {0}
    assert {each.split("/")[0] for each in names} == {name}
    assert {f"{name}/{file}" for file in files} <= set(names)


def test_a_candidate_is_older_than_its_release(built, tmp_path):
    ran = package(built, DIST=tmp_path, VERSION="1.2.3-rc.1")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "plimsoll_1.2.3~rc.1_amd64.deb").exists()
    older = ["dpkg", "--compare-versions", "1.2.3~rc.1", "lt", "1.2.3"]
    assert subprocess.run(older, check=False).returncode == 0


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"BINARY": "/none"}, "/none is not there: run `make package`"),
        ({"ARM_BINARY": "/none"}, "/none is not there: run `make package`"),
        ({"VERSION": "latest"}, "VERSION is latest, not like 1.2.3"),
        ({"MACHINE": "vax"}, "MACHINE is vax"),
    ],
)
def test_bad_input_is_named_and_nothing_is_made(built, tmp_path, settings, problem):
    ran = package(built | settings, DIST=tmp_path / "dist")
    assert ran.returncode != 0
    assert problem in ran.stderr
    assert not (tmp_path / "dist").exists()
