"""Checks that every key goes to the owner of its slot: `python -m loadtests.bench.keys`.

Sends requests for key after key to an Envoy with two workers, and counts responses of nodes other than the
owner in Redis' ring.
"""

import argparse
import re
import subprocess
import sys

from loadtests.bench import envoy
from loadtests.bench.site import Site, new_site
from tests.harness.functions import owner

NODES, WORKERS = 5, 2
ECHO = " hdr x-port %[dst_port] hdr x-key %[path,field(3,/)]"
SCRIPT = """\
local file = io.open("{file}")
local expected = file:read("a")
file:close()
local node = {{ {nodes} }}
-- wrk makes the first request only to look at it.
local asked = -1
local right, wrong = 0, 0
request = function()
  asked = asked + 1
  return wrk.format("GET", "/stock/" .. asked .. "?items=1")
end
response = function(status, headers)
  local key = tonumber(headers["x-key"])
  if not key then
    wrong = wrong + 1
  elseif key >= 1 and key <= #expected then
    if status == 200 and expected:sub(key, key) == node[headers["x-port"]] then
      right = right + 1
    else
      wrong = wrong + 1
    end
  end
  if right + wrong == #expected then
    -- wrk itself would wait for the end of its time.
    print(("KEYS %d %d"):format(right, wrong))
    io.stdout:flush()
    os.exit(0)
  end
end
"""


def ask(site: Site, kind: str, count: int) -> None:
    directory = site.directory
    port = envoy.start(site, kind, WORKERS).port
    before = site.cluster.ring()
    _, _, names, owners = before
    digits = (owner(str(key), names, owners).removeprefix("node") for key in range(1, count + 1))
    (directory / "expected").write_text("".join(digits))
    nodes = ", ".join(f'["{at}"] = "{number}"' for number, at in enumerate(site.ports, 1))
    (directory / "wrk.lua").write_text(SCRIPT.format(file=directory / "expected", nodes=nodes))
    command = ["wrk", "-t1", "-c32", "-d3600s", "-s", str(directory / "wrk.lua")]
    done = subprocess.run([*command, f"http://127.0.0.1:{port}/"], capture_output=True, text=True, check=True)
    right, wrong = map(int, re.search(r"KEYS (\d+) (\d+)", done.stdout).groups())
    is_same = site.cluster.ring() == before
    is_met = is_same and wrong == 0
    print(
        f"{kind}: {right + wrong:,} of {count:,} keys answered, {wrong} by another node than the owner in"
        f" Redis{'' if is_same else ' (but the ring changed meanwhile)'}   target 0   "
        f"{'met' if is_met else 'MISSED'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.keys", description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default=",".join(envoy.DECIDING), help="(%(default)s)")
    parser.add_argument("--keys", type=int, default=1_000_000, help="how many keys (%(default)s)")
    args = parser.parse_args()
    for kind in args.kinds.split(","):
        with new_site(NODES, ECHO) as site:
            ask(site, kind, args.keys)
    return 0


if __name__ == "__main__":
    sys.exit(main())
