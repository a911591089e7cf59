"""The program ``openperouter``: parse the arguments, run one verb, turn every error into a message and an exit code."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final, NoReturn

from ..operations import exit_codes
from ..operations.exit_codes import CommandError
from ..operations.paths import DEFAULT_SETTINGS
from ..process import bytecode_cache
from ..version import VERSION
from .options import add_colour, add_settings, complain, require_settings
from .terminal import choose_colour, choose_quiet

DESCRIPTION: Final = """\
Turns this node into an EVPN provider edge, configured by files in /etc/openperouter. 'run' is the daemon that systemd
starts; the other commands check and show the configuration, the daemon, FRR and the kernel.
"""

#: The module of each, below ``verbs``, in the order in which a new user needs them.
VERBS: Final = {
    "init": "files.init",
    "explain": "files.explain",
    "schema": "files.schema",
    "validate": "files.validate",
    "migrate": "files.migrate",
    "generate": "files.generate",
    "plan": "files.plan",
    "status": "node.status",
    "show": "node.show",
    "web": "node.web",
    "ping": "router.ping",
    "trace": "router.trace",
    "exec": "router.exec_",
    "vtysh": "router.vtysh",
    "logs": "node.logs",
    "events": "node.events",
    "reload": "node.reload",
    "try": "files.try_",
    "doctor": "node.doctor",
    "bundle": "node.bundle",
    "teardown": "node.teardown",
    "run": "node.run",
    "reloader": "router.reloader",
    "join": "cluster.join",
    "crds": "cluster.crds",
    "manifests": "cluster.manifests",
    "hostbridge": "cluster.hostbridge",
    "metrics": "cluster.metrics",
    "controller": "cluster.controller",
    "webhook": "cluster.webhook",
}


#: argparse's message for a word that is not among the choices.
_WRONG_CHOICE: Final = re.compile(
    r"argument (?P<what>\w+): invalid choice: '(?P<given>.*)' \(choose from (?P<choices>.*)\)"
)


class _Parser(argparse.ArgumentParser):
    """An argument parser that exits with our own code for wrong usage: argparse's 2 means something else here."""

    def error(self, message: str) -> NoReturn:
        wrong = _WRONG_CHOICE.search(message)
        if wrong:
            # argparse would list every choice, in a form that differs between versions of Python.
            close = difflib.get_close_matches(wrong["given"], re.findall(r"[\w-]+", wrong["choices"]), 1)
            hint = f"did you mean {close[0]}?" if close else f"see '{self.prog} --help'"
            complain(f"there is no {wrong['what'].lower()} {wrong['given']}: {hint}")
            raise SystemExit(exit_codes.USAGE)
        self.print_usage(sys.stderr)
        complain(message)
        raise SystemExit(exit_codes.USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the process's exit code. Prints a traceback for bugs only."""
    try:
        code = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output is gone: let the interpreter's last flush go nowhere instead of failing again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.BROKEN_PIPE
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - outermost: faults get a message and a code, bugs a traceback
        return _report(error)
    return code


def _run(argv: Sequence[str] | None) -> int:
    first = next(iter(sys.argv[1:] if argv is None else argv), "")
    parser = build_parser(first if first in VERBS else None)
    try:
        arguments, unknown = parser.parse_known_args(argv)
        if unknown:
            _refuse(unknown, parser, arguments.verb)
    except SystemExit:
        # argparse has printed help or the version. What cannot be written is found here, not by the interpreter's last
        # flush, which would complain.
        sys.stdout.flush()
        raise
    if arguments.verb is None:
        parser.print_help()
        return exit_codes.OK
    require_settings(arguments.settings)
    choose_colour(arguments.color)
    choose_quiet(quiet=getattr(arguments, "quiet", False))
    code: int = arguments.function(arguments)
    return code


def _refuse(unknown: Sequence[str], parser: argparse.ArgumentParser, verb: str | None) -> NoReturn:
    """End with the usage of the command that was given, and what may have been meant."""
    verbs = next(one.choices for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    own: argparse.ArgumentParser = verbs[verb] if verb else parser
    option, known = unknown[0].partition("=")[0], own._option_string_actions
    message = f"unrecognized arguments: {' '.join(unknown)}"
    if option in known:
        message += f": {option} goes after the command"
    elif option in parser._option_string_actions:
        message += f": {option} goes before the command"
    elif option.startswith("--") and (close := difflib.get_close_matches(option, known, 1)):
        message += f": did you mean {close[0]}?"
    own.error(message)


def build_parser(verb: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the whole command line; the manual page is made from it too.

    With ``verb`` it has no other, since importing all of them would delay each command and each start of the daemon.
    """
    parser = _Parser(
        prog="openperouter",
        description=DESCRIPTION,
        epilog=exit_codes.TABLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"openperouter {VERSION}")
    add_settings(parser, default=DEFAULT_SETTINGS)
    add_colour(parser)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", dest="verb")
    for name in [verb] if verb else VERBS:
        with bytecode_cache.used():
            module = import_module(f"{__package__}.verbs.{VERBS[name]}")
        module.add_parser(verbs)
    version = verbs.add_parser("version", help="print the version", description="Print the version.")
    version.set_defaults(function=_print_version)
    commands = tuple(verbs.choices)
    about = verbs.add_parser("help", help="print a command's help", description="Print the help of a command, or all.")
    about.add_argument("command", nargs="?", choices=commands, metavar="COMMAND", help="the command; default: all")
    about.set_defaults(function=lambda arguments: _print_help(verbs.choices.get(arguments.command, parser)))
    return parser


def _print_help(parser: argparse.ArgumentParser) -> int:
    parser.print_help()
    return exit_codes.OK


def _print_version(_arguments: argparse.Namespace) -> int:
    print(f"openperouter {VERSION}")
    return exit_codes.OK


def _report(error: Exception) -> int:
    """Print an error; return its exit code."""
    from config.syntax.files import UnreadableFileError

    from ..runtime.faults import EXIT_BUG, exit_code_of, is_bug, summarize

    match error:
        case CommandError():
            complain(str(error))
            return error.exit_code
        case UnreadableFileError(denied=False):
            complain(str(error))
            return exit_codes.CONFIG
        case PermissionError() | UnreadableFileError():
            path = error.path if isinstance(error, UnreadableFileError) else error.filename or error
            complain(f"permission denied: {path}; most commands need root")
            return exit_codes.NO_PERMISSION
        case OSError():
            complain(str(error))
            return exit_codes.UNAVAILABLE
    if is_bug(error):
        sys.excepthook(type(error), error, error.__traceback__)
        complain("this is a bug in openperouter; please report it with the lines above")
        return EXIT_BUG
    complain(summarize(error))
    return exit_code_of(error)
