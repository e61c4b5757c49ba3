"""report.html: what of a run is shown, in which order."""

from dataclasses import dataclass, field

from markupsafe import Markup

from loadtests.report import charts, html, phases, table
from loadtests.report.criteria import Criterion
from loadtests.report.records import Policy
from loadtests.report.schema import Summary


@dataclass(frozen=True)
class Section:
    """A row of charts; `colours` are those of names that the charts share."""

    heading: str
    charts: list[Markup]
    colours: dict[str, str] = field(default_factory=dict)


def control(policies: list[Policy]) -> list[Section]:
    """Nothing of a policy without agents."""
    return [
        Section(
            f"{policy.meta['policy']}: bound and weight per node over time",
            drawn,
            charts.node_colours(policy),
        )
        for policy in policies
        if (drawn := charts.control(policy))
    ]


def bars(summary: Summary) -> dict[str, str]:
    if any(run["placement"] for run in summary["runs"]):
        return {"heading": "Transactions per second", "chart": charts.transactions_bars(summary)}
    return {"heading": "Timely throughput against ideal", "chart": charts.timely_bars(summary)}


def curves(summary: Summary) -> list[Section]:
    if any(run["placement"] for run in summary["runs"]):
        return placement_curves(summary)
    if any(run["phases"] for run in summary["runs"]):
        timely = charts.over_time(summary, "timely_items_per_s", "mean requests/s", "Timely work over time")
        delay = charts.over_time(summary, "p95_delay_s", "seconds", "95th percentile of delay over time")
        return [
            Section(
                "Timely work over time, in mean requests/s (dashed: ideal; dotted: the load changes)", timely
            ),
            Section("95th percentile of what was served in a second (dashed: the SLA)", delay),
        ]
    timely = charts.over_time(summary, "timely_items_per_s", "items/s", "Timely items over time")
    delay = charts.over_time(summary, "mean_delay_s", "seconds", "Mean delay over time")
    return [
        Section("Timely items/s over time (dashed: ideal)", timely),
        Section("Mean delay of answered queries (dashed: the SLA)", delay),
    ]


def placement_curves(summary: Summary) -> list[Section]:
    done = charts.placed_over_time(summary, "transactions_per_s", "transactions/s", "Transactions over time")
    delay = charts.placed_over_time(summary, "mean_delay_s", "seconds", "Mean delay over time")
    sets = charts.sets_over_time(summary)
    return [
        Section(
            "Transactions/s over time (dashed: the best fixed placement; dotted: the first decision)", done
        ),
        Section("Object sets per node over time", sets, charts.node_names(summary)),
        Section("Mean delay of answered transactions (dashed: the SLA)", delay),
    ]


def relaxed(summary: Summary) -> list[Section]:
    drawn = charts.relaxed(summary)
    return [Section("Items with longer update periods than their own", drawn)] if drawn else []


def subject(summary: Summary) -> str:
    """Clients and nodes of the run, for the title."""
    if app := summary["runs"][0]["app"]:
        return f"{summary['nodes']} nodes of application {app}; {phases.capacity(summary)}"
    return f"{summary['clients']} clients, {summary['nodes']} nodes on {summary['database']}"


def render(summary: Summary, policies: list[Policy], checks: list[Criterion]) -> str:
    return html.template(html.SHARED / "lab.html").render(
        summary=summary,
        subject=subject(summary),
        event=next((run["event"] for run in summary["runs"] if run["event"] is not None), None),
        bars=bars(summary),
        tables=table.tables(summary),
        bests=phases.best_of_groups(summary),
        checks=[check.line() for check in checks],
        sections=[*curves(summary), *relaxed(summary), *control(policies)],
    )
