"""``openperouter join``: check what credentials for the API server permit, and store them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import load_usable_settings, require_readable

from ...options import StoreFile, add_quiet, add_verb, complain
from ...terminal import say


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "join",
        run,
        summary="give the daemon credentials for the API server",
        description="Store credentials for the API server where the daemon looks for them, for root alone: a "
        "kubeconfig, or a token (on standard input, or in a file) with the server's address and authority. First the "
        "server is asked what they permit; credentials that do not work are not stored. The daemon uses them at once.",
    )
    parser.add_argument("kubeconfig", nargs="?", type=Path, action=StoreFile, metavar="KUBECONFIG", help="a kubeconfig")
    parser.add_argument("--server", metavar="URL", help="with a token: the API server, https://HOST:PORT")
    parser.add_argument(
        "--authority",
        type=Path,
        action=StoreFile,
        metavar="FILE",
        help="with a token: the cluster's authority (ca.crt)",
    )
    parser.add_argument(
        "--token-file", type=Path, action=StoreFile, metavar="FILE", help="with --server: read the token from a file"
    )
    parser.add_argument("--force", action="store_true", help="store them even if they do not work, or not yet")
    add_quiet(parser, "print only warnings and errors")


def run(arguments: argparse.Namespace) -> int:
    """Examine and store."""
    import trio

    from actors.lib.kube.credentials import kubeconfig_path
    from supervisor.operations.cluster import join
    from supervisor.operations.cluster.kubeconfig_file import kubeconfig_text, write_kubeconfig
    from supervisor.operations.node_configuration import node_name

    settings = load_usable_settings(arguments.settings)
    credentials = _credentials(arguments)
    verdict = trio.run(join.examine, credentials, node_name(settings), settings.namespace)
    for note in verdict.notes:
        say(f"ok: {note}")
    for warning in verdict.warnings:
        complain(f"warning: {warning}")
    if not arguments.force:
        join.refuse(verdict)
    for fault in verdict.faults:
        complain(f"warning: {fault}")
    target = kubeconfig_path(settings)
    write_kubeconfig(target, kubeconfig_text(credentials))
    say(f"stored in {target}; 'openperouter status' shows the connection")
    return exit_codes.DEGRADED if verdict.faults or verdict.warnings else exit_codes.OK


def _credentials(arguments: argparse.Namespace) -> Any:
    import trio

    from supervisor.operations.cluster import join
    from supervisor.operations.cluster.hostbridge import checked_url

    if arguments.kubeconfig is not None:
        if arguments.server or arguments.authority or arguments.token_file:
            raise CommandError(
                "a kubeconfig contains server, authority and token: the options for these cannot be used with it",
                exit_codes.USAGE,
            )
        if not arguments.kubeconfig.exists():
            raise CommandError(f"{arguments.kubeconfig}: no such file", exit_codes.NO_INPUT)
        require_readable([arguments.kubeconfig])
        return trio.run(join.from_kubeconfig, arguments.kubeconfig)
    if not (arguments.server and arguments.authority):
        raise CommandError("give a KUBECONFIG, or --server and --authority with a token", exit_codes.USAGE)
    url = checked_url(arguments.server, "--server")
    try:
        token = arguments.token_file.read_text() if arguments.token_file else sys.stdin.read()
    except FileNotFoundError:
        raise CommandError(f"{arguments.token_file}: no such file", exit_codes.NO_INPUT) from None
    return join.from_token(token, url, arguments.authority)
