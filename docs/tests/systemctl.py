#!/usr/bin/python3
"""systemctl on a host without systemd: does what units say, as far as guides and their units need it.

What is not emulated: isolation, restarts of what ended, and the journal; output is in /var/log/started.
"""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

UNITS = [Path("/etc/systemd/system"), Path("/lib/systemd/system")]
DIRECTORIES = {"Runtime": "/run", "State": "/var/lib", "Configuration": "/etc"}
SECONDS = 20


def service(name):
    """Key to all its values, of the unit's [Service]."""
    (path, *_) = [path for unit in UNITS if (path := unit / f"{name}.service").exists()]
    found, section = {}, ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = line
        elif "=" in line and not line.startswith("#") and section == "[Service]":
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


class Unit:
    def __init__(self, name):
        self.name, self.says = name, service(name)
        self.pid_file = Path(f"/run/{name}.main-pid")
        self.user = self.one("User")

    def one(self, key, default=None):
        return self.says.get(key, [default])[-1]

    def pid(self):
        return int(self.pid_file.read_text()) if self.pid_file.exists() else 0

    def environment(self):
        pairs = [pair for line in self.says.get("Environment", []) for pair in shlex.split(line)]
        return dict(pair.split("=", 1) for pair in pairs) | {"MAINPID": str(self.pid())}

    def words(self, command):
        variables = self.environment()
        for word in shlex.split(command):
            if word.startswith("$"):
                yield from variables[word[1:]].split()
            else:
                yield word

    def popen(self, command, **other):
        who = {"user": self.user, "group": self.user, "extra_groups": []} if self.user else {}
        mask = int(self.one("UMask", "022"), 8)
        log = Path("/var/log/started") / self.name
        log.parent.mkdir(exist_ok=True)
        with log.open("ab") as output:
            words = list(self.words(command))
            return subprocess.Popen(words, stdout=output, stderr=output, umask=mask, **who, **other)

    def run_all(self, key):
        for command in self.says.get(key, []):
            if self.popen(command, env=os.environ | self.environment()).wait() != 0:
                sys.exit(f"{self.name}: {key}={command} failed, see /var/log/started/{self.name}")

    def start(self):
        for kind, below in DIRECTORIES.items():
            if name := self.one(f"{kind}Directory"):
                path = Path(below) / name
                path.mkdir(exist_ok=True)
                path.chmod(int(self.one(f"{kind}DirectoryMode", "755"), 8))
                if kind != "Configuration" and self.user:
                    shutil.chown(path, self.user, self.user)
        self.run_all("ExecStartPre")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            address = f"/run/{self.name}.notify"
            Path(address).unlink(missing_ok=True)
            notify.bind(address)
            Path(address).chmod(0o777)
            process = self.popen(
                self.one("ExecStart"),
                env=os.environ | self.environment() | {"NOTIFY_SOCKET": address},
                start_new_session=True,
            )
            self.pid_file.write_text(str(process.pid))
            notify.settimeout(SECONDS)
            try:
                while self.one("Type") == "notify" and b"READY=1" not in notify.recv(4096):
                    pass
            except TimeoutError:
                sys.exit(f"{self.name} does not start, see /var/log/started/{self.name}")
            Path(address).unlink()

    def stop(self):
        pid = self.pid()
        if not pid:
            return
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + SECONDS
        # The host's first process reaps it.
        while Path(f"/proc/{pid}").exists():
            if time.monotonic() > end:
                sys.exit(f"{self.name} does not end")
            time.sleep(0.02)
        self.pid_file.unlink()

    def restart(self):
        self.stop()
        self.start()

    def reload(self):
        self.run_all("ExecReload")

    def enable(self):
        if "--now" in sys.argv:
            self.start()


verb, name = [word for word in sys.argv[1:] if not word.startswith("-")]
getattr(Unit(name), verb)()
