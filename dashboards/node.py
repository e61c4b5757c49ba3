"""Node: delay against the SLA, bound and backlog, why the bound moved, and what the agent works with."""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from dashboards.parts import (
    BLUE,
    NONE_STEPS,
    ORANGE,
    RESULT_COLORS,
    SLA_STEPS,
    Annotation,
    Query,
    agent_variables,
    agents,
    alerts,
    by,
    distribution,
    graph,
    number,
    of,
    rate,
    start,
    with_panels,
)
from dashboards.sla import KEYS, late

EACH = "{{instance}} {{service}}"


def as_obeyed(expr: str, name: str) -> Query:
    """By another name for services that are only observed."""
    observed = f"{by(KEYS, of('plimsoll_observes'), 'max')} == 1"

    def named(chosen: str, name: str) -> str:
        return f'label_replace({chosen}, "as", "{name}", "", "")'

    every = named(f"({expr}) unless {observed}", name)
    would = named(f"({expr}) and {observed}", f"{name}, if obeyed")
    return Query(f"{every} or {would}", f"{EACH} {{{{as}}}}")


def most(metric: str, name: str = "") -> Query:
    return Query(by(KEYS, of(metric), "max"), f"{EACH} {name}".strip())


def dashboard() -> Dashboard:
    made = start(
        "plimsoll-node",
        "Plimsoll / Node",
        "Delay against the SLA, bound and backlog, why the bound moved, and what the agent works with.",
        agent_variables(),
    )
    made = made.annotation(alerts())
    known = by(KEYS, of("plimsoll_mean_delay_seconds"), "max")
    reloads = agents("plimsoll_config_reloads_total", 'result="applied"')
    made = made.annotation(
        Annotation("Reloads", f"increase({reloads}[$__rate_interval]) > 0", BLUE, "{{instance}}: reload")
    )
    made = with_panels(
        made,
        number(
            "Delay, of the SLA",
            "The worst 95th percentile among the nodes chosen, as a share of the SLA.",
            "percentunit",
            Query(f"max({late()})"),
            steps=SLA_STEPS,
            absent="no traffic",
        ),
        number(
            "Backlog / bound",
            "How full the fullest of the nodes chosen is.",
            "percentunit",
            Query(f"max({of('plimsoll_backlog')} / {of('plimsoll_bound')})"),
            steps=[(None, BLUE)],
            absent="jobs unknown",
        ),
        number(
            "Jobs now",
            "Requests in the nodes chosen.",
            "none",
            Query(f"sum({of('plimsoll_jobs')})"),
            steps=[(None, BLUE)],
        ),
        number(
            "Bound at its least",
            "Nodes whose bound cannot fall any further.",
            "none",
            Query(f"count({of('plimsoll_bound')} <= {of('plimsoll_bound_min')}) or vector(0)"),
            steps=NONE_STEPS,
        ),
        number(
            "Down",
            "Services that do not pass the probe of their node.",
            "none",
            Query(f"count({of('plimsoll_service_up')} == 0) or vector(0)"),
            steps=NONE_STEPS,
        ),
        number(
            "Set by hand",
            "Overrides by operators that are in force: drain, health, weight or bound.",
            "none",
            Query(f"sum({of('plimsoll_override')}) or vector(0)"),
            steps=[(None, BLUE), (1, ORANGE)],
        ),
        graph(
            "Delay against the SLA",
            "Percentiles of the requests that finished in the last period that had any. Dashed: the SLA, and "
            "what the controller aims at.",
            "s",
            Query(
                by(f"{KEYS}, percentile", of("plimsoll_delay_seconds"), "max"), f"{EACH} {{{{percentile}}}}"
            ),
            Query(by("service", of("plimsoll_sla_delay_seconds"), "max"), "SLA {{service}}"),
            Query(by("service", of("plimsoll_sla_target_seconds"), "max"), "target {{service}}"),
            lines="^(SLA|target) .*",
        ),
        graph(
            "Bound and backlog",
            "The most work that the node may hold, and what it holds, in cost units; if obeyed: that of a "
            "service that is only observed. Dashed: the least that the bound may be, and what it is while "
            "nothing is known.",
            "short",
            as_obeyed(by(KEYS, of("plimsoll_bound"), "max"), "bound"),
            most("plimsoll_backlog", "backlog"),
            most("plimsoll_recent_peak", "recent peak"),
            Query(by("service", of("plimsoll_bound_min"), "max"), "least {{service}}"),
            Query(by("service", of("plimsoll_bound_nominal"), "max"), "nominal {{service}}"),
            lines="^(least|nominal) .*",
        ),
        graph(
            "Why the bound moved",
            "Steps that moved the bound, by reason; docs/control.md has them all.",
            "cps",
            Query(f"{by('reason', rate(of('plimsoll_bound_changes_total')))} > 0", "{{reason}}"),
            stacked=True,
        ),
        graph(
            "Controller steps",
            "All steps of the controller, by reason, also those that left the bound as it was.",
            "cps",
            Query(f"{by('reason', rate(of('plimsoll_steps_total')))} > 0", "{{reason}}"),
            stacked=True,
        ),
        graph(
            "Jobs",
            "Requests in the node, and how many the bound comes to at their mean cost, once that is known.",
            "short",
            most("plimsoll_jobs", "jobs"),
            as_obeyed(f"{by(KEYS, of('plimsoll_bound_jobs'), 'max')} and {known}", "bound"),
        ),
        graph(
            "Requests by result",
            "Requests that ended within the SLA's delay, over it, or in an error, by node.",
            "reqps",
            Query(by("instance, result", rate(of("plimsoll_requests_total"))), "{{instance}} {{result}}"),
            stacked=True,
            colors=RESULT_COLORS,
        ),
        graph(
            "Only observed",
            'Services with `mode = "observe"`: no proxy is told what is shown of them.',
            "none",
            Query(f"{by(KEYS, of('plimsoll_observes'), 'max')}", EACH),
        ),
        graph(
            "Would be refused",
            "What the bound would have had refused of services that are only observed, in cost units, beside "
            "the requests that ended.",
            "cps",
            Query(by(KEYS, rate(of("plimsoll_would_refuse_total"))), f"{EACH} would be refused"),
            Query(by(KEYS, rate(of("plimsoll_requests_total"))), f"{EACH} ended"),
        ),
    )
    buckets = by("le", f"increase({of('plimsoll_service_delay_seconds_bucket')}[$__rate_interval])")
    made = with_panels(
        made,
        distribution(
            "Service delay",
            "How many requests took how long, over all nodes chosen.",
            Query(buckets, "{{le}}"),
        ),
        graph(
            "Error",
            "What the control law last worked on, relative to the target: positive when there is room.",
            "percentunit",
            most("plimsoll_error_ratio"),
        ),
    )
    made = made.with_row(Row("What the agent works with"))
    return with_panels(
        made,
        graph(
            "Age of the last observation",
            "Time since the source of delays last gave an observation. Without one the bound is held, not "
            "controlled.",
            "s",
            Query(
                f"time() - {by(KEYS, of('plimsoll_source_last_success_timestamp_seconds'), 'max')}",
                EACH,
            ),
            width=8,
        ),
        graph(
            "Failed observations",
            "Observations that failed, by kind.",
            "cps",
            Query(by("instance, kind", rate(of("plimsoll_source_failures_total"))), "{{instance}} {{kind}}"),
            width=8,
        ),
        graph(
            "Mean cost",
            "Mean cost of a request, smoothed: what turns jobs into backlog.",
            "short",
            most("plimsoll_mean_cost"),
            width=8,
        ),
        graph(
            "Weight",
            "What the proxies are told, in percent of the weight that they have configured; if obeyed: what "
            "they would be told.",
            "percent",
            as_obeyed(by(KEYS, of("plimsoll_weight_percent"), "max"), "weight"),
            width=8,
        ),
        graph(
            "Agent checks",
            "What HAProxy was answered, by kind.",
            "cps",
            Query(by("instance, answer", rate(of("plimsoll_agent_checks_total"))), "{{instance}} {{answer}}"),
            width=8,
        ),
        graph(
            "Proxies that ask",
            "HAProxys with a lease: the bound is divided by them.",
            "short",
            most("plimsoll_proxies"),
            width=8,
        ),
    )
