"""The keys of summary.json: `python -m loadtests.report.schema` prints them as a JSON schema."""

import json
from typing import Annotated, TypeVar

from annotated_types import Ge, Gt, Le, MinLen
from typing_extensions import TypedDict

T = TypeVar("T")
Some = Annotated[T, MinLen(1)]
Count = Annotated[int, Ge(0)]
Amount = Annotated[float, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]
CONFIG = {"extra": "forbid", "use_attribute_docstrings": True}


class Record(TypedDict):
    """All keys are there, and no others."""

    __pydantic_config__ = CONFIG


class Capacity(Record):
    """Capacity of a real application's nodes before the first policy and after the last; loads are relative
    to the sum before. Null for the demo service."""

    how: str
    """Method of measurement."""
    start_per_s: dict[str, Amount]
    """Requests/s before the first policy, by node."""
    end_per_s: dict[str, Amount]
    """Requests/s after the last policy, by node."""


class Failover(Record):
    """Cost of a program's death, in scenarios that kill one. Null in others."""

    killed_s: Amount
    """Seconds: when it was killed."""
    dead_s: Amount
    """Seconds: when it had ended."""
    back_s: Amount | None
    """Seconds: when it was started again. Null where it was not."""
    errors_in_flight: Count
    """Requests that failed once it was killed, sent before it had ended, or on a connection to it that the
    client had kept."""
    errors_after: Count
    """Other requests sent later that failed, without those cut off at the end."""
    recovered_s: Amount | None
    """Seconds from the death to the first of three in which 95 % of the ideal was done in time. Null:
    never."""
    recovered_back_s: Amount | None
    """The same from when it was started again."""


class Updates(Record):
    """Delay, age of data and update periods in scenario updates. Null where the load does not fall again."""

    calm_s: Amount
    """Seconds: when the load falls back."""
    overload_mean_delay_s: Amount | None
    """Seconds: mean delay of the answered queries sent from the event until then. Null without any."""
    overload_p95_delay_s: Amount | None
    """Seconds: 95th percentile of the same delays."""
    overload_timely_items_per_s: Amount
    """Items/s of the same queries that were answered within the SLA."""
    overload_refused_fraction: Share | None
    """Share of the queries sent in that time that were refused at once, 0 to 1. Null without any."""
    mean_age_s: Amount | None
    """Seconds: mean age of the oldest quote that an answered query read, when it was read, over the
    measured time. Null where no answer told it."""
    p95_age_s: Amount | None
    """Seconds: 95th percentile of the same ages."""
    overload_mean_age_s: Amount | None
    """Seconds: mean of the ages of queries sent from the event until the load falls back."""
    overload_p95_age_s: Amount | None
    """Seconds: 95th percentile of the same ages."""
    overload_updates_per_s: Amount | None
    """Updates/s that a node made in that time, the mean of the nodes."""
    relaxed_share: Share | None
    """Largest share of all nodes' items with a longer period than their own, in any second, 0 to 1. Null
    where periods do not adapt, as are the four below."""
    longest_period_s: Amount | None
    """Seconds: the longest period that an item had."""
    hot_relaxed: Amount | None
    """Largest number of a node's items that were read twice as often as they are updated, over ten
    seconds, and yet had longer periods."""
    back_s: Amount | None
    """Seconds from the fall of the load to the last sample with an item that had not its own period; 0
    without one. Null where some had not at the end."""
    relaxed_share_by_second: list[Share | None]
    """The share that is largest in relaxed_share, per second; null without a sample."""


class Removal(Record):
    """Cost of the death of nodes. Null if no node is dead in the last second, or there is no event."""

    dead_nodes: Some[list[str]]
    """Nodes without capacity in the last measured second."""
    timely_before_items_per_s: Amount | None
    """Timely items/s before the event."""
    timely_after_items_per_s: Amount | None
    """Timely items/s from 5 s after the event."""
    lost_capacity_items_per_s: Amount
    """Items/s: summed mean capacity of the dead nodes before the event."""
    error_window_s: Amount
    """Seconds from the event to the last failed query a client saw; 0 without one."""


class Transactions(Record):
    """Requests to the master, which no policy governs, sent in the measured time."""

    requests_per_s: Amount
    """Requests/s sent."""
    mean_delay_s: Amount | None
    """Seconds: mean delay of those answered."""
    p99_delay_s: Amount | None
    """Seconds: 99th percentile of the same."""
    refused_fraction: Share
    """Share refused, 0 to 1."""
    error_fraction: Share
    """Share that failed or was unfinished at the end, 0 to 1."""


class PlacementSeries(Record):
    """As the series of the policy."""

    transactions_per_s: Some[list[Amount]]
    """Answered transactions, by the second of the answer."""
    mean_delay_s: Some[list[Amount | None]]
    """Seconds: mean delay of the same. Null without any."""
    handovers: Some[list[Amount]]
    """Object sets that got another primary."""
    sets: Some[dict[str, Some[list[Count]]]]
    """Per node: the object sets of which it gave the last answer by the end of the second."""


class Placement(Record):
    """Transactions at primaries of object sets. Null where transactions name none."""

    transactions_per_s: Amount
    """Answered transactions/s of the measured time, by time of answer."""
    timely_fraction: Share | None
    """Share of the answered transactions that were within the SLA, 0 to 1. Null without any."""
    mean_delay_s: Amount | None
    """Seconds: mean delay of the answered transactions that were sent in the measured time. Null without
    any."""
    p50_delay_s: Amount | None
    """Seconds: median of the same."""
    p95_delay_s: Amount | None
    """Seconds: 95th percentile of the same."""
    p99_delay_s: Amount | None
    """Seconds: 99th percentile of the same."""
    refused: Count
    """Transactions that the proxy refused, warm-up included."""
    errors: Count
    """Transactions that failed or were unfinished at the end, warm-up included."""
    period_s: Amount | None
    """Seconds: the keeper's period. Null where no agent places object sets."""
    first_decision_s: Amount | None
    """Seconds since the clients started: when the first object set began to leave its node. Null if none
    did."""
    handovers: Count
    """Object sets that got another primary."""
    last_handover_s: Amount | None
    """Seconds since the clients started: the last of them. Null without any."""
    checked: Count
    """Transactions whose object set the node could claim for itself."""
    unchecked: Count
    """Answered transactions above that number."""
    violations: Count
    """Transactions whose object set another node had claimed: two primaries at once."""
    settled_from_s: Amount | None
    """Seconds since the clients started: 4 periods after the first decision; the begin of the measured
    time without one. Null where that is no time before the end."""
    settled_transactions_per_s: Amount | None
    """Answered transactions/s from then on."""
    settled_of_best: Amount | None
    """Ratio: that over the figure of placement-fixed in the same time. Null without that policy in the
    run."""
    periods_to_best: Count | None
    """Whole periods from the first decision to the first with 95 % of placement-fixed's transactions/s.
    Null where there is none, no decision or no placement-fixed."""
    series: PlacementSeries


class Phase(Record):
    """One step of the load of a real application, by time of sending. Null for the demo service."""

    from_s: Amount
    """Seconds since the clients started."""
    to_s: Amount
    """Seconds since the clients started."""
    load: Amount
    """Offered load as a multiple of the capacity."""
    timely_per_s: Amount
    """Requests/s served within the SLA."""
    timely_items_per_s: Amount
    """Their work, in mean requests/s."""
    timely_of_best: Amount | None
    """Ratio to the best policy of the run in this phase. Null if no request was timely."""
    possible_per_s: Amount
    """Requests that can be timely: the smaller of those offered and the measured capacity, in mean requests,
    of the nodes that are there in the phase; a slow node's is that of its quota."""
    timely_of_possible: Amount | None
    """Ratio: timely_per_s over that. Above 1 where requests asked for less work than the mean. Null where
    nothing is possible."""
    settling_s: Count | None
    """Whole seconds from the phase's begin: the first from which on timely requests/s, averaged up to every
    second that is at least 5 s later (or the phase's end, if it is shorter), are at least 95 % of
    possible_per_s. In shorter windows the few requests of ten times the work decide. Null: never."""
    last_refusal_s: Amount | None
    """Seconds from the phase's begin to when the last refused request was sent. Null without one."""
    offered_per_s: Amount
    """Requests/s that were due."""
    refused_fraction: Share | None
    """Share of the due requests that were refused at once, 0 to 1."""
    timeout_fraction: Share | None
    """Share of the same whose client timed out."""
    error_fraction: Share | None
    """Share of the same with any other failure."""
    dropped_fraction: Share | None
    """Share of the same that was not sent, as all virtual users of the generator were busy."""
    important_timely_fraction: Share | None
    """Share of the requests of the highest class that were timely. Null where requests have no class."""
    important_p95_delay_s: Amount | None
    """Seconds: 95th percentile of the delay of those served. Null without any."""
    p50_delay_s: Amount | None
    """Seconds: median delay of the served requests. Null without any."""
    p95_delay_s: Amount | None
    """Seconds: 95th percentile of the same."""
    p99_delay_s: Amount | None
    """Seconds: 99th percentile of the same."""


class Series(Record):
    """Value k is that of the seconds [k, k+1) since the clients started, warm-up included; all have the
    same length."""

    timely_items_per_s: Some[list[Amount]]
    """Timely items, by the second of the answer."""
    ideal_items_per_s: Some[list[Amount]]
    """The smaller of items offered and summed capacity."""
    offered_items_per_s: Some[list[Amount]]
    """Items of all queries sent."""
    mean_delay_s: Some[list[Amount | None]]
    """Seconds: mean delay of the queries answered in the second. Null without any."""
    p95_delay_s: Some[list[Amount | None]]
    """Seconds: 95th percentile of the same."""
    refused_per_s: Some[list[Amount]]
    """Refused queries, by the second of sending."""


class Run(Record):
    """One policy."""

    policy: str
    """Name in loadtests/policies.toml."""
    group: str | None
    """Policy of whose sweep this is one value. Null for others."""
    app: str | None
    """The application that was run. Null for the demo service."""
    proxy: str
    """The proxy and its version."""
    total_items_per_s: Amount
    """Items/s of answered queries, timely or late, by the second of the answer."""
    timely_items_per_s: Amount
    """Items/s of queries answered within the SLA, by the second of the answer."""
    ideal_items_per_s: Amount
    """Items/s: per second the smaller of the items offered and the summed capacity of the nodes, averaged."""
    offered_items_per_s: Amount
    """Items/s of all queries sent, whatever their outcome, by the second of sending."""
    mean_delay_s: Amount | None
    """Seconds: mean delay of the answered queries that were sent in the measured time. Null without any."""
    p50_delay_s: Amount | None
    """Seconds: median of the same delays."""
    p95_delay_s: Amount | None
    """Seconds: 95th percentile of the same delays."""
    p99_delay_s: Amount | None
    """Seconds: 99th percentile of the same delays."""
    overshoot_s: Amount | None
    """Seconds: highest mean delay of any second after the event. Null without an event or without answers
    after it."""
    settling_s: Amount | None
    """Seconds from the event to the end of the last second whose mean delay is above the SLA; the whole
    rest of the run if it did not settle."""
    settled: bool | None
    """Whether, after the last second above the SLA, there are seconds with answers within it. Null if
    settling_s is."""
    refused_fraction: Share
    """Share of the queries sent in the measured time that were refused at once, 0 to 1."""
    error_fraction: Share
    """Share of the same queries that failed or were unfinished at the end, 0 to 1."""
    cache_hit_ratio: Share | None
    """Share of the rows read in the measured time that were in the nodes' caches, 0 to 1; null when none
    was read."""
    node_shares: Some[dict[str, Share]]
    """Per node: its share of the items answered in the measured time, 0 to 1; all 0 without answers."""
    generator_lag_s: Amount
    """Seconds: 99th percentile of how late the generator's timers fired."""
    timely_of_ideal: Amount | None
    """Ratio: timely over ideal items of the measured time. Above 1 where work queued before it was
    answered in it. Null without an ideal."""
    timely_of_ideal_after_event: Amount | None
    """Ratio: the same from 5 s after the event. Null without seconds or an ideal there."""
    node_shares_settled: Some[dict[str, Share]]
    """node_shares from 10 s after the event."""
    capacity_shares_settled: Some[dict[str, Share]]
    """Per node: its share of the summed capacity in the same seconds, 0 to 1."""
    max_share_deviation: Amount | None
    """Ratio: the largest |node share / capacity share - 1| of those. Null without answers or capacity
    there."""
    failover: Failover | None
    updates: Updates | None
    removal: Removal | None
    requests: Count
    """Queries sent in the measured time."""
    transactions: Transactions
    placement: Placement | None
    phases: Some[list[Phase]] | None
    proxy_cpu_share: Amount
    """Cores all proxies together used while the clients ran; 1 is one core."""
    generator_cpu_share: Amount
    """Cores the generator used; 1 is one core."""
    generator_limited: bool
    """Whether the run violates generator_rule, so that the generator may have limited the figures."""
    measured_from_s: Amount
    """Seconds since the clients started: begin of the measured time."""
    measured_to_s: Amount
    """Seconds since the clients started: end of the measured time."""
    event_s: Amount | None
    """Seconds since the clients started: the event. Null without one."""
    event: str | None
    """Description of the event."""
    settings: dict[str, str | float]
    """Settings of the example that were changed, by loadtests/policies.toml or a sweep."""
    series: Series


class Machine(Record):
    """Machine and versions of programs."""

    cpu: str
    """Model."""
    cores: Count
    """Cores the lab could use."""
    memory: str
    """Memory, with its unit."""
    kernel: str
    """Release."""
    haproxy: str
    """Version."""
    envoy: str
    """Version; empty where there is none."""
    k6: str
    """Version."""


class Summary(Record):
    """Figures of a run directory, per policy; docs/lab-results.md has the formulas. Times are in seconds,
    work in data items."""

    scenario: str
    """burst, removal, heterogeneous, mix, phases, updates, placement, placement-even, rejoin,
    balancer-failover, redis-failover or aggregator-failover. With an application: overload, slow-node,
    pause, kill, steady or nominal."""
    capacity: Capacity | None
    sla_seconds: Annotated[float, Gt(0)]
    """Seconds: delay of the SLA."""
    runs: Some[list[Run]]
    """One entry per policy, in the order they ran."""
    seed: Count
    """Seed of nodes and clients."""
    quick: bool
    """Whether it was a short run (QUICK=1)."""
    clients: Count
    """Closed-loop clients."""
    nodes: Count
    """Nodes behind the proxy."""
    proxies: Count
    """Proxies in front of them."""
    database: str
    """Database of the nodes: sqlite, or postgres with its version."""
    machine: Machine
    started: str
    """Start of the run, ISO 8601, UTC."""
    command: str
    """The command that made the run."""
    generator_rule: str
    """Condition for a run to count as limited by the generator."""


def main() -> None:
    # A report is made without it.
    from pydantic import TypeAdapter

    print(json.dumps(TypeAdapter(Summary).json_schema(), indent=1))


if __name__ == "__main__":
    main()
