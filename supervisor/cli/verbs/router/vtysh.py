"""``openperouter vtysh``: FRR's shell for reading, which never breaks a commit of the daemon.

A session with mgmtd that ends while the daemon commits undoes the commit (``actors.lib.frr.frr_lock``), and an open
shell is such a session. So each command has a short one of its own, under the lock.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from config.syntax.printable import printable
from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import load_usable_settings

from ...options import add_verb, complain

if TYPE_CHECKING:
    from config.settings import Settings

#: How long to wait for the daemon to finish a change of FRR, seconds. Less than the lock's own patience, after which it
#: lets a session through.
PATIENCE_SECONDS: Final = 60.0
#: After which it says that it waits.
SILENT_SECONDS: Final = 1.0
DAEMONS: Final = ("zebra", "bgpd", "bfdd", "staticd", "isisd", "mgmtd", "watchfrr")
_LEAVE: Final = frozenset({"exit", "quit", "end", "logout"})
#: With "json" anywhere after these words FRR 10.3's bgpd crashes.
_FATAL: Final = ("bgp", "l2vpn", "evpn", "route", "vni", "all")

DESCRIPTION: Final = (
    "Run 'show' commands in the shell of the router's FRR: those of -c, else those on standard input, with a prompt on "
    "a terminal. Each waits, up to a minute, while the daemon changes FRR, and the daemon waits for it: a session that "
    "ends during a change would break the change. Passwords are hidden. Other commands are refused, because the daemon "
    "reverts manual changes of FRR. Exits with 69 when FRR or the daemon of a command does not answer."
)


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    summary = "run show commands in FRR's shell"
    parser = add_verb(verbs, "vtysh", run, summary=summary, description=DESCRIPTION)
    parser.add_argument("-c", "--command", action="append", metavar="COMMAND", help="a show command; may be repeated")
    parser.add_argument(
        "-d", "--daemon", choices=DAEMONS, metavar="DAEMON", help=f"query one only: {', '.join(DAEMONS)}"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the commands of the command line, or of the input."""
    settings = load_usable_settings(arguments.settings)
    if arguments.command:
        for command in [accepted(one) for one in arguments.command]:
            show(command, settings, arguments.daemon or "")
        return exit_codes.OK
    return _shell(settings, arguments.daemon or "")


def _shell(settings: Settings, daemon: str) -> int:
    """Run what is typed; on a terminal a command that fails does not end it."""
    interactive = sys.stdin.isatty()
    for line in _typed(f"{daemon or 'router'}# ") if interactive else sys.stdin:
        command = line.strip()
        if command in _LEAVE:
            break
        try:
            if command:
                show(accepted(command), settings, daemon)
        except CommandError as error:
            if not interactive:
                raise
            complain(str(error))
    return exit_codes.OK


def _typed(prompt: str) -> Iterator[str]:
    # Importing it gives input() a history and line editing.
    import readline  # noqa: F401

    while True:
        try:
            yield input(prompt)
        except EOFError:
            print()
            return


def accepted(command: str) -> str:
    """Return a command that only shows something; raise :class:`CommandError` for another.

    vtysh takes several lines for several commands, whatever they are.
    """
    words = command.split()
    if not command.isprintable():
        raise CommandError("a command is one line of printable characters", exit_codes.USAGE)
    if len(words) < 2 or not (len(words[0]) > 1 and "show".startswith(words[0])):
        what = f"{command!r} is not passed on to FRR: only commands that begin with 'show' are"
        raise CommandError(what, exit_codes.USAGE)
    if _is_fatal(words[1:]):
        what = (
            "FRR 10.3's bgpd crashes on this command with json; use 'show bgp vni all json', which has the same content"
        )
        raise CommandError(what, exit_codes.USAGE)
    return " ".join(["show", *words[1:]])


def _is_fatal(words: list[str]) -> bool:
    """Whether the words after "show", which may be abbreviated, are the command on which bgpd crashes."""
    rest = words[len(_FATAL) :]
    begins = all(full.startswith(word) for full, word in zip(_FATAL, words, strict=False))
    return begins and any("json".startswith(word) for word in rest)


def show(command: str, settings: Settings, daemon: str) -> None:
    """Print FRR's answer without secrets; raise :class:`CommandError` when there is none."""
    import trio

    from config.syntax.frr_secrets import redact
    from supervisor.runtime.faults import DependencyFault

    try:
        answer = trio.run(answer_of, command, settings, daemon)
    except DependencyFault as error:
        raise CommandError(str(error), exit_codes.UNAVAILABLE) from None
    # Answers in JSON have no passwords, and would not be JSON any more.
    text = answer if answer.lstrip().startswith(("{", "[")) else redact(answer)
    # FRR shows what peers call themselves as they sent it.
    print(printable(text.rstrip(), keep="\n\t"), flush=True)


async def answer_of(command: str, settings: Settings, daemon: str) -> str:
    """Return FRR's answer; raise ``DependencyFault``, and :class:`CommandError` while FRR is being changed."""
    import trio

    from actors.lib.frr.frr_lock import session_lock
    from actors.lib.frr.vtysh import Vtysh, lock_file

    if daemon not in ("", "mgmtd"):
        return await Vtysh.of(settings).text(command, daemon=daemon)
    for seconds in (SILENT_SECONDS, PATIENCE_SECONDS):
        with trio.move_on_after(seconds) as waiting:
            async with session_lock(lock_file(settings), exclusive=False) as held:
                waiting.deadline = math.inf
                return await Vtysh.of(settings, held=held).text(command, daemon=daemon)
        if seconds == SILENT_SECONDS:
            complain(f"FRR is being changed; waiting up to {PATIENCE_SECONDS:g} s")
    what = f"FRR has been changed for more than {PATIENCE_SECONDS:g} s; --daemon bgpd, for example, needs no wait"
    raise CommandError(what, exit_codes.NO_ANSWER)
