"""Test code shared by all areas; code of a single area stays with its tests.

- `programs` finds them, `process` runs them and ends them with the test, `ports`, `eventually`
- one module each: `redis` and its `functions`, `haproxy`, `envoy`, `postgres`, `agent`, `http_server`
- containers: `podman`
- placement: `placement`, `primaries`, and the sites `haproxy_placement`, `envoy_placement`
- clients and nodes under load: `traffic`; pushed updates: `updates`
- `fixtures`, which every test may ask for
"""

from compose.lab.topology import ROOT

__all__ = ["ROOT"]
