"""`python -m dashboards.tests.recorded_run URL POLICY...`: keeps what the guide needs of a lab run.

That is the series which docs/observability.md asks for, thinned to a sample in five seconds, as promtool's
tests take them: so the guide's figures and the alerts are tried on the run without a Prometheus.
"""

import sys
from itertools import groupby
from pathlib import Path

import yaml

from dashboards.preview.recording import Prometheus, Span

FILE = Path(__file__).with_name("recorded_run.yaml")
STEP_SECONDS = 5
SERIES = (
    'plimsoll_requests_total{instance=~"node.*"}',
    'plimsoll_delay_seconds{percentile="p95"}',
    "plimsoll_sla_delay_seconds",
    "plimsoll_backlog",
    "plimsoll_bound",
    "plimsoll_bound_nominal",
    'plimsoll_bound_changes_total{instance="node1"} > 0',
    "plimsoll_weight_percent",
    'haproxy_server_limit_sessions{proxy="queries"} > 0',
    'haproxy_server_current_sessions{proxy="queries"}',
    'haproxy_backend_http_responses_total{proxy="queries",code="5xx"}',
)
# Told by the file's place, or by nothing that a rule asks for.
DROPPED = ("__name__", "node", "proxy")


def notation(samples: dict[int, str], count: int) -> str:
    """Samples by number, as promtool reads them: `axn` is a value and n more, `_xn` n that are missing."""
    last = max(samples)
    listed = [samples.get(at, "_" if at < last else "stale") for at in range(min(count, last + 2))]
    told = []
    for value, same in groupby(listed):
        more = len(list(same)) - (value != "_")
        told.append(f"{value}x{more}" if more else value)
    return " ".join(told)


def main() -> None:
    source = Prometheus(sys.argv[1])
    runs = source.get("query", query=f'lab_sla_seconds{{policy=~"{"|".join(sys.argv[2:])}"}}[7d]')["result"]
    times = [at for run in runs for at, _ in run["values"]]
    span = Span(min(times), max(times), scrape=STEP_SECONDS)
    count = int((span.end - span.start) // STEP_SECONDS) + 1
    kept = []
    for selector in SERIES:
        name = selector.split("{")[0].split()[0]
        for series in source.over(selector, span):
            samples = {
                round((at - span.start) / STEP_SECONDS): f"{float(value):.7g}"
                for at, value in series["values"]
            }
            labels = {key: value for key, value in series["metric"].items() if key not in DROPPED}
            told = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
            kept.append({"series": f"{name}{{{told}}}", "values": notation(samples, count)})
    FILE.write_text(yaml.safe_dump({"interval": f"{STEP_SECONDS}s", "input_series": kept}, width=1_000_000))


if __name__ == "__main__":
    main()
