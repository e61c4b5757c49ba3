"""SLA overview: does the SLA hold now, what is left of the error budget, and which node is late and why."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.parts import (
    BURN_STEPS,
    GREEN,
    NONE_STEPS,
    OBJECTIVE,
    ORANGE,
    RED,
    RESULT_COLORS,
    SLA_STEPS,
    TIMELY_STEPS,
    Column,
    Query,
    agent_variables,
    agents,
    alerts,
    by,
    graph,
    number,
    of,
    rate,
    rows,
    start,
    with_panels,
)

NODE_LINK = (
    "/d/plimsoll-node?var-instance=${__data.fields.Node}&var-service=${__data.fields.Service}"
    "&${__url_time_range}"
)
KEYS = "instance, service"
# Texts of the controller's reasons: the cause, and the effect on the bound.
REASONS = {
    "start": "just started",
    "open": "nothing has waited yet: not limited",
    "burst": "room for a burst, at the rate learned",
    "standing": "overload, queue stood: lowered",
    "starved": "less done with fewer: raised",
    "blind_source": "waiting that the source misses: by jobs",
    "source_late": "source answers late: lowered",
    "source_lost": "source lost: held",
    "fixed": "fixed by hand or configuration",
    "stalled": "nothing ends: halved",
    "empty": "no requests: held",
    "idle_drift": "no requests: drifts to nominal",
    "few_samples": "few requests: held",
    "errors": "errors: lowered",
    "late_signal": "waiting work will be late: lowered",
    "over_bound": "more inside than let in: held low",
    "unused": "far above the load: drawn down",
    "recovering": "light load: drawn back up",
    "light_load": "light load: held",
    "under_sla": "under the target: raised",
    "over_sla": "over the target: lowered",
    "rising": "under the target, slowing: lowered",
    "falling": "over the target, recovering: raised",
    "mpl": "more jobs would not do more: held there",
    "at_min": "over the target: at its minimum",
    "at_max": "under the target: at its maximum",
}


def timely(window: str = "$__rate_interval", function: str = "rate", keys: str = "") -> str:
    """The share of requests that were timely; nothing where there were none."""
    grouped = f"sum by ({keys})" if keys else "sum"
    good, every = of("plimsoll_requests_total", 'result="timely"'), of("plimsoll_requests_total")
    return f"{grouped} ({function}({good}[{window}])) / ({grouped} ({function}({every}[{window}])) > 0)"


def burn(window: str, function: str = "rate") -> str:
    """Burn rate of the error budget, as a multiple of the allowed one."""
    return f"(1 - {timely(window, function)}) / {1 - OBJECTIVE:g}"


def late(percentile: str = "p95") -> str:
    """A percentile of the delay as a share of the SLA's."""
    delay = by(KEYS, of("plimsoll_delay_seconds", f'percentile="{percentile}"'), "max")
    return f"{delay} / {by(KEYS, of('plimsoll_sla_delay_seconds'), 'max')}"


def reason() -> str:
    """The most frequent reason of the controller's steps."""
    steps = by(f"{KEYS}, reason", f"increase({of('plimsoll_steps_total')}[$__rate_interval])")
    return f"topk by ({KEYS}) (1, {steps}) > 0"


def holds() -> str:
    """Whether each service meets its SLA's share of timely requests; with a mean SLA, the objective's."""
    quantile = by("service", of("plimsoll_sla_objective_ratio"), "max")
    otherwise = f"{OBJECTIVE} * ({by('service', of('plimsoll_sla_delay_seconds'), 'max')} > bool 0)"
    return f"min(({timely(keys='service')}) >= bool on (service) ({quantile} or {otherwise}))"


def silent() -> str:
    """Agents that do not answer: where all jobs are chosen, those that have agents."""
    return f"{agents('up')} == 0 and on (job) last_over_time({agents('plimsoll_build_info')}[1h])"


def share(part: str, whole: str) -> str:
    return f"{by(KEYS, of(part), 'max')} / {by(KEYS, of(whole), 'max')}"


def dashboard() -> Dashboard:
    made = start(
        "plimsoll-sla",
        "Plimsoll / SLA overview",
        "Does the SLA hold now, what is left of the error budget, and which node is late and why.",
        agent_variables(),
    )
    made = made.annotation(alerts())
    goal = f"{OBJECTIVE:.0%}"
    made = with_panels(
        made,
        number(
            "SLA holds",
            "Whether as many of the requests that ended just now were timely as the agents' SLA promises: "
            f"95% unless set, {goal} where it is a mean.",
            "bool_yes_no",
            Query(holds()),
            steps=[(None, RED), (1, GREEN)],
            absent="no traffic",
            words={"0": ("NO", RED), "1": ("YES", GREEN)},
        ),
        number(
            "Timely",
            "Share of the requests that ended within the SLA's delay. Late ones and failures count against "
            f"it, what a proxy refused does not. Green from the objective, {goal}.",
            "percentunit",
            Query(timely()),
            steps=TIMELY_STEPS,
            absent="no traffic",
        ),
        number(
            "Error budget left",
            f"Of the {1 - OBJECTIVE:.0%} of requests that may be late or fail, the share not yet spent in "
            "the time shown. Below zero the objective is missed.",
            "percentunit",
            Query(f"1 - {burn('$__range', 'increase')}"),
            steps=[(None, RED), (0, ORANGE), (0.25, GREEN)],
            absent="no traffic",
        ),
        number(
            "Burn rate",
            "How many times faster than allowed the error budget is being spent: 1 uses it up exactly.",
            "none",
            Query(burn("$__rate_interval")),
            steps=BURN_STEPS,
            absent="no traffic",
        ),
        number(
            "Late nodes",
            "Nodes whose 95th percentile of delay is over the SLA.",
            "none",
            Query(f"count(({late()}) > 1) or vector(0)"),
            steps=NONE_STEPS,
        ),
        number(
            "Silent agents",
            "Agents that Prometheus cannot scrape. HAProxy keeps a dead agent's last word.",
            "none",
            Query(f"count({silent()}) or vector(0)"),
            steps=NONE_STEPS,
        ),
        rows(
            "Which node, and why",
            "A row a node, the latest first. The reason is that of most of the controller's last steps; "
            "docs/control.md has them all. A backlog at its bound means that the node is as full as it may "
            'be, one far over it that a proxy does not obey, or that none is told (`mode = "observe"`). '
            "Last seen: when the agent last observed it.",
            {"instance": "Node", "service": "Service"},
            Column("p95 / SLA", late(), "percentunit", SLA_STEPS),
            Column("Timely", timely(keys=KEYS), "percentunit", TIMELY_STEPS, width=90),
            Column("Reason", reason(), label="reason", words=REASONS, width=240),
            Column(
                "Backlog / bound",
                share("plimsoll_backlog", "plimsoll_bound"),
                "percentunit",
                [(None, "transparent"), (1.25, ORANGE)],
            ),
            Column("Bound / nominal", share("plimsoll_bound", "plimsoll_bound_nominal"), "percentunit"),
            Column("Weight", by(KEYS, of("plimsoll_weight_percent"), "max"), "percent", width=90),
            Column(
                "Last seen",
                f"time() - {by(KEYS, of('plimsoll_source_last_success_timestamp_seconds'), 'max')}",
                "s",
                [(None, GREEN), (5, ORANGE), (30, RED)],
                width=100,
            ),
            link=NODE_LINK,
        ),
        graph(
            "Timely share",
            f"Share of the requests that ended within the SLA's delay, by service. The lines are "
            f"95% and the objective, {goal}.",
            "percentunit",
            Query(timely(keys="service"), "{{service}}"),
            steps=TIMELY_STEPS,
            least=0.9,
        ),
        graph(
            "Delay, of the SLA",
            "95th percentile of the service delay in each agent's last period, as a share of the SLA. The "
            "line at 100% is the SLA.",
            "percentunit",
            Query(late(), "{{instance}} {{service}}"),
            steps=SLA_STEPS,
        ),
    )
    result = by("result", rate(of("plimsoll_requests_total")))
    return with_panels(
        made,
        graph(
            "Requests by result",
            "Requests that ended: within the SLA's delay, over it, or in an error. Refusals are on the "
            "proxies' dashboard.",
            "reqps",
            Query(result, "{{result}}"),
            stacked=True,
            colors=RESULT_COLORS,
        ),
        graph(
            "Burn rate over time",
            "How many times faster than allowed the error budget is spent, over the windows that the alerts "
            "look at.",
            "none",
            Query(burn("5m"), "5 min"),
            Query(burn("1h"), "1 h"),
            Query(burn("6h"), "6 h"),
            steps=BURN_STEPS,
        ),
    )
