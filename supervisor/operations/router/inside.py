"""Runs a command inside the router: in its network namespace, and in one of its VRFs, which users name as they like.

iproute2 enters them (``ip netns exec``, ``ip vrf exec``): that binds all sockets of a command and its children to the
VRF, which no single socket option does.
"""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from actors.lib.network_namespace import NAMESPACES

from ..exit_codes import UNAVAILABLE, USAGE, CommandError
from ..paths import run_dir

if TYPE_CHECKING:
    from config.outcomes import VniHealth
    from config.settings import Settings
    from config.status import Status

#: Number of names that an error lists when none resembles the given one.
_MOST_NAMES: Final = 8


def router_namespace(settings: Settings) -> Path:
    """Return the router's namespace; raise :class:`CommandError` without one, ``PermissionError`` unless run as root.

    It exists without a running daemon, which forwarding does not need.
    """
    path = NAMESPACES / settings.netns
    if not path.exists():
        what = f"the router's network namespace {path} does not exist; systemctl start openperouter-netns creates it"
        raise CommandError(what, UNAVAILABLE)
    if os.geteuid() != 0:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
    return path


def vrf_option(settings_file: Path, name: str | None) -> str:
    """Return the VRF that ``--vrf`` selects, empty for none; raise :class:`CommandError` for an unknown one.

    Asks the daemon, or its last status, to resolve the number or name of an L3VNI or L2VNI.
    """
    from ..inspection.current_status import read_status

    return "" if name is None else vrf_named(read_status(run_dir(settings_file)).status, name)


def vrf_named(status: Status, name: str) -> str:
    """Return the VRF with a name, or that of the VNI with a number or name; :class:`CommandError` for another.

    A VRF's own name comes first, then a VNI, then the name in a file, or an object's with its namespace: what users of
    a namespace call their objects takes no name away from others.
    """
    named = [_names(vni) for vni in status.vnis]
    for step in range(len(named[0]) if named else 0):
        meant = [vni for vni, names in zip(status.vnis, named, strict=True) if names[step] == name]
        if len({vni.vrf for vni in meant}) > 1:
            several = " or ".join(sorted({str(vni.resource) for vni in meant}))
            raise CommandError(f"{name} may be {several}: name one of them as it is here, or its VNI", USAGE)
        for vni in meant:
            if vni.vrf:
                return vni.vrf
            raise CommandError(f"{vni.resource} is in no VRF: it has no routing domain", USAGE)
    known = list(dict.fromkeys(one for names in named for one in names if one))
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known[:_MOST_NAMES]) or 'none'}"
    raise CommandError(f"there is no VRF or VNI {name} in force: {hint}", USAGE)


def _names(vni: VniHealth) -> tuple[str, str, str, str]:
    """Return by what a user may call a VNI's VRF, the name that counts most first."""
    resource = vni.resource
    return vni.vrf, str(vni.vni), resource.display_name, resource.label or resource.name


def argv_inside(namespace: Path, vrf: str, command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command in the namespace, and in a VRF unless that is empty."""
    in_vrf = ["ip", "vrf", "exec", vrf] if vrf else []
    return ["ip", "netns", "exec", namespace.name, *in_vrf, *command]


def become(argv: Sequence[str]) -> int:
    """Replace this process by a program; never returns. Raises :class:`CommandError` if the program does not exist."""
    try:
        os.execvp(argv[0], list(argv))  # noqa: S606 - the program of an operator's own command
    except FileNotFoundError:
        raise CommandError(f"{argv[0]}: no such program; is iproute2 installed?", UNAVAILABLE) from None
    raise AssertionError("exec returned")
