"""``openperouter hostbridge``: the pod that gives the host's daemon its credentials."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from ...options import add_verb


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "hostbridge",
        run,
        summary="in a pod: write the node's credentials for the host's daemon",
        description="Run in a pod of a DaemonSet (packaging/kubernetes/hostbridge): write a kubeconfig with the pod's "
        "token, which is bound to the node, to a directory of the host, and again whenever the token is renewed. Runs "
        "until SIGTERM; removes the kubeconfig if the DaemonSet was deleted.",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("/var/lib/hostbridge/kubeconfig"),
        metavar="FILE",
        help="the kubeconfig, in a mounted directory of the host (default: /var/lib/hostbridge/kubeconfig)",
    )
    parser.add_argument(
        "--api-server",
        default="service",
        metavar="WHERE",
        help="where the host reaches the API server: service (the cluster's Service, by kube-proxy), node-local[:PORT] "
        "(the node's loopback, port 6443 by default) or https://HOST[:PORT] (default: service)",
    )
    parser.add_argument(
        "--daemonset",
        default="openperouter-system/openperouter-hostbridge",
        metavar="NAMESPACE/NAME",
        help="the DaemonSet of the pod (default: openperouter-system/openperouter-hostbridge)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal."""
    import trio

    from supervisor.logs.logger import configure
    from supervisor.operations.cluster.hostbridge import Hostbridge, address
    from supervisor.operations.cluster.pod import ACCOUNT
    from supervisor.operations.exit_codes import USAGE, CommandError

    namespace, _, name = arguments.daemonset.partition("/")
    if not namespace or not name or "/" in name:
        raise CommandError("--daemonset: must be NAMESPACE/NAME", USAGE)
    configure("info")
    owner = f"/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}"
    server = address(arguments.api_server, os.environ)
    return trio.run(Hostbridge(ACCOUNT, arguments.output, server, owner).serve)
