"""docs/doctor.md, from its text, on hosts with the real programs; and that its findings are the program's."""

import json
import re
import subprocess

from docs.tests.cluster import INSTALL, Nodes, configure, first_tier, start_redis, wait_servers
from docs.tests.guide import Guide, merged
from tests.harness import ROOT, programs

ASK = "Ask HAProxy and its agents"
CODES = re.compile(r"must be one of ([a-z, -]+)")


def test_docs_doctor_md(network):
    proxy = network.host("lb1", "192.0.2.2")
    nodes = Nodes.make(network)
    start_redis(network)
    with Guide("doctor.md") as guide:
        text, backend = first_tier(proxy, nodes)
        proxy.run(Guide("haproxy.md").take(INSTALL, "sh"))
        ask, shown = guide.take(ASK, "sh"), guide.take(ASK, "text")
        assert proxy.run(ask) == "no findings\n"
        told = json.loads(proxy.run(guide.take("In CI", "sh")))
        assert told == {"findings": [], "not_asked": [], "not_looked_at": []}

        nodes.write(merged(text, Guide("haproxy-lua.md").take("Agents", "toml")))
        nodes.run("systemctl restart plimsoll")
        nodes.ready()
        asked = guide.take("Ask Envoy and Redis", "sh")
        # That Redis has no password, and its host's address is not a public one.
        assert nodes.hosts[0].run(asked) == "no findings\n"

        assert "weight 100 " in backend
        configure(proxy, backend.replace("weight 100 ", ""))
        proxy.run("systemctl reload haproxy")
        wait_servers(proxy, agent_status="L7OK")
        said = proxy.run(f"{ask.strip()} || test $? = 1\n")
        line = re.compile(r"haproxy\.cfg:\d+")
        assert line.sub("", shown) in line.sub("", said), said


def test_the_page_has_a_heading_for_each_code_and_no_other():
    command = [programs.agent(), "doctor", "--ignore", "none"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    codes = CODES.search(" ".join(said.split()))[1].split(", ")
    page = (ROOT / "docs/doctor.md").read_text()
    assert [code.strip() for code in codes] == re.findall(r"^### (.*)$", page, re.MULTILINE)
