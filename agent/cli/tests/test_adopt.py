"""`plimsoll adopt` on files like those that people have, checked by the real HAProxys before and after."""

import os
import pty
import re
import stat
import subprocess
from pathlib import Path

import pytest

from agent.cli.tests.adopting import HISTOGRAM, adopt
from tests.harness import programs

DEFAULTS = """\
defaults
    mode http
    log global
    option httplog
    timeout connect 5s
    timeout client 50s
    timeout server 50s
"""
WEB = "frontend web\n    bind 127.0.0.1:8081\n    default_backend app\n"
TEMPLATE = "    server-template chat 4 backend:8080 check resolvers d init-addr none\n"
SERVERS = "    server a 192.0.2.11:80 check\n    server b 192.0.2.12:80 check\n"
PLAIN = f"global\n    log 127.0.0.1 local0\n{DEFAULTS}{WEB}backend app\n    balance roundrobin\n{SERVERS}"


def site(body: str, *, top: str = "global\n    daemon\n" + DEFAULTS, web: str = WEB) -> str:
    return f"{top}{web}backend app\n{body}"


# The public repository where it was seen, if in one, our own file with that trait, and what becomes of it:
# words of the diff, or of the refusal, which begins with a line's number.
TRAITS: dict[str, tuple[str | None, str, list[str], str]] = {
    "httpchk, servers by address": (
        "2600hz/kazoo-configs-haproxy",
        site(f"    balance roundrobin\n    option httpchk GET /\n{SERVERS}"),
        [],
        "+    balance leastconn",
    ),
    "listen, sticky by cookie": (
        "TQHuaa/terraform_LBinAWS",
        f"global\n    daemon\n{DEFAULTS}listen app\n    bind 127.0.0.1:8081\n"
        "    cookie S insert indirect nocache\n    server a 192.0.2.11:80 check cookie a inter 5s\n",
        [],
        "cookie stays",
    ),
    "limits and weights on server lines": (
        "28youth/docker-mysql-cluster",
        site("    server a 192.0.2.11:80 weight 3 maxconn 1000 check\n    server b 192.0.2.12:80 check\n"),
        ["--enforce"],
        '+    server a 192.0.2.11:80 check agent-send "app/a\\n"',
    ),
    "timeout queue 1m and redispatch in defaults": (
        "Aidaho12/haproxy_configs",
        site(SERVERS, top=f"global\n    daemon\n{DEFAULTS}    timeout queue 1m\n    option redispatch\n"),
        [],
        "+    timeout queue 50ms",
    ),
    "balance leastconn, a backup": (
        "2winpowersoftware/geo-distributed-api-platform",
        site(f"    balance leastconn\n{SERVERS}    server spare 192.0.2.13:80 check backup\n"),
        [],
        "+    server spare 192.0.2.13:80 check backup no-agent-check",
    ),
    "balance source": (
        "Akaronte/okd4.14-install",
        site(f"    balance source\n{SERVERS}"),
        [],
        "+    hash-type consistent",
    ),
    "option logasap in the frontend": (
        "zjyzju/zPaaS_REPO",
        site(SERVERS, web=f"{WEB}    option logasap\n"),
        [],
        "-    option logasap",
    ),
    "balance twice, stick on src": (
        None,
        site(
            "    balance roundrobin\n    balance uri\n    stick-table type ip size 1m expire 8h\n"
            f"    stick on src\n{SERVERS}"
        ),
        [],
        "stick stays",
    ),
    "stick tables that only count, quotes and escapes": (
        "Aareez01/HAProxy-Setup-with-Rate-Limiting-CORS-and-OWASP-Compliance",
        site(
            "    stick-table type ip size 100k expire 30s store http_req_rate(10s)\n"
            "    http-request track-sc0 src\n"
            '    http-response set-header X-A "a # b; \\"c\\""\n'
            f"    http-response set-header X-B max-age=1;\\ x\n{SERVERS}"
        ),
        [],
        "+    option redispatch 1",
    ),
    "a page for 503 in defaults": (
        "AKI1620/microMonitor",
        site(
            SERVERS,
            top=f"global\n    daemon\n{DEFAULTS}    http-error status 503 content-type text/plain string x\n",
        ),
        [],
        'this page for 503 no longer applies to "app"',
    ),
    "mode tcp": (
        "4linux/541",
        site(f"    mode tcp\n{SERVERS}", web=WEB + "    mode tcp\n"),
        [],
        '15: backend "app" has mode tcp',
    ),
    "mode tcp, with the service's histogram": (
        "7ZFG1/Docker-Swarm-RabbitMQ",
        site(f"    mode tcp\n{SERVERS}", web=WEB + "    mode tcp\n    option tcplog\n"),
        HISTOGRAM,
        "agent-inter 250ms",
    ),
    "server-template with resolvers": (
        "AjinkyaAmbadkar/MultiLingualChat-App",
        site(TEMPLATE, web=f"resolvers d\n    nameserver a 127.0.0.1:53\n{WEB}"),
        [],
        '16: server-template "chat": its nodes are known only at run time',
    ),
    "server-template, with the service's histogram": (
        "AjinkyaAmbadkar/MultiLingualChat-App",
        site(TEMPLATE, web=f"resolvers d\n    nameserver a 127.0.0.1:53\n{WEB}"),
        HISTOGRAM,
        'init-addr none agent-send "app\\n"',
    ),
    "the environment decides the port": (
        "AirVantage/pointsman",
        site('    server a "$ADOPT_NODE":"$ADOPT_PORT" check\n'),
        [],
        "+    log 192.0.2.33:5514 local0 info",
    ),
    "a variable that is not set": (
        "687ke1c6/ts-reverse-proxy",
        site('    server a "$ADOPT_NOTHING" check\n'),
        ["--no-check"],
        '14: server "a": $ADOPT_NOTHING is not set here',
    ),
    "a socket that only HAProxy reaches": (
        "AndrewWhitaker/haproxy-htx-buffer-request-expect-header",
        site("    server a abns@inner send-proxy-v2\n"),
        [],
        '14: server "a": "abns@" has no host',
    ),
    "a Unix socket": (
        "3kho/haproxy-protection",
        site("    server varnish unix@/run/varnish.sock check\n"),
        [],
        'check agent-addr 127.0.0.1 agent-send "app/varnish\\n"',
    ),
    "the client's own destination": (
        "4teamwork/supervisor-haproxy",
        site("    server a *:9900 check\n"),
        [],
        '14: server "a": its address is the one',
    ),
    "the last line has no end": (
        "15steps/satellite",
        site(SERVERS)[:-1],
        [],
        "15: the last line has no newline",
    ),
    "five backends by host, of one server": (
        "AKI1620/microMonitor",
        site(
            "    server a 192.0.2.11:80 check\nbackend other\n    server a 192.0.2.11:80 check\n",
            web=WEB + "    use_backend other if { hdr(host) other }\n",
        ),
        [],
        'backend "other" also sends to 192.0.2.11:80',
    ),
    "a map decides the backend": (
        "adrianlzt/cerebro",
        site(SERVERS, web="frontend web\n    bind 127.0.0.1:8081\n    use_backend %[req.hdr(host),lower]\n"),
        [],
        "its backends are known only at run time",
    ),
    "servers by name": (
        "hypriot/rpi-node-haproxy-example",
        site("    server a localhost:80 check\n"),
        [],
        "+    log localhost:5514 local0 info",
    ),
    "a session's cookie as prefix": (
        "0xnikhilsaini/socke.io-with-loadbalancer",
        site("    cookie io prefix indirect nocache\n    server a 192.0.2.11:80 check cookie a\n"),
        [],
        "cookie stays",
    ),
    "no frontend": (
        "2winpowersoftware/geo-distributed-api-platform",
        site(SERVERS, web=""),
        [],
        '10: no frontend of this file sends requests to backend "app"',
    ),
    "named defaults, .if, log-format of its own": (
        None,
        f"global\n    daemon\n{DEFAULTS.replace('defaults', 'defaults base', 1)}"
        "defaults fast from base\n    balance random(2)\n"
        "frontend web from fast\n    bind 127.0.0.1:8081\n    log-format '{\"ip\":\"%ci\"}'\n"
        "    default_backend app\n"
        f"backend app from fast\n.if defined(ADOPT_MORE)\n    server c 192.0.2.13:80\n.endif\n{SERVERS}",
        [],
        "balance random(2) stays",
    ),
    "keywords that are gone": (
        "15steps/satellite",
        site(f"    reqrep ^a b\n{SERVERS}"),
        [],
        "rejects",
    ),
}  # fmt: skip


@pytest.fixture
def config(tmp_path) -> Path:
    file = tmp_path / "haproxy.cfg"
    file.write_text(PLAIN)
    return file


def test_files_like_those_that_people_have(haproxy: str, tmp_path, monkeypatch):
    monkeypatch.setenv("ADOPT_NODE", "192.0.2.33")
    monkeypatch.setenv("ADOPT_PORT", "8080")
    for number, (trait, (_, text, words, expected)) in enumerate(TRAITS.items()):
        file = tmp_path / f"{number}.cfg"
        file.write_text(text)
        refused = re.match(r"\d+: |rejects", expected) is not None
        said = adopt(file, *words, "--write", program=haproxy, fails=refused)
        assert expected in said.replace(f"{file}:", ""), f"{trait}: {said}"
        if refused:
            assert file.read_text() == text, trait
            continue
        assert "New warnings" not in said, f"{trait}: {said}"
        if haproxy != programs.haproxy():
            continue
        again = adopt(file, *words, "--no-check")
        assert "Nothing to change" in again and "@@" not in again, f"{trait}: {again}"
        adopt(file, "--undo")
        assert file.read_text() == text, trait
    assert len({repository for repository, *_ in TRAITS.values() if repository}) >= 20


def test_nothing_is_written_unless_asked(config: Path, tmp_path):
    said = adopt(config, "--agents", str(tmp_path / "agents"))
    assert "Nothing written" in said and config.read_text() == PLAIN
    assert sorted(it.name for it in tmp_path.iterdir()) == ["agents", "haproxy.cfg"]
    for name in ("a", "b"):
        agent = tmp_path / "agents" / f"{name}.toml"
        agent.write_text(agent.read_text().replace("/var/lib/plimsoll", str(tmp_path)))
        check = [programs.agent(), "agent", "--check-config", "--config", agent]
        subprocess.run(check, check=True, stdout=subprocess.DEVNULL)
    patched = subprocess.run(
        ["patch", "-o", "-", str(config)], input=said, capture_output=True, text=True, check=True
    )
    adopt(config, "--write")
    assert patched.stdout == config.read_text()


def test_a_link_mode_and_owner_stay(config: Path, tmp_path):
    link = tmp_path / "link.cfg"
    link.symlink_to(config)
    config.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(config, 12, 34)
    before = config.stat()
    adopt(link, "--write")
    after = config.stat()
    assert link.is_symlink() and "agent-send" in config.read_text()
    assert (before.st_mode, before.st_uid, before.st_gid) == (after.st_mode, after.st_uid, after.st_gid)
    kept = config.with_name("haproxy.cfg.before-plimsoll")
    assert kept.read_text() == PLAIN and stat.S_IMODE(kept.stat().st_mode) == 0o640
    adopt(link, "--undo")
    assert config.read_text() == PLAIN and sorted(tmp_path.iterdir()) == [config, link]


def test_undo_refuses_what_was_changed_since(config: Path):
    assert "nothing to undo" in adopt(config, "--undo", fails=True)
    adopt(config, "--write")
    written = config.read_text()
    config.write_text(written + "# mine\n")
    assert "was changed since" in adopt(config, "--undo", fails=True)
    assert config.read_text() == written + "# mine\n"
    config.write_text(written)
    adopt(config, "--undo")
    assert config.read_text() == PLAIN


def test_undo_takes_two_backends_back(config: Path):
    config.write_text(
        PLAIN + "backend other\n    server c 192.0.2.13:80\n"
        "frontend more\n    bind :8082\n    default_backend other\n"
    )
    before = config.read_text()
    adopt(config, "--write")
    adopt(config, "--backend", "other", "--sla", "200ms", "--write")
    assert 'agent-send "other/c\\n"' in config.read_text()
    adopt(config, "--undo")
    assert config.read_text() == before


def test_no_room_leaves_all_files_as_they_were(config: Path, tmp_path):
    large = PLAIN + "# much to say\n" * 100
    config.write_text(large)
    # Files of 1 KiB: enough for those of the agents.
    words = f"adopt {config} --backend app --sla 1s --no-check --write --agents {tmp_path}/agents"
    full = f"trap '' XFSZ; ulimit -f 1; exec {programs.agent()} {words}"
    done = subprocess.run(["bash", "-c", full], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no file was changed" in done.stderr, done.stderr
    assert config.read_text() == large
    assert list(tmp_path.iterdir()) == [config]


def test_agents_and_proxy_are_written_together_or_not_at_all(config: Path, tmp_path):
    agents = tmp_path / "agents"
    adopt(config, "--agents", str(agents))
    (agents / "a.toml").write_text("mine\n")
    (agents / "a.toml").chmod(0o600)
    (agents / "b.toml").unlink()
    (agents / "b.toml").mkdir()
    said = adopt(config, "--agents", str(agents), "--write", fails=True)
    assert f"cannot write {agents}/b.toml; no file was changed" in said
    assert (agents / "a.toml").read_text() == "mine\n"
    assert sorted(it.name for it in agents.iterdir()) == ["a.toml", "b.toml"]
    assert config.read_text() == PLAIN and sorted(tmp_path.iterdir()) == [agents, config]

    (agents / "b.toml").rmdir()
    adopt(config, "--agents", str(agents), "--write")
    assert stat.S_IMODE((agents / "a.toml").stat().st_mode) == 0o600
    assert stat.S_IMODE((agents / "b.toml").stat().st_mode) == 0o644
    assert "agent-send" in config.read_text()


def test_agents_begin_by_observing(config: Path):
    said = adopt(config)
    assert said.count('\nmode = "observe" ') == 2
    switch = re.search(r"^  sed -i '(.*)' /etc/plimsoll/agent.toml && systemctl reload plimsoll$", said, re.M)
    obeyed = subprocess.run(["sed", switch[1]], input=said, capture_output=True, text=True, check=True).stdout
    assert obeyed.count('\nmode = "enforce" ') == 2
    assert "mode =" not in adopt(config, "--enforce")


def test_files_that_cannot_be_adopted(config: Path, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate((16 << 20) + 1)
    assert "is a directory" in adopt(tmp_path, fails=True)
    assert "is not a regular file" in adopt(pipe, fails=True)
    assert "larger than 16 MiB" in adopt(large, fails=True)
    assert "No such file" in adopt(tmp_path / "absent", fails=True)
    os.link(config, tmp_path / "second.cfg")
    assert "2 names (hard links)" in adopt(config, "--write", fails=True)
    if os.geteuid() == 0:
        return
    config.chmod(0)
    assert "Permission denied" in adopt(config, fails=True)


def test_bad_words(config: Path):
    for words, said in [
        (["--backend", "app", "--sla", "0s"], "is not between"),
        (["--backend", "app", "--sla", "soon"], '"soon"'),
        (
            ["--backend", "none", "--sla", "1s"],
            'no backend "none"; backends with servers are app',
        ),
        (["--backend", "app", "--sla", "1s", "--haproxy", "/nowhere"], "/nowhere is not a file"),
        (["--undo", "--write"], "cannot be used with"),
    ]:
        assert said in adopt(config, *words, fails=True)
    unasked = subprocess.run(
        [programs.agent(), "adopt", config],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert "--backend: required; one of\n  app (line 13, mode http)" in unasked.stderr


def test_asks_on_a_terminal(config: Path):
    end, theirs = pty.openpty()
    os.write(end, b"nobody\napp\nsoon\n1s\n")
    done = subprocess.run(
        [programs.agent(), "adopt", config],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        check=True,
    )
    os.close(theirs)
    asked = os.read(end, 4096).decode()
    os.close(end)
    assert "app (line 13, mode http)" in asked and 'There is no "nobody".' in asked and "soon" in asked
    assert 'delay = "1s"' in done.stdout
