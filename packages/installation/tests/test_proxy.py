"""The package of a proxy's host, with the HAProxy of Debian 12."""

from packages.installation.tests.pages import blocks

FRONTEND = "frontend lb\n    mode http\n    bind 127.0.0.1:8000\n    default_backend queries\n"


def test_the_policies_load_where_the_guide_expects_them_and_nothing_is_left(host):
    before = host.files()
    (install,) = blocks("install.md", "## A host of HAProxy", "sh")
    host.run(install.replace("install", "install --yes", 1))
    (settings,) = blocks("haproxy-lua.md", "## HAProxy", "lua")
    lines = blocks("haproxy-lua.md", "## HAProxy", "haproxy")[0]
    host.write("/etc/haproxy/plimsoll.lua", settings)
    host.run("cp /etc/haproxy/haproxy.cfg /root/before.cfg")
    host.write("/root/lines", f"{FRONTEND}{lines}    server node1 192.0.2.11:8080\n")
    host.run("cat /root/lines >>/etc/haproxy/haproxy.cfg")
    assert "Configuration file is valid" in host.run("haproxy -c -V -f /etc/haproxy/haproxy.cfg")
    host.run("systemctl restart haproxy && systemctl is-active haproxy")
    host.run("rm /etc/haproxy/plimsoll.lua /root/lines; mv /root/before.cfg /etc/haproxy/haproxy.cfg")
    host.run("apt-get purge --yes plimsoll-haproxy && systemctl restart haproxy")
    assert host.files() ^ before == set()
