"""Queries go to all partitions, and one of those that put the answers together dies."""

from compose.lab import gather
from compose.lab.scenarios.base import Requirement
from compose.lab.scenarios.kill import Kill
from compose.lab.stack import Plan
from compose.lab.timeline import Fault, Work
from compose.lab.topology import Topology


def last_aggregator(planned: Plan, _: Topology) -> list[str]:
    return [f"gather{len(planned.ports.gathers)}"]


class AggregatorFailover(Kill):
    name = "aggregator-failover"
    fault = Fault("one of the aggregators is killed", last_aggregator)
    # Each asks every partition at once.
    clients_per_slave = 4
    refused_database = ("sqlite", "partitions are PostgreSQL's: DB=postgres")
    requirement = Requirement(
        lambda policy: policy.gathers >= 2, "without two aggregators nothing fails over"
    )

    def work(self, mix: str) -> Work:
        # A query to every partition logs in at each, and all are on one machine.
        return Work(think=((0.8, 1.2), (0.8, 1.2)), gather=gather.QUERY)
