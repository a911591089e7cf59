"""``openperouter web``: a page of the node's status for a browser, read-only, on loopback or a unix socket."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import Any, Final

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import run_dir

from ....options import add_verb

DEFAULT_LISTEN: Final = "http://127.0.0.1:9474"

DESCRIPTION: Final = (
    "Serve one page until SIGINT or SIGTERM: problems, the topology as a picture, sessions, VNIs and recent changes, "
    "read from the daemon's control socket. It refreshes itself, loads nothing from elsewhere, contains no secrets and "
    "changes nothing. It listens on a loopback address, which all users and the pods in the host's network can "
    "reach, or on a unix socket for root and its group; ssh -L forwards it to another machine. When the daemon does "
    "not run or answer, the page says so and shows the last status."
)


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs, "web", run, summary="serve a page of the node's status, read-only, on loopback", description=DESCRIPTION
    )
    parser.add_argument(
        "--listen",
        metavar="WHERE",
        default=DEFAULT_LISTEN,
        help=f"http://ADDRESS:PORT with a loopback address, or unix:/PATH (default: {DEFAULT_LISTEN})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal."""
    from config.metrics_settings import endpoint_of

    try:
        endpoint = endpoint_of(arguments.listen)
    except ValueError:
        endpoint = None
    if endpoint is None or endpoint.scheme == "https":
        raise CommandError(
            f"--listen {arguments.listen}: must be http://ADDRESS:PORT with a loopback address (127.0.0.1, [::1]) "
            "or unix:/PATH",
            exit_codes.USAGE,
        )
    if endpoint.scheme == "unix" and endpoint.path.exists() and not endpoint.path.is_socket():
        raise CommandError(f"--listen {arguments.listen}: that file exists and is not a socket", exit_codes.USAGE)
    import trio

    from supervisor.operations.inspection.current_status import read_status

    from .server import serve

    directory = run_dir(arguments.settings)
    with suppress(CommandError):
        read_status(directory)  # for a user who may not: the page is not the place to learn that
    try:
        trio.run(serve, endpoint, directory)
    except OSError as error:
        why = error.strerror or str(error)
        raise CommandError(f"cannot listen at {arguments.listen}: {why}", exit_codes.UNAVAILABLE) from None
    return exit_codes.OK
