"""Common parts of the dashboards: variables, links, queries and panels."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

# The share of requests that are to be timely; what may be late is the error budget.
OBJECTIVE = 0.99
TAG = "plimsoll"
DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
# An agent's series, and those of one of its services.
AGENT = 'cluster=~"$cluster",job=~"$job",instance=~"$instance"'
SERVICE = f'{AGENT},service=~"$service"'
PROXY = 'cluster=~"$cluster",instance=~"$proxy"'
GREEN, ORANGE, RED, BLUE = "green", "orange", "red", "blue"
# Within the SLA, close to it, over it; a delay as a share of the SLA's.
SLA_STEPS = [(None, GREEN), (0.9, ORANGE), (1.0, RED)]
# Below what agents promise unless told otherwise, below the objective, above it.
TIMELY_STEPS = [(None, RED), (0.95, ORANGE), (OBJECTIVE, GREEN)]
# The burn rates that alert.
BURN_STEPS = [(None, GREEN), (1.0, ORANGE), (6.0, RED)]
NONE_STEPS = [(None, GREEN), (1.0, RED)]
RESULT_COLORS = {"timely": GREEN, "late": ORANGE, "failed": RED}

Steps = list[tuple[float | None, str]]


@dataclass(frozen=True)
class Query:
    """PromQL, and what its series are called."""

    expr: str
    legend: str = ""


class Annotation(models.AnnotationQuery):
    """With the fields that are Prometheus' own, which the SDK does not know."""

    def __init__(self, name: str, expr: str, color: str, title: str, value_is_time: bool = False) -> None:
        super().__init__(name=name, expr=expr, icon_color=color, datasource=DATASOURCE)
        self._own = {"titleFormat": title, "useValueForTime": value_is_time}

    def build(self) -> models.AnnotationQuery:
        """It is its own builder."""
        return self

    def to_json(self) -> dict[str, object]:
        return super().to_json() | self._own


def alerts() -> Annotation:
    """Marks the alerts of rules/ while they fire."""
    firing = 'ALERTS{alertstate="firing",alertname=~"Plimsoll.+",cluster=~"$cluster"}'
    return Annotation("Alerts", firing, RED, "{{alertname}} {{instance}} {{service}}")


def chosen(metric: str, *matchers: str) -> str:
    return f"{metric}{{{','.join(matchers)}}}"


def agents(metric: str, *matchers: str) -> str:
    """A metric of the agents themselves."""
    return chosen(metric, AGENT, *matchers)


def of(metric: str, *matchers: str) -> str:
    """A metric of the agents' services."""
    return chosen(metric, SERVICE, *matchers)


def rate(series: str) -> str:
    return f"rate({series}[$__rate_interval])"


def by(labels: str, series: str, how: str = "sum") -> str:
    return f"{how} by ({labels}) ({series})"


def encoded(dashboard: builders.Dashboard) -> str:
    made = dashboard.build()
    for at, panel in enumerate(made.panels or [], start=1):
        panel.id_val = at
    # Grafana gives it one of its own: null, not absent, or an import takes the one of the file.
    return json.dumps({"id": None} | made.to_json(), cls=JSONEncoder, indent=1) + "\n"


def variable(
    name: str, query: str, label: str, description: str, every: str = ".+"
) -> builders.QueryVariable:
    chosen = models.VariableOption(selected=True, text="All", value="$__all")
    made = builders.QueryVariable(name).label(label).description(description).query(query)
    made = made.datasource(DATASOURCE).multi(True).include_all(True).all_value(every).current(chosen)
    return made.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(
        models.VariableSort.ALPHABETICAL_ASC
    )


def cluster_of(metric: str) -> builders.QueryVariable:
    # All also where there is no such label.
    return variable(
        "cluster", f"label_values({metric}, cluster)", "Cluster", "The label `cluster` of the targets.", ".*"
    )


def of_proxy(metric: str, *matchers: str) -> str:
    """A metric of the proxies chosen."""
    return chosen(metric, PROXY, *matchers)


def instances(name: str, metric: str, description: str) -> builders.QueryVariable:
    """The programs that show this metric."""
    known = f'{metric}{{cluster=~"$cluster"}}'
    return variable(name, f"label_values({known}, instance)", name.capitalize(), description)


def proxies(metric: str, description: str) -> builders.QueryVariable:
    return instances("proxy", metric, description)


def agent_variables(with_service: bool = True) -> list[builders.QueryVariable]:
    known = "plimsoll_build_info"
    made = [
        cluster_of(known),
        variable(
            "job",
            f'label_values({known}{{cluster=~"$cluster"}}, job)',
            "Job",
            "Prometheus' job for the agents.",
        ),
        variable(
            "instance",
            f'label_values({known}{{cluster=~"$cluster",job=~"$job"}}, instance)',
            "Instance",
            "Agents, one a node.",
        ),
    ]
    if with_service:
        known = f"plimsoll_bound{{{AGENT}}}"
        made.append(variable("service", f"label_values({known}, service)", "Service", "Services of a node."))
    return made


def start(
    uid: str, title: str, description: str, variables: Iterable[builders.QueryVariable]
) -> builders.Dashboard:
    made = builders.Dashboard(title).uid(uid).description(description).tags([TAG]).readonly()
    made = made.tooltip(models.DashboardCursorSync.CROSSHAIR).time("now-30m", "now").refresh("10s")
    made = made.with_variable(
        builders.DatasourceVariable("datasource")
        .label("Data source")
        .description("The Prometheus that scrapes the agents.")
        .type("prometheus")
    )
    for one in variables:
        made = made.with_variable(one)
    link = builders.DashboardLink("Plimsoll").type(models.DashboardLinkType.DASHBOARDS).tags([TAG])
    return made.link(link.keep_time(True).include_vars(True).icon("dashboard"))


def with_panels(made: builders.Dashboard, *panels: Any) -> builders.Dashboard:
    for panel in panels:
        made = made.with_panel(panel)
    return made


def _dressed(
    panel: Any, title: str, description: str, unit: str, queries: Iterable[Query], width: int
) -> Any:
    panel = panel.title(title).description(description).unit(unit).span(width).datasource(DATASOURCE)
    for number, query in enumerate(queries):
        target = prometheus.Dataquery().expr(query.expr).ref_id(chr(ord("A") + number))
        panel = panel.with_target(target.legend_format(query.legend or "__auto"))
    return panel


def _instant(panel: Any) -> Any:
    for target in panel.build().targets:
        target.instant, target.range_val = True, False
    return panel


def _thresholds(steps: Steps) -> builders.ThresholdsConfig:
    made = [models.Threshold(value=value, color=color) for value, color in steps]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(made)


def graph(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 12,
    height: int = 8,
    steps: Steps | None = None,
    stacked: bool = False,
    lines: str = "",
    least: float = 0,
    colors: dict[str, str] | None = None,
) -> timeseries.Panel:
    """Series over time, from `least` up.

    `lines` is a pattern of those that are limits and not measurements; `colors` are by the ends of names.
    """
    panel = _dressed(timeseries.Panel(), title, description, unit, queries, width).height(height)
    panel = panel.line_width(1).fill_opacity(30 if stacked else 5).axis_soft_min(least)
    panel = panel.show_points(options.VisibilityMode.NEVER)
    panel = panel.tooltip(
        common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(options.SortOrder.DESCENDING)
    )
    panel = panel.legend(
        common.VizLegendOptions()
        .display_mode(options.LegendDisplayMode.LIST)
        .placement(options.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL).group("A"))
    if steps:
        style = common.GraphThresholdsStyleConfig().mode(options.GraphThresholdsStyleMode.LINE_AND_AREA)
        panel = panel.thresholds(_thresholds(steps)).thresholds_style(style)
    for end, color in (colors or {}).items():
        fixed = models.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color})
        panel = panel.override_by_regexp(f"(.* )?{end}", [fixed])
    if lines:
        panel = panel.override_by_regexp(
            lines,
            [
                models.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [10, 10]}),
                models.DynamicConfigValue("custom.fillOpacity", 0),
                models.DynamicConfigValue("custom.stacking", {"mode": "none", "group": "B"}),
                models.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": RED}),
            ],
        )
    return panel


def number(
    title: str,
    description: str,
    unit: str,
    query: Query,
    *,
    width: int = 4,
    height: int = 4,
    steps: Steps,
    absent: str = "no data",
    words: dict[str, tuple[str, str]] | None = None,
) -> stat.Panel:
    """Panel of a current value; `words` maps values to a text and a colour."""
    panel = _dressed(stat.Panel(), title, description, unit, [query], width).height(height)
    panel = panel.thresholds(_thresholds(steps)).no_value(absent).graph_mode(options.BigValueGraphMode.NONE)
    panel = panel.color_mode(options.BigValueColorMode.BACKGROUND)
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields(""))
    if words:
        told = {
            value: models.ValueMappingResult(text=text, color=color, index=index)
            for index, (value, (text, color)) in enumerate(words.items())
        }
        panel = panel.mappings([models.ValueMap(options=told)])
    return _instant(panel)


def bars(
    title: str, description: str, unit: str, query: Query, *, width: int = 12, height: int = 8, steps: Steps
) -> bargauge.Panel:
    """A bar for each series, as of now."""
    panel = _dressed(bargauge.Panel(), title, description, unit, [query], width).height(height)
    panel = panel.thresholds(_thresholds(steps)).min(0).orientation(options.VizOrientation.HORIZONTAL)
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields(""))
    return _instant(panel)


def distribution(title: str, description: str, query: Query, *, width: int = 12) -> heatmap.Panel:
    """A histogram over time, delays in seconds."""
    panel = _dressed(heatmap.Panel(), title, description, "short", [query], width).height(8)
    for target in panel.build().targets:
        target.format_val = PromQueryFormat.HEATMAP
    color = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64)
    panel = panel.color(color.exponent(0.5).reverse(False).fill("dark-orange"))
    return panel.y_axis(heatmap.YAxisConfig().unit("s")).calculate(False)


@dataclass(frozen=True)
class Column:
    """A query's values in a table; `label` are those of a label instead, `words` what they are told by."""

    name: str
    expr: str
    unit: str = "short"
    steps: Steps | None = None
    label: str = ""
    words: dict[str, str] | None = None
    width: int = 0


def rows(
    title: str, description: str, keys: dict[str, str], *columns: Column, link: str = "", height: int = 8
) -> table.Panel:
    """A row for each combination of `keys`, labels and what they are called; `link` is for the first.

    The rows with the most in the first column come first.
    """
    queries = [Query(column.expr) for column in columns]
    panel = _dressed(table.Panel(), title, description, "short", queries, 24).height(height)
    for target in panel.build().targets:
        target.format_val = PromQueryFormat.TABLE
    names = {f"Value #{chr(ord('A') + at)}": column for at, column in enumerate(columns)}
    renamed = keys | {column.label or name: column.name for name, column in names.items()}
    hidden = {"Time": True} | {name: True for name, column in names.items() if column.label}
    order = {name: at for at, name in enumerate(renamed)}
    panel = panel.min_width(90).sort_by(
        [common.TableSortByFieldState().display_name(columns[0].name).desc(True)]
    )
    panel = panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    panel = panel.with_transformation(
        models.DataTransformerConfig(
            id_val="organize",
            options={"excludeByName": hidden, "renameByName": renamed, "indexByName": order},
        )
    )
    for column in columns:
        properties = [models.DynamicConfigValue("unit", column.unit)]
        if column.steps:
            properties += [
                models.DynamicConfigValue("thresholds", _thresholds(column.steps).build()),
                models.DynamicConfigValue("custom.cellOptions", {"type": "color-background"}),
            ]
        if column.words:
            told = {value: models.ValueMappingResult(text=text) for value, text in column.words.items()}
            properties.append(models.DynamicConfigValue("mappings", [models.ValueMap(options=told)]))
        if column.width:
            properties.append(models.DynamicConfigValue("custom.width", column.width))
        panel = panel.override_by_name(column.name, properties)
    if link:
        first = next(iter(keys.values()))
        there = {"title": "This node", "url": link}
        panel = panel.override_by_name(first, [models.DynamicConfigValue("links", [there])])
    return _instant(panel)
