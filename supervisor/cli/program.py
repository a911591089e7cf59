"""The program ``openperouter``: parses arguments, runs one verb, turns whatever happens into a message and a code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from ..operations import exit_codes
from ..version import VERSION
from .options import DEFAULT_SETTINGS, CommandError, add_settings, complain
from .verbs import bundle, doctor, plan, reload, run, show, status, teardown, try_, validate, version

DESCRIPTION: Final = """\
Turns this node into an EVPN provider edge, from files in /etc/openperouter: 'run' is the daemon that systemd starts,
the other commands look at the configuration, at the daemon, at FRR and at the kernel.
"""

#: In the order in which a new user meets them.
VERBS: Final = (validate, plan, status, show, reload, try_, doctor, bundle, teardown, run, version)


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints end with our own code: argparse's 2 means something else here."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        complain(message)
        raise SystemExit(exit_codes.USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the process's exit code. Prints no traceback unless it met a bug."""
    try:
        code = _run(build_parser().parse_args(argv))
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
        return exit_codes.BROKEN_PIPE
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    return code


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line; the manual page is made from it too."""
    parser = _Parser(
        prog="openperouter",
        description=DESCRIPTION,
        epilog=exit_codes.TABLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"openperouter {VERSION}")
    add_settings(parser, default=DEFAULT_SETTINGS)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", dest="verb", required=True)
    for verb in VERBS:
        verb.add_parser(verbs)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    try:
        code: int = arguments.function(arguments)
    except CommandError as error:
        complain(str(error))
        return error.exit_code
    except PermissionError as error:
        complain(f"permission denied: {error.filename or error}; most commands need root")
        return exit_codes.NO_PERMISSION
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the outermost place: faults get a message and code, bugs a traceback
        return _ended_by(error)
    return code


def _ended_by(error: Exception) -> int:
    """Return the exit code for an error, after saying what it is."""
    from ..runtime.faults import EXIT_BUG, exit_code_of, is_bug, summarize

    if isinstance(error, OSError):
        complain(str(error))
        return exit_codes.UNAVAILABLE
    code = exit_code_of(error)
    if is_bug(error):
        sys.excepthook(type(error), error, error.__traceback__)
        complain("this is a bug in openperouter; please report it with the lines above")
        return EXIT_BUG
    complain(summarize(error))
    return code


def _silence_stdout() -> None:
    """Whoever read our output has left: let the interpreter's last flush go nowhere instead of failing again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
