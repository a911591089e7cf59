"""``openperouter metrics``: the pod that serves a node's metrics inside the cluster."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ...options import add_verb


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "metrics",
        run,
        summary="in a pod: serve the metrics of the node's daemon",
        description="Run in a pod of a DaemonSet (packaging/kubernetes/metrics): serve the file that the host's daemon "
        "writes, at /metrics. Without a readable file the answer is 503 with the reason. Runs until SIGTERM.",
    )
    parser.add_argument(
        "--file",
        type=Path,
        default=Path("/run/openperouter/metrics/openperouter.prom"),
        metavar="FILE",
        help="the daemon's metrics, in a mounted directory of the host (default: "
        "/run/openperouter/metrics/openperouter.prom)",
    )
    parser.add_argument("--port", type=int, default=9473, metavar="PORT", help="the port to serve (default: 9473)")


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal."""
    import trio

    from supervisor.logs.logger import configure
    from supervisor.operations.cluster.node_metrics import NodeMetrics
    from supervisor.operations.exit_codes import USAGE, CommandError

    if not 0 < arguments.port < 65536:
        raise CommandError("--port: must be between 1 and 65535", USAGE)
    configure("info")
    return trio.run(NodeMetrics(arguments.file, arguments.port).serve)
