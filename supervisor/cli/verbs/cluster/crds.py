"""``openperouter crds``: the custom resource definitions of this version."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from supervisor.operations import exit_codes

from ...options import add_verb


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    add_verb(
        verbs,
        "crds",
        run,
        summary="print the custom resource definitions",
        description="Print the custom resource definitions of this version, for kubectl apply --server-side -f -. "
        "Works on any machine, without a server.",
    )


def run(_arguments: argparse.Namespace) -> int:
    """Print them."""
    from supervisor.operations.cluster.manifests import crds

    sys.stdout.write(crds())
    return exit_codes.OK
