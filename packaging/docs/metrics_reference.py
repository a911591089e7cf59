"""Write ``docs/metrics.md`` from the metrics' descriptions and the alert rules, so that it cannot differ from them.

``python3 packaging/docs/metrics_reference.py`` prints it; ``--write`` replaces the file; a test compares both.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from print_or_write import print_or_write  # noqa: E402

from actors.lib.metrics.counters import BUCKETS  # noqa: E402
from actors.lib.metrics.descriptions import (  # noqa: E402
    DESCRIPTIONS,
    MOST_FAILED,
    MOST_SESSIONS,
    MOST_VNIS,
    SECTIONS,
    Description,
)

TARGET: Final = ROOT / "docs" / "metrics.md"
RULES: Final = ROOT / "packaging" / "monitoring" / "openperouter-rules.yaml"

# ruff: noqa: E501 - the document below is prose in tables
INTRODUCTION: Final = """\
# Metrics

Generated from the descriptions by `packaging/docs/metrics_reference.py`; do not edit.

## How they are scraped

| way | setting | who can read |
|---|---|---|
| a file for node_exporter's textfile collector, written some seconds after a change and once a minute | none: `/var/lib/prometheus/node-exporter/openperouter.prom` if that directory is there when the daemon starts (Debian's `prometheus-node-exporter`), else `/run/openperouter/metrics/openperouter.prom`; `metricsFile` for another place, with a drop-in that has `ReadWritePaths=` for its directory | root, and the group of the directory; `prometheus` if the directory is root's |
| a unix socket, for an agent on the node | `metrics: {listen: "unix:/run/openperouter/metrics.sock"}` | root and its group |
| HTTP on a loopback address | `metrics: {listen: "http://127.0.0.1:9473"}` | everyone on the node |
| HTTPS | `metrics: {listen: "https://[::]:9473", certificate: FILE, key: FILE, clientAuthority: FILE}` | with `clientAuthority`, holders of a certificate that it signed; without it, everyone who reaches the port |
| a pod on each node, in the cluster's network | [below](#in-the-cluster) | who may connect to the pod |

By default the daemon opens no port or socket for metrics. Where it does, it serves `/metrics` and nothing else. The certificate's files are read again when they
change. They must be readable in the daemon's sandbox, which hides `/root`, `/home` and `/tmp`.

A file stays when its daemon dies: `openperouter_status_timestamp_seconds` is the time of its content, and an alert rule compares it with the clock.

### In the cluster

    kubectl apply -k /usr/share/openperouter/kubernetes/metrics

This is a DaemonSet of `openperouter metrics` (set the image as for the [hostbridge](cluster.md#the-hostbridge)), which serves the
daemon's file at `/metrics` on port 9473 of each pod. The node's `/run/openperouter/metrics`, which contains nothing else, is mounted
read-only, and the pod has no account. Without a file (the daemon never ran) the answer is 503 with the reason.

On nodes with node_exporter, the file is in its directory, and node_exporter already serves the metrics; to use the pods there
as well, set `metricsFile: /run/openperouter/metrics/openperouter.prom` on the nodes, or the chart's value `metrics.hostDirectory`.
After `openperouter` was purged and installed again, delete the pod on that node: it has the former directory.

`packaging/monitoring/pod-monitor.yaml` (the chart's `monitoring.podMonitor`) makes Prometheus' operator scrape the pods every half minute, with the node's name as `instance`. This is plain HTTP: the NetworkPolicy of
`kubernetes/network` (the chart's `networkPolicy.enabled`) lets only pods with the label `app.kubernetes.io/name: prometheus` connect; `networkPolicy.metricsFrom` names other peers.

`make test-image` runs the image with the DaemonSet's settings under podman and runc, and a Prometheus scrapes it with the PodMonitor's path and port (`tests/image`). Neither was run by a kubelet or by Prometheus' operator.

## How many series there are

Each metric has a limit (*at most*), in sets of label values; a histogram has {buckets} series for each. Sets beyond the limit are left out, and `openperouter_series_omitted` counts them. Sessions
of configured neighbours come first ({sessions} in total, dynamic ones last), then there are up to {vnis} VNIs and {failed} failing resources. The totals (`openperouter_bgp_sessions`,
`openperouter_vnis`, `openperouter_failed_resources`) count all. A node with 4 sessions and 20 VNIs has about 310 series. Labels are names that are configured, FRR's names of peers, and values from the
program's code: never messages or what a server sends, and no secret.
"""

RULES_INTRODUCTION: Final = """\
## Alerts

`/usr/share/openperouter/monitoring` has the rules for Prometheus (`openperouter-rules.yaml`), the same as a PrometheusRule for its
operator (`prometheus-rule.yaml`), [what to scrape](#in-the-cluster) (`pod-monitor.yaml`) and a dashboard for Grafana
(`dashboard.json`). The rules are tested with `promtool`. [Alerts](alerts.md) has what to do for each.

| alert | severity | after | meaning |
|---|---|---|---|
"""


def reference() -> str:
    """Return the whole document."""
    limits = {"buckets": len(BUCKETS) + 3, "sessions": MOST_SESSIONS, "vnis": MOST_VNIS, "failed": MOST_FAILED}
    introduction = INTRODUCTION
    for name, number in limits.items():
        introduction = introduction.replace(f"{{{name}}}", str(number))
    sections = (section(title, found) for title, found in SECTIONS.items())
    return "\n".join([introduction, *sections, RULES_INTRODUCTION + "\n".join(map(alert, alerts())) + "\n"])


def section(title: str, found: tuple[Description, ...]) -> str:
    """Return one section's heading and table."""
    table = ["| metric | type | labels | at most | meaning |", "|---|---|---|---|---|", *map(row, found)]
    return "\n".join([f"## {title}", "", *table, ""])


def row(one: Description) -> str:
    """Return a metric's line."""
    labels = ", ".join(f"`{label}`" for label in one.labels)
    return f"| `{one.full_name}` | {one.kind} | {labels} | {one.most} | {one.meaning} |"


def alerts() -> list[dict[str, Any]]:
    """Return the alert rules."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alert(rule: dict[str, Any]) -> str:
    """Return an alert's line."""
    meaning = f"{rule['annotations']['summary']} {rule['annotations']['description']}"
    return f"| [`{rule['alert']}`](alerts.md#{rule['alert'].lower()}) | {rule['labels']['severity']} | {rule.get('for', '0s')} | {plain(meaning)} |"


def plain(text: str) -> str:
    """Return a template of Prometheus as prose: a label by its name."""
    for label in {label for one in DESCRIPTIONS.values() for label in one.labels} | {"instance"}:
        text = text.replace(f"{{{{ $labels.{label} }}}}", f"*{label}*")
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(print_or_write(TARGET, reference()))
