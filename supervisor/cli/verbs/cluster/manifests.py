"""``openperouter manifests``: what the cluster needs, as manifests, as a helm chart and as kustomizations."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from supervisor.operations import exit_codes

from ...options import StoreFile, add_verb

#: Those of supervisor.operations.cluster.manifests, whose import takes a second.
PARTS = ("crds", "nodes", "hostbridge", "router", "controller", "webhook", "metrics", "network", "monitoring")


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "manifests",
        run,
        summary="print what the cluster needs, or write a helm chart and kustomizations",
        description="Print the manifests of the cluster's side: crds (custom resource definitions), nodes (namespace, "
        "permissions, admission policies) and hostbridge (the pod that gives a node its credentials). Only if they are "
        "named: router (the daemon and FRR as a pod, for nodes without the package; its image is openperouter-router), "
        "controller (aggregates what the nodes report), webhook (refuses what no node could use), metrics (serves "
        "those of each node), network (NetworkPolicies for controller and metrics) and monitoring (alert rules and "
        "what to scrape for Prometheus' operator, the dashboard for Grafana's sidecar). "
        "Works on any machine, without a server.",
    )
    parser.add_argument(
        "part", nargs="?", choices=PARTS, metavar="PART", help="only this one (default: crds, nodes and hostbridge)"
    )
    parser.add_argument("--image", default="", metavar="IMAGE", help="the pods' image, with a tag or a digest")
    parser.add_argument(
        "--api-server",
        default="service",
        metavar="WHERE",
        help="where the host reaches the API server, as for hostbridge (default: service)",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--helm-values", action="store_true", help="print the helm chart's values with their defaults")
    instead.add_argument(
        "--write",
        type=Path,
        action=StoreFile,
        metavar="DIRECTORY",
        help="write the helm chart (chart) and the kustomizations (kustomize) below a new directory",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print or write."""
    from supervisor.operations.cluster import manifests

    if arguments.write:
        manifests.write(arguments.write)
        for name in ("chart", "kustomize"):
            print(f"written: {arguments.write / name}")
    elif arguments.helm_values:
        sys.stdout.write(manifests.helm_values())
    else:
        parts = (arguments.part,) if arguments.part else manifests.DEFAULT_PARTS
        sys.stdout.write(manifests.manifests(parts, arguments.image, arguments.api_server))
    return exit_codes.OK
