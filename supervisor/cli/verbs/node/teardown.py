"""``openperouter teardown``: take the router down and return its NICs to the host."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import conf_d

from ...options import add_quiet, add_verb, complain
from ...terminal import say

if TYPE_CHECKING:
    from pathlib import Path

    from config.settings import Settings

UNIT = "openperouter.service"
#: States of the unit in which it has, or is about to have, a process (systemctl(1)).
_ALIVE = ("active", "activating", "reloading", "refreshing", "deactivating")
#: Time for systemctl to answer, in seconds.
_SYSTEMCTL_SECONDS = 10.0


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "teardown",
        run,
        summary="take the router down and return its NICs to the host",
        description="Take the router down: remove its configuration from FRR and its devices from the kernel, and "
        "return its NICs to the host with the addresses, MTU and routes that they had. Refuses while the daemon runs "
        "(run 'systemctl stop openperouter' first, which by itself never affects forwarding). Needs no configuration "
        "and changes none: the next start of the daemon builds the router again. It may be repeated, also after an "
        "interruption. Exits with 0 when nothing of the router is left, 64 when it was not confirmed, 69 when FRR or "
        "the network namespace could not be emptied, 71 when the kernel refused an operation, 75 if the daemon runs.",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    add_quiet(parser, "print only the question and errors")
    parser.add_argument(
        "--netns",
        action="store_true",
        help="also stop FRR and delete the network namespace, unless it contains foreign devices",
    )


def run(arguments: argparse.Namespace) -> int:
    """Take everything down, printing each step."""
    if os.geteuid() != 0:
        raise PermissionError(1, "not root", "teardown")
    from supervisor.process.instance_lock import single_instance
    from supervisor.runtime.faults import AlreadyRunningFault

    settings = _settings(arguments.settings)
    try:
        with single_instance(settings.run_dir):
            _refuse_beside_systemd()
            if not arguments.yes:
                _confirm(settings)
            return _take_down(settings, netns=arguments.netns)
    except AlreadyRunningFault as fault:
        raise _still_running(str(fault)) from None


def _settings(path: Path) -> Settings:
    """Return the settings as far as they are usable: the NICs must come back even if some are broken."""
    from config.problems import errors
    from config.settings import load_settings

    settings, problems = load_settings(path, conf_d(path))
    for problem in errors(problems):
        complain(f"{problem}; ignored")
    return settings


def _still_running(how: str) -> CommandError:
    return CommandError(f"{how}: run 'systemctl stop openperouter' first", exit_codes.ALREADY_RUNNING)


def _refuse_beside_systemd() -> None:
    """Refuse between two runs of the daemon too: the next one would build the router again."""
    import trio

    from supervisor.process.subprocesses import run_command
    from supervisor.runtime.faults import DependencyFault

    async def unit_state() -> str:
        return (await run_command(("systemctl", "is-active", UNIT), seconds=_SYSTEMCTL_SECONDS)).stdout.strip()

    try:
        state = trio.run(unit_state)
    except DependencyFault:
        # No systemd, so nothing that would start the daemon; the lock is ours.
        return
    if state in _ALIVE:
        raise _still_running(f"{UNIT} is {state}")


def _confirm(settings: Settings) -> None:
    question = f"Take down the router in network namespace {settings.netns} and return its NICs to the host? [y/N] "
    if not sys.stdin.isatty():
        raise CommandError("nothing was done: confirm with --yes", exit_codes.USAGE)
    try:
        answer = input(question)
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was done", exit_codes.USAGE)


def _take_down(settings: Settings, *, netns: bool) -> int:
    """Do everything that is possible; return the exit code of the worst failure."""
    import trio

    from supervisor.operations.teardown import clear_frr, clear_kernel, forget_status, remove_namespace

    code = exit_codes.OK
    left = trio.run(clear_frr, settings, say)
    if left:
        complain(f"FRR may still have configuration of the router: {left}")
        code = exit_codes.UNAVAILABLE
    refused = clear_kernel(settings, say)
    for error in refused:
        complain(f"the kernel refused: {error}")
        code = exit_codes.KERNEL
    if netns and not refused:
        kept = remove_namespace(settings, say)
        if kept:
            complain(kept)
            code = code or exit_codes.UNAVAILABLE
    if code == exit_codes.OK:
        forget_status(settings, say)
        say("the router is down; the next start of openperouter builds it again (systemctl disable openperouter)")
    else:
        complain("not everything was taken down: fix the cause and repeat the command")
    return code
