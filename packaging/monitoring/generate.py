"""Generate ``prometheus-rule.yaml`` and ``dashboard.json`` from the alert rules and the metrics.

``python3 packaging/monitoring/generate.py`` writes both; a test compares them with what it would write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

HERE: Final = Path(__file__).resolve().parent
RULES: Final = HERE / "openperouter-rules.yaml"
PROMETHEUS_RULE: Final = HERE / "prometheus-rule.yaml"
DASHBOARD: Final = HERE / "dashboard.json"
NAMESPACE: Final = "openperouter-system"
WIDTH: Final = 24
HEIGHT: Final = 8
#: The data source that is chosen in the dashboard.
SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
#: Panels of a node; each expression's series are of the nodes that are selected.
NODES: Final = '{instance=~"$instance"}'

Json = dict[str, Any]

#: Title, unit, and the expressions with their legends; a row is what has no expression.
PANELS: Final[tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]] = (
    ("State", "", ()),
    ("Nodes ready", "bool", (("openperouter_ready$", "{{instance}}"),)),
    ("Failing resources", "short", (("openperouter_failed_resources$", "{{instance}}"),)),
    (
        "Configuration behind, generations",
        "short",
        (("openperouter_desired_generation$ - openperouter_applied_generation$", "{{instance}}"),),
    ),
    ("Age of the status", "s", (("time() - openperouter_status_timestamp_seconds$", "{{instance}}"),)),
    ("Fabric and hosts", "", ()),
    ("BGP sessions up", "bool", (("openperouter_bgp_session_up$", "{{instance}} {{vrf}} {{peer}}"),)),
    (
        "Prefixes received",
        "short",
        (("openperouter_bgp_session_prefixes_received$", "{{instance}} {{vrf}} {{peer}} {{afi}}"),),
    ),
    (
        "Sessions lost",
        "short",
        (("increase(openperouter_bgp_session_flaps_total$[5m])", "{{instance}} {{vrf}} {{peer}}"),),
    ),
    ("VNIs that work", "bool", (("openperouter_vni_ok$", "{{instance}} {{vni}}"),)),
    ("Remote tunnel endpoints", "short", (("openperouter_vni_remote_vteps$", "{{instance}} {{vni}}"),)),
    (
        "EVPN routes received",
        "short",
        (("openperouter_vni_evpn_routes_received$", "{{instance}} {{vni}} type {{route_type}}"),),
    ),
    (
        "EVPN routes advertised",
        "short",
        (("openperouter_vni_evpn_routes_advertised$", "{{instance}} {{vni}} type {{route_type}}"),),
    ),
    ("Underlay interfaces up", "bool", (("openperouter_interface_up$", "{{instance}} {{interface}}"),)),
    ("Applying", "", ()),
    (
        "Passes, 95th percentile",
        "s",
        (
            (
                "histogram_quantile(0.95, sum by (instance, phase, le) "
                "(rate(openperouter_reconcile_duration_seconds_bucket$[5m])))",
                "{{instance}} {{phase}}",
            ),
        ),
    ),
    (
        "Drift found and failures of FRR",
        "short",
        (
            ("increase(openperouter_drift_detected_total$[5m])", "{{instance}} drift {{phase}}"),
            ("increase(openperouter_frr_reload_failures_total$[5m])", "{{instance}} FRR"),
        ),
    ),
    (
        "Writes",
        "ops",
        (
            ("sum by (instance, result) (rate(openperouter_netlink_ops_total$[5m]))", "{{instance}} kernel {{result}}"),
            ("rate(openperouter_frr_writes_total$[5m])", "{{instance}} FRR {{result}}"),
        ),
    ),
    ("Restarts of actors", "short", (("increase(openperouter_actor_restarts_total$[5m])", "{{instance}} {{actor}}"),)),
    ("The API server", "", ()),
    (
        "Reachable, followed",
        "bool",
        (
            ("openperouter_api_reachable$", "{{instance}} reachable"),
            ("openperouter_api_followed$", "{{instance}} followed"),
        ),
    ),
    (
        "Credentials end in",
        "s",
        (("openperouter_api_credentials_expiry_timestamp_seconds$ - time()", "{{instance}}"),),
    ),
    (
        "Errors",
        "short",
        (
            ("increase(openperouter_api_write_errors_total$[5m])", "{{instance}} {{verb}} {{reason}}"),
            ("increase(openperouter_watch_restarts_total$[5m])", "{{instance}} watch {{reason}}"),
        ),
    ),
)


def prometheus_rule() -> str:
    """Return the rules as an object for Prometheus' operator."""
    labels = {"app.kubernetes.io/name": "openperouter"}
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "openperouter", "namespace": NAMESPACE, "labels": labels},
        "spec": yaml.safe_load(RULES.read_text()),
    }
    head = "# Generated from openperouter-rules.yaml by packaging/monitoring/generate.py; do not edit.\n"
    return head + yaml.safe_dump(document, sort_keys=False, width=120)


def dashboard() -> str:
    """Return the dashboard as Grafana imports it."""
    document = {
        "title": "openperouter",
        "uid": "openperouter",
        "schemaVersion": 39,
        "tags": ["openperouter"],
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus", "label": "Data source"},
                {
                    "name": "instance",
                    "type": "query",
                    "label": "Node",
                    "datasource": SOURCE,
                    "query": "label_values(openperouter_ready, instance)",
                    "refresh": 2,
                    "includeAll": True,
                    "multi": True,
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": list(panels()),
    }
    return json.dumps(document, indent=1) + "\n"


def panels() -> Iterator[Json]:
    """Yield the panels, two beside one another, below the titles of their rows."""
    x = y = 0
    for number, (title, unit, expressions) in enumerate(PANELS, 1):
        if not expressions:
            y += HEIGHT if x else 0
            yield {"id": number, "type": "row", "title": title, "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y}}
            x, y = 0, y + 1
            continue
        yield {
            "id": number,
            "type": "timeseries",
            "title": title,
            "datasource": SOURCE,
            "gridPos": {"h": HEIGHT, "w": WIDTH // 2, "x": x, "y": y},
            "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
            "targets": [
                {"refId": letter, "datasource": SOURCE, "expr": query.replace("$", NODES), "legendFormat": legend}
                for letter, (query, legend) in zip("ABC", expressions, strict=False)
            ],
        }
        x, y = (0, y + HEIGHT) if x else (WIDTH // 2, y)


def main() -> None:
    """Write both files."""
    PROMETHEUS_RULE.write_text(prometheus_rule())
    DASHBOARD.write_text(dashboard())


if __name__ == "__main__":
    main()
