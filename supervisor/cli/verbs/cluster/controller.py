"""``openperouter controller``: the pod that writes what concerns several nodes at once."""

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
        "controller",
        run,
        summary="in a pod: write conditions over all nodes to each object, and assign indices to Nodes",
        description="Run in a pod of a Deployment (packaging/kubernetes/controller): write the conditions Ready and "
        "Degraded of each object from what all its nodes report, give Nodes without an index of their own the lowest "
        "free one, and report indices that several nodes claim. Of several controllers only the leader "
        "writes, which holds the Lease openperouter-controller. Nodes do not need it. Runs until SIGTERM, and then "
        "releases the Lease.",
    )
    parser.add_argument(
        "--namespace",
        metavar="NAME",
        help="openperouter's namespace (default: the pod's, else openperouter-system)",
    )
    parser.add_argument(
        "--account",
        type=Path,
        metavar="DIRECTORY",
        help="token, ca.crt and namespace of the ServiceAccount (default: where the kubelet puts the pod's)",
    )
    parser.add_argument(
        "--api-server",
        default="service",
        metavar="WHERE",
        help="where the API server is: service (the cluster's Service) or https://HOST[:PORT] (default: service)",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="log at this level (default: info)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run until a signal."""
    from functools import partial

    import trio

    from supervisor.logs.logger import configure
    from supervisor.operations.cluster.controller import Controller
    from supervisor.operations.cluster.hostbridge import address
    from supervisor.operations.cluster.pod import ACCOUNT, pod_namespace, read_account

    configure(arguments.log_level)
    account = arguments.account or ACCOUNT
    server = address(arguments.api_server, os.environ)
    namespace = arguments.namespace or pod_namespace(account) or "openperouter-system"
    controller = Controller(partial(read_account, account, server), namespace)
    return trio.run(controller.run).exit_code
