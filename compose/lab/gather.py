"""Aggregators and partitions (parts of the standbys' data) of scenario `aggregator-failover`."""

from compose.lab.postgres import Server

QUERY = "dearest"
# The stocks of one part, from a number on, in the order in which the aggregator merges them.
SQL = (
    "SELECT s.symbol, q.price_cents FROM stocks s JOIN quotes q ON q.stock_id = s.id "
    "WHERE s.id % {parts} = {part} AND s.id >= $1 ORDER BY q.price_cents DESC, s.symbol LIMIT 100"
)


def partition(part: int, parts: int, server: Server) -> dict[str, object]:
    """An agent's [[partition]] with one part of the stocks."""
    return {
        "name": f"part{part + 1}",
        "address": f"unix://{server.socket}",
        "user": "stocks",
        "database": "stocks",
        "queries": {QUERY: SQL.format(part=part, parts=parts)},
    }


def configuration(port: int, agents: list[int]) -> tuple[dict[str, object], list[dict[str, object]]]:
    """gather.toml, and its partitions, each at the node that has it."""
    nodes = {f"node{n + 1}": f"127.0.0.1:{agent}" for n, agent in enumerate(agents)}
    parts = [{"name": f"part{n + 1}", "nodes": [node]} for n, node in enumerate(nodes)]
    return {"http": {"listen": f"127.0.0.1:{port}"}, "nodes": nodes}, parts
