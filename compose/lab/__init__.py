"""The native lab: a real HAProxy, data nodes, agents and k6 on free loopback ports."""
