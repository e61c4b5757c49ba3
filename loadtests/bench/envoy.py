"""Envoy without Plimsoll, with extensions that do nothing, and with Plimsoll's."""

from collections.abc import Callable
from typing import Any

from loadtests.bench.site import CLUSTER, Site
from tests.harness import ROOT
from tests.harness.envoy import Envoy, endpoints, example, manager_of, set_filter, set_policy
from tests.harness.eventually import eventually

BASE = "plain"
RELEASE = ROOT / "target" / "release" / "examples"
NO_OP_WASM = ROOT / "target" / "wasm32-wasip1" / "release" / "examples" / "noop.wasm"
NO_OP_MODULE = RELEASE / "libnoop.so"
WASM, MODULE = "wasm-fc-hash.yaml", "module-fc-hash.yaml"
Config = dict[str, Any]
LEAST_REQUEST = {
    "policies": [
        {
            "typed_extension_config": {
                "name": "envoy.load_balancing_policies.least_request",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies"
                    ".least_request.v3.LeastRequest"
                },
            }
        }
    ]
}


def extensions(config: Config) -> list[Config]:
    """Plimsoll's two places in the stream."""
    manager = manager_of(config["static_resources"]["listeners"][0])
    router = manager["http_filters"][-1]["typed_config"]
    return [manager["http_filters"][0], router["upstream_http_filters"][0]]


def plain(config: Config) -> None:
    """No extension."""
    manager = manager_of(config["static_resources"]["listeners"][0])
    router = manager["http_filters"][-1]
    router["typed_config"].pop("upstream_http_filters")
    manager["http_filters"] = [router]
    manager["route_config"]["virtual_hosts"][0]["routes"][0].pop("typed_per_filter_config")
    least_request(config)


def least_request(config: Config) -> None:
    config["static_resources"]["clusters"][0]["load_balancing_policy"] = LEAST_REQUEST


def noop_wasm(config: Config) -> None:
    for entry in extensions(config):
        code = entry["typed_config"]["config"]["vm_config"]["code"]
        code["local"]["filename"] = str(NO_OP_WASM)


def noop_module(config: Config) -> None:
    for entry in extensions(config):
        module = entry["typed_config"]["dynamic_module_config"]["module"]
        module["local"]["filename"] = str(NO_OP_MODULE)
    least_request(config)


def by_request(config: Config) -> None:
    """Without the place among the router's upstream filters."""
    manager = manager_of(config["static_resources"]["listeners"][0])
    manager["http_filters"][-1]["typed_config"].pop("upstream_http_filters")


def as_it_is(_config: Config) -> None:
    pass


# The example, and what is changed in it.
KINDS: dict[str, tuple[str, Callable[[Config], None]]] = {
    BASE: (MODULE, plain),
    "no-op wasm": (WASM, noop_wasm),
    "no-op module": (MODULE, noop_module),
    "wasm": (WASM, as_it_is),
    "module": (MODULE, as_it_is),
    "module by request": (MODULE, by_request),
}
# Those whose share of every bound is waited for.
DECIDING = ("wasm", "module", "module by request")


def start(site: Site, kind: str, threads: int) -> Envoy:
    name = f"{kind}{threads}".replace(" ", "-")
    file, change = KINDS[kind]
    config = example(file)
    set_filter(config["static_resources"]["listeners"][0], cluster=CLUSTER, proxy=name)
    ports = {"queries": site.ports, "plimsoll_agents": [site.agent.http]}
    for cluster in config["static_resources"]["clusters"]:
        group = cluster["load_assignment"]["endpoints"][0]
        group["lb_endpoints"] = endpoints(ports.get(cluster["name"], site.ports[:1]))["lb_endpoints"]
        cluster.pop("health_checks", None)
        set_policy(cluster, cluster=CLUSTER)
    change(config)
    envoy = Envoy(site.stack, site.directory / name, config, threads).start()
    if kind in DECIDING:
        eventually("shares", lambda: site.has_shares(name))
    return envoy
