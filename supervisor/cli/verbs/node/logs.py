"""``openperouter logs``: the journal of the daemon and of FRR, or what it says of one resource."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import frr_units, load_usable_settings
from supervisor.operations.router.inside import become

from ...options import add_verb

if TYPE_CHECKING:
    from pathlib import Path

    from config.settings import Settings
    from config.status import Status

DEFAULT_LINES: Final = 100
_AGO: Final = re.compile(r"\d+ ?(s|m|min|h|d|w)")
PRIORITIES: Final = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")

DESCRIPTION: Final = (
    "Show the journal of openperouter.service, of the unit that creates the network namespace, and of FRR. "
    "With NAME, only the daemon's lines about one resource: the name of an L3VNI or another resource, a VNI's number, "
    "a VRF, a peer or an interface. Selects by the journal's fields (RESOURCE, VNI, VRF, PEER, INTERFACE, NAME), which "
    "FRR's own lines do not have. journalctl prints them."
)


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    summary = "show the journal of the daemon and FRR, or of one resource"
    parser = add_verb(verbs, "logs", run, summary=summary, description=DESCRIPTION)
    parser.add_argument("-f", "--follow", action="store_true", help="continue with each new line until interrupted")
    parser.add_argument(
        "-n", "--lines", type=int, metavar="N", help=f"the newest N only (default: {DEFAULT_LINES}, with --since all)"
    )
    parser.add_argument(
        "-S", "--since", metavar="TIME", help="from this time on: 1h (an hour ago), today or '2026-01-31 12:00'"
    )
    parser.add_argument("-p", "--priority", choices=PRIORITIES, metavar="LEVEL", help="this level and more severe ones")
    parser.add_argument("-x", "--explain", action="store_true", help="explain each event, and what to do about it")
    parser.add_argument("--actor", metavar="NAME", help="lines of one actor of the daemon, such as health or frr")
    parser.add_argument("name", nargs="?", metavar="NAME", help="a resource, VNI, VRF, peer or interface")


def run(arguments: argparse.Namespace) -> int:
    """Become journalctl."""
    if arguments.lines is not None and arguments.lines < 0:
        raise CommandError("--lines must not be negative", exit_codes.USAGE)
    settings = load_usable_settings(arguments.settings)
    if shutil.which("journalctl") is None:
        raise CommandError("there is no journalctl: this machine does not run systemd", exit_codes.UNAVAILABLE)
    return become(["journalctl", *_options(arguments), *_units(settings), *_matches(arguments, settings.run_dir)])


def _options(arguments: argparse.Namespace) -> Iterator[str]:
    if arguments.since is not None:
        # journalctl wants -1h, which no command line takes for a value.
        ago = "-" if _AGO.fullmatch(arguments.since) else ""
        yield f"--since={ago}{arguments.since}"
    if arguments.lines is not None or arguments.since is None:
        yield f"--lines={DEFAULT_LINES if arguments.lines is None else arguments.lines}"
    if arguments.priority is not None:
        yield f"--priority={arguments.priority}"
    if arguments.explain:
        yield "--catalog"
    if arguments.follow:
        yield "--follow"


def _units(settings: Settings) -> Iterator[str]:
    for unit in ("openperouter.service", "openperouter-netns.service", *frr_units(settings)):
        yield f"--unit={unit}"


def _matches(arguments: argparse.Namespace, directory: Path) -> Iterator[str]:
    """Yield journalctl's matches: fields of different names have all to fit, alternatives are separated by ``+``."""
    actor = [f"ACTOR={arguments.actor}"] if arguments.actor is not None else []
    if arguments.name is None:
        yield from actor
        return
    for position, match in enumerate(matches(arguments.name, _status(directory))):
        yield from ["+"] if position else []
        yield from (match, *actor)


def _status(directory: Path) -> Status | None:
    """Return the daemon's status, which knows the numbers and VRFs of VNIs; without one the name alone has to do."""
    from supervisor.operations.inspection.current_status import read_status

    try:
        return read_status(directory).status
    except CommandError:
        return None


def matches(name: str, status: Status | None) -> list[str]:
    """Return the journal's fields that may have a name, each once."""
    from config.problems import Kind

    found = [*(f"RESOURCE={kind} {name}" for kind in Kind), f"NAME={name}", f"VRF={name}"]
    found += [f"PEER={name}", f"INTERFACE={name}", *([f"VNI={name}"] if name.isdecimal() else [])]
    for vni in status.vnis if status else ():
        resource = vni.resource
        if name in (str(vni.vni), resource.display_name, resource.label or resource.name):
            found += [f"RESOURCE={resource}", f"NAME={resource.display_name}", f"VNI={vni.vni}"]
            # A segment's VRF is others' as well.
            found += [f"VRF={vni.vrf}"] if vni.type == "L3" else []
    return list(dict.fromkeys(found))
