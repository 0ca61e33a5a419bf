"""Dashboards as Grafana's JSON: the one place that knows its Foundation SDK."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from metrics.monitoring import promql
from metrics.monitoring.panels import Board, Look, Panel, Query
from metrics.monitoring.recording import recordings

if TYPE_CHECKING:
    from grafana_foundation_sdk.builders import dashboard

HEIGHTS = {Look.STAT: 4}
HEIGHT = 8
REFRESH = "5s"


def render(board: Board) -> str:
    """The dashboard's file. :class:`promql.Unknown` where a query names what the catalogue lacks."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder

    recorded = [one.name for one in recordings()]
    for panel in board.panels:
        for query in panel.queries:
            promql.check(query.expression, f"panel {panel.title!r} of {board.title!r}", recorded)
    built = _dashboard(board).build()
    raw: dict[str, Any] = {**json.loads(json.dumps(built, cls=JSONEncoder)), "id": None}
    return json.dumps(raw, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _dashboard(board: Board) -> dashboard.Dashboard:
    from grafana_foundation_sdk.builders import dashboard
    from grafana_foundation_sdk.models.dashboard import DashboardCursorSync

    made = dashboard.Dashboard(board.title).uid(board.uid).description(board.text).tags(["twinfold"]).readonly()
    made = made.tooltip(DashboardCursorSync.TOOLTIP).refresh(REFRESH).time("now-30m", "now").timezone("browser")
    for variable in _variables():
        made = made.with_variable(variable)
    ids = itertools.count(1)
    for row in board.rows:
        made = made.with_row(dashboard.Row(row.title).id(next(ids)))
        for panel in row.panels:
            made = made.with_panel(_panel(panel).id(next(ids)))
    return made


def _variables() -> Sequence[Any]:
    from grafana_foundation_sdk.builders import dashboard

    made: list[Any] = [dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")]
    for name, label, query in (
        ("job", "Job", "label_values(twinfold_gang_state, job)"),
        ("node", "Node", 'label_values(twinfold_memory_available_bytes{job=~"$job"}, node)'),
        ("model", "Model", 'label_values(twinfold_context_tokens{job=~"$job"}, model)'),
    ):
        made.append(_choice(name, label, query))
    return made


def _choice(name: str, label: str, query: str) -> Any:
    from grafana_foundation_sdk.builders import dashboard
    from grafana_foundation_sdk.models.dashboard import VariableRefresh, VariableSort

    asked: dict[str, object] = {"query": query, "refId": name}
    made = dashboard.QueryVariable(name).label(label).query(asked).datasource(_source()).multi(True).include_all(True)
    return made.all_value(".*").refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)


def _source() -> Any:
    from grafana_foundation_sdk.models.dashboard import DataSourceRef

    return DataSourceRef(type_val="prometheus", uid="${datasource}")


def _panel(panel: Panel) -> Any:
    from grafana_foundation_sdk.models.common import BigValueTextMode

    made = _drawn(panel.look).title(panel.title).description(panel.description).datasource(_source()).unit(panel.unit)
    made = made.span(panel.width).height(HEIGHTS.get(panel.look, HEIGHT))
    for number, query in enumerate(panel.queries):
        made = made.with_target(_target(query, "ABCDEFGH"[number], table=panel.look is Look.TABLE))
    if panel.limits:
        made = made.thresholds(_limits(panel.limits))
    if panel.look is Look.STATES:
        made = made.thresholds(_limits(((None, "transparent"), (1.0, "blue")))).color_scheme(_by_threshold())
    if panel.look is Look.STAT and any(query.legend for query in panel.queries):
        made = made.text_mode(BigValueTextMode.NAME)
    if panel.decimals is not None:
        made = made.decimals(panel.decimals)
    return made if panel.least is None else made.min(panel.least)


def _drawn(look: Look) -> Any:
    from grafana_foundation_sdk.builders import common, stat, statetimeline, table, timeseries
    from grafana_foundation_sdk.models import common as words

    if look is Look.STAT:
        reduce = common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
        return stat.Panel().reduce_options(reduce).text_mode(words.BigValueTextMode.AUTO).graph_mode(words.BigValueGraphMode.NONE)
    if look is Look.TABLE:
        return table.Panel().show_header(True)
    if look is Look.STATES:
        return statetimeline.Panel().show_value(words.VisibilityMode.NEVER).merge_values(True)
    lines = timeseries.Panel().line_width(1.5).fill_opacity(8).show_points(words.VisibilityMode.NEVER)
    lines = lines.tooltip(common.VizTooltipOptions().mode(words.TooltipDisplayMode.MULTI).sort(words.SortOrder.DESCENDING))
    if look is Look.STACKED:
        lines = lines.fill_opacity(40).stacking(common.StackingConfig().mode(words.StackingMode.NORMAL))
    return lines


def _target(query: Query, ref: str, *, table: bool) -> Any:
    from grafana_foundation_sdk.builders import prometheus
    from grafana_foundation_sdk.models.prometheus import PromQueryFormat

    made = prometheus.Dataquery().expr(query.expression).ref_id(ref).datasource(_source())
    if table:
        return made.instant().format(PromQueryFormat.TABLE)
    return made.legend_format(query.legend) if query.legend else made


def _limits(limits: Sequence[tuple[float | None, str]]) -> Any:
    from grafana_foundation_sdk.builders import dashboard
    from grafana_foundation_sdk.models.dashboard import Threshold, ThresholdsMode

    steps = [Threshold(value=value, color=colour) for value, colour in limits]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _by_threshold() -> Any:
    from grafana_foundation_sdk.builders import dashboard
    from grafana_foundation_sdk.models.dashboard import FieldColorModeId

    return dashboard.FieldColor().mode(FieldColorModeId.THRESHOLDS)
