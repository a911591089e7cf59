"""``openperouter bundle``: one archive for a bug report."""

from __future__ import annotations

import argparse
import os
import socket
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import conf_d

from ...options import StoreFile, add_quiet, add_verb, complain, note, run_and_show
from ...terminal import is_quiet

if TYPE_CHECKING:
    from config.settings import Settings
    from supervisor.operations.bundle.archive import Piece

DEFAULT_HOURS = 24


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "bundle",
        run,
        summary="collect everything for a bug report in one archive, without secrets",
        description="Collect status, configuration, desired state, FRR's and the kernel's view, the journal, versions "
        "and the findings of 'openperouter doctor' in one archive (mode 0600). Passwords are removed from every file, "
        "by their value and by the keyword before them; addresses and names stay. For an unavailable item the archive "
        "has the error. Changes nothing. Exits with 0 when the archive is written.",
    )
    parser.add_argument(
        "--output",
        type=Path,
        action=StoreFile,
        metavar="FILE",
        help="a new file (default: openperouter-bundle-NODE-TIME.tar.gz here)",
    )
    parser.add_argument(
        "--hours",
        type=int,
        default=DEFAULT_HOURS,
        metavar="N",
        help="hours of journal to include (default: %(default)s)",
    )
    add_quiet(parser, "print only the archive's path and errors")


def run(arguments: argparse.Namespace) -> int:
    """Collect and write."""
    if os.geteuid() != 0:
        raise PermissionError(1, "not root", "bundle")
    from config.problems import errors
    from config.settings import load_settings
    from supervisor.operations.bundle import BundleError, write_bundle

    settings, problems = load_settings(arguments.settings, conf_d(arguments.settings))
    for problem in errors(problems):
        complain(f"{problem}; continuing without it")
    name = f"openperouter-bundle-{socket.gethostname()}-{time.strftime('%Y%m%dT%H%M%S')}"
    path: Path = arguments.output or Path(f"{name}.tar.gz")
    if path.exists():
        raise CommandError(f"{path} already exists", exit_codes.USAGE)

    def write(pieces: tuple[Piece, ...]) -> None:
        try:
            size = write_bundle(path, pieces, name)
        except BundleError as error:
            raise CommandError(str(error), exit_codes.UNAVAILABLE) from None
        failed = [piece.name for piece in pieces if piece.error]
        if failed:
            note(f"{len(failed)} of {len(pieces)} items unavailable (see manifest.json)")
        about = f"{len(pieces)} files, {size // 1024 + 1} KiB; passwords are removed; review it before you send it"
        print(path if is_quiet() else f"{path}: {about}")

    run_and_show(partial(_collect, settings, arguments.settings, max(1, arguments.hours)), write)
    return exit_codes.OK


async def _collect(settings: Settings, settings_file: Path, hours: int) -> tuple[Piece, ...]:
    from actors.lib.frr.vtysh import Vtysh
    from supervisor.operations.bundle import Redactor, collect, known_secrets
    from supervisor.operations.bundle.sources import sources
    from supervisor.runtime.faults import DependencyFault

    try:
        running = await Vtysh.of(settings).text("show running-config")
    except DependencyFault:
        # Then its secrets are not known by value, and its configuration cannot be collected either.
        running = ""
    redactor = Redactor(known_secrets(settings, running))
    return await collect(sources(settings, settings_file, hours=hours), redactor)
