"""An object set has one name, whichever proxy a request goes through, and the node is told it."""

import asyncio
import re

import pytest

from tests.conformance.names import HEADERS, PATHS
from tests.harness.envoy_placement import EnvoySite
from tests.harness.haproxy_placement import SNIPPET, HAProxySite
from tests.harness.placement import Site, runner
from tests.harness.traffic import message


def snippet_by_path() -> str:
    lines = [line for line in SNIPPET.splitlines(keepends=True) if "req.fhdr(x-object-set)" not in line]
    return "".join(lines).replace("#   http-request set-var", "    http-request set-var")


# With what their sets are taken from the path.
PROXIES = {
    "haproxy": (HAProxySite, {"snippet": snippet_by_path()}),
    "envoy": (EnvoySite, {"object_set": {"path_segment": 2}}),
}


async def names_are_placed(site: Site, cases: dict[str, str | None], is_path: bool) -> None:
    """Each case has its set, which the node is told, or is refused."""
    nodes, keeper, port = site.nodes, site.keeper, site.proxies[0].port
    for number, (case, name) in enumerate(cases.items()):
        request = f"case{number}"
        path, lines = (case, "x-object-set: client") if is_path else ("/write", case)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\nx-id: {request}\r\n{lines}\r\n"
        writer.write(f"{head}x-plimsoll-fence: z\r\ncontent-length: 0\r\n\r\n".encode())
        first, _ = await message(reader)
        writer.close()
        told = nodes.heads.get(request, [])
        # As CGI and WSGI fold them.
        folded = [(re.sub("[^a-z0-9]", "_", field), value) for field, value in told]
        found = [value for field, value in folded if field == "x_object_set"]
        fences = [value for field, value in folded if field == "x_plimsoll_fence"]
        assert (first.split()[1], found) == (("200", [name]) if name else ("400", [])), case
        assert fences == ([keeper.fence()] if name else []), case


@pytest.mark.parametrize("proxy", PROXIES)
def test_an_object_has_one_name_and_the_node_gets_it_whatever_the_client_sends(tmp_path, own_redis, proxy):
    async def test(site: Site) -> None:
        await site.start(proxies=1)
        await names_are_placed(site, HEADERS, is_path=False)

    runner(PROXIES[proxy][0], tmp_path, own_redis.start().load())(test)


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_path_has_one_name_however_it_is_spelled(tmp_path, own_redis, proxy):
    kind, by_path = PROXIES[proxy]

    async def test(site: Site) -> None:
        await site.start(proxies=1, **by_path)
        await names_are_placed(site, PATHS, is_path=True)

    runner(kind, tmp_path, own_redis.start().load())(test)
