"""What the command line shows of FRR: the running configuration, and what applying would change. Without secrets."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from actors.lib.frr.frr_lock import holders, session_lock
from actors.lib.frr.vtysh import FrrUnavailable, Vtysh, lock_file
from config.desired import DesiredState
from config.outcomes import Interruption
from config.settings import Settings
from config.syntax.frr_secrets import redact
from supervisor.runtime.faults import DependencyFault, PermissionFault

from .diff.difference import Intent, difference, intended, parse
from .interruptions import interrupted_segments, interrupted_sessions
from .render.render import RenderedConfig, render

#: How long a preview waits for those that change FRR, seconds. One change of a large configuration takes a minute.
PATIENCE_SECONDS: Final = 2.0
#: The same for the running configuration itself, which nothing else can stand in for.
SHOW_PATIENCE_SECONDS: Final = 5.0
_SHOW: Final = "show running-config"


@dataclass(frozen=True, slots=True)
class Preview:
    """What FRR would gain (``+``) and lose (``-``), a line each without secrets, and the sessions that this ends."""

    lines: tuple[str, ...] = ()
    interrupted: tuple[Interruption, ...] = ()
    note: str = ""


async def preview(desired: DesiredState, settings: Settings) -> Preview:
    """Return what would change in FRR; no lines if it runs the desired state.

    While FRR is being changed it must not be asked (``frr_lock``): then the note says so, and the difference is
    that to the configuration that was verified last. Raises ``DependencyFault`` if FRR does not answer.
    """
    wanted = intended(_rendered(desired, settings))
    with trio.move_on_after(PATIENCE_SECONDS) as waiting:
        async with session_lock(lock_file(settings), exclusive=False) as held:
            waiting.deadline = math.inf
            shown, live = await _shown(_SHOW, settings, held), _vnis(await _shown("show evpn vni", settings, held))
            staying = live & {segment.vni for segment in desired.l2vnis}
            return _compared(wanted, shown, staying)
    try:
        verified = (settings.frr_etc_dir / settings.frr_pathspace / "frr.conf").read_text()
    except OSError as error:
        raise DependencyFault(f"its configuration is being changed, and {error.filename}: {error.strerror}") from None
    return _compared(
        wanted, verified, set(), "FRR is being changed at this moment: this is the difference to what was verified last"
    )


async def _shown(command: str, settings: Settings, held: Sequence[int]) -> str:
    """Return what a command prints; ``PermissionFault`` where vtysh takes FRR for absent for lack of rights."""
    try:
        return await Vtysh.of(settings, held=held).text(command)
    except FrrUnavailable:
        closed = _closed_socket(settings.frr_run_dir / settings.frr_pathspace / "zebra.vty")
        if closed is None:
            raise
        raise PermissionFault(f"permission denied: {closed}; only root and FRR's group can use it") from None


def _closed_socket(path: Path) -> Path | None:
    try:
        path.stat()
    except PermissionError:
        return path
    except OSError:
        return None
    return None if os.access(path, os.W_OK) else path


def _vnis(shown: str) -> set[int]:
    """Return the VNIs of ``show evpn vni``: the first column."""
    return {int(words[0]) for line in shown.splitlines() if (words := line.split()) and words[0].isdecimal()}


def _compared(wanted: Intent, text: str, segments: Collection[int], note: str = "") -> Preview:
    running = parse(text)
    found = difference(wanted, running)
    interrupted = (*interrupted_sessions(running, found), *interrupted_segments(found, segments))
    return Preview(tuple(str(found).splitlines()), interrupted, note)


def rendered_redacted(desired: DesiredState, settings: Settings) -> str:
    """Return the configuration for a desired state, without secrets."""
    return _rendered(desired, settings).redacted


async def running_redacted(settings: Settings) -> str:
    """Return FRR's running configuration without secrets.

    Raises ``DependencyFault`` if FRR does not answer (``PermissionFault`` if this user may not ask it), and after
    :data:`SHOW_PATIENCE_SECONDS` if it is being changed.
    """
    with trio.move_on_after(SHOW_PATIENCE_SECONDS) as waiting:
        async with session_lock(lock_file(settings), exclusive=False) as held:
            waiting.deadline = math.inf
            return redact(await _shown(_SHOW, settings, held))
    raise DependencyFault(_busy(settings))


def _busy(settings: Settings) -> str:
    lock = lock_file(settings)
    who = " and ".join(_described(pid) for pid in holders(lock)) or "another process"
    verified = settings.frr_etc_dir / settings.frr_pathspace / "frr.conf"
    return (
        f"FRR is being changed, and a session with it could break that: {who} has held {lock} for "
        f"{SHOW_PATIENCE_SECONDS:g} s; try again in a minute, or see {verified} (what was verified last) and "
        "'openperouter show frr --intended'"
    )


def _described(pid: int) -> str:
    try:
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text(errors='replace').strip()})"
    except FileNotFoundError:
        return f"a vtysh that process {pid} left behind"
    except OSError:
        return f"process {pid}"


def _rendered(desired: DesiredState, settings: Settings) -> RenderedConfig:
    return render(desired, hostname=socket.gethostname(), listen_limit=settings.bgp_listen_limit)
