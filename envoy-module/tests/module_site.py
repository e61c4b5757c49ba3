"""An Envoy with a module in both positions, in front of one node."""

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.harness import programs
from tests.harness.envoy import Envoy, endpoints
from tests.harness.envoy_filter import ENVOYS
from tests.harness.http_server import Answering

TYPES = "type.googleapis.com/envoy.extensions"
TEXT = "type.googleapis.com/google.protobuf.StringValue"


def executable(version: str) -> Path:
    """Envoy's executable; the command from PyPI is a script that starts it."""
    command = Path(ENVOYS[version]())
    found = command.parents[1].glob("lib/python*/site-packages/envoy/_bin/envoy")
    return next(found, command)


def built(name: str) -> Path:
    """The built library with this name: the module, or an example of `envoy-module/abi`."""
    return Path(programs.binary(name))


def address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def module(library: Path) -> dict[str, Any]:
    return {"module": {"local": {"filename": str(library)}}, "do_not_close": True}


def entry(library: Path, config: dict[str, Any]) -> dict[str, Any]:
    """An entry of `http_filters`."""
    return {
        "name": "module",
        "typed_config": {
            "@type": f"{TYPES}.filters.http.dynamic_modules.v3.DynamicModuleFilter",
            "dynamic_module_config": module(library),
            "filter_name": "module",
            "filter_config": config,
        },
    }


def policy(library: Path, config: str) -> dict[str, Any]:
    """The load balancing policy of a cluster."""
    kind = f"{TYPES}.load_balancing_policies.dynamic_modules.v3.DynamicModulesLoadBalancerConfig"
    typed = {
        "@type": kind,
        "dynamic_module_config": module(library),
        "lb_policy_name": "module",
        "lb_policy_config": {"@type": TEXT, "value": config},
    }
    name = "envoy.load_balancing_policies.dynamic_modules"
    return {"policies": [{"typed_extension_config": {"name": name, "typed_config": typed}}]}


def configuration(library: Path, node: int, downstream: Any, upstream: Any) -> dict[str, Any]:
    router = {
        "@type": f"{TYPES}.filters.http.router.v3.Router",
        "upstream_http_filters": [
            entry(library, upstream),
            {
                "name": "codec",
                "typed_config": {"@type": f"{TYPES}.filters.http.upstream_codec.v3.UpstreamCodec"},
            },
        ],
    }
    routes = [{"match": {"prefix": "/"}, "route": {"cluster": "queries"}}]
    manager = {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "x",
        "http_filters": [entry(library, downstream), {"name": "router", "typed_config": router}],
        "route_config": {"virtual_hosts": [{"name": "x", "domains": ["*"], "routes": routes}]},
    }
    filters = [{"name": "manager", "typed_config": manager}]
    queries = {
        "name": "queries",
        # A worker may be late to its sockets on a busy machine.
        "connect_timeout": "10s",
        "load_assignment": {"cluster_name": "queries", "endpoints": [endpoints([node])]},
    }
    return {
        "node": {"id": "x", "cluster": "x"},
        "admin": {"address": address(0)},
        "static_resources": {
            "listeners": [{"name": "x", "address": address(0), "filter_chains": [{"filters": filters}]}],
            "clusters": [queries],
        },
    }


class ModuleSite:
    """Makes Envoys with a module in both positions, in front of one node."""

    def __init__(self, stack: ExitStack, directory: Path, version: str = "path") -> None:
        self._stack, self._directory, self._program = stack, directory, ENVOYS[version]()
        self.node = Answering(lambda _, path: (200, path.encode()))
        stack.callback(self.node.stop)

    def config(self, library: Path, downstream: str, upstream: str) -> dict[str, Any]:
        text = lambda value: {"@type": TEXT, "value": value}  # noqa: E731
        return configuration(library, self.node.port, text(downstream), text(upstream))

    def envoy(self, config: dict[str, Any]) -> Envoy:
        """An Envoy that is not started yet."""
        envoy = Envoy(self._stack, self._directory, config, 2)
        envoy.command[0] = self._program
        return envoy

    def validated(self, config: dict[str, Any], **environment: str) -> tuple[int, str]:
        """Exit status and output of `--mode validate`."""
        envoy = self.envoy(config)
        command = [*envoy.command, "--mode", "validate"]
        env = os.environ | environment
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, env=env)
        return done.returncode, done.stderr + done.stdout


def symbols(program: Path, kind: str) -> set[str]:
    """Names of the callbacks that a program or library exports (`defined`) or needs (`undefined`)."""
    listed = subprocess.run(
        ["nm", "-D", f"--{kind}-only", program], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1] for line in listed.stdout.splitlines()}
    return {name for name in names if name.startswith("envoy_dynamic_module_callback_")}
