"""What the command line shows of FRR: the running configuration, and what applying would change. Without secrets."""

from __future__ import annotations

import math
import socket
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from actors.lib.frr.frr_lock import holders, session_lock
from actors.lib.frr.vtysh import Vtysh, lock_file
from config.desired import DesiredState
from config.outcomes import Interruption
from config.settings import Settings
from config.syntax.frr_secrets import redact
from supervisor.runtime.faults import DependencyFault

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
        async with session_lock(lock_file(settings), exclusive=False):
            waiting.deadline = math.inf
            vtysh = Vtysh.of(settings, locked=False)
            shown, live = await vtysh.text(_SHOW), _vnis(await vtysh.text("show evpn vni"))
            staying = live & {segment.vni for segment in desired.l2vnis}
            return _compared(wanted, shown, staying)
    try:
        verified = (settings.frr_etc_dir / settings.frr_pathspace / "frr.conf").read_text()
    except OSError as error:
        raise DependencyFault(f"its configuration is being changed, and {error.filename}: {error.strerror}") from None
    return _compared(
        wanted, verified, set(), "FRR is being changed at this moment: this is the difference to what was verified last"
    )


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

    Raises ``DependencyFault`` if FRR does not answer, and after :data:`SHOW_PATIENCE_SECONDS` if it is being changed.
    """
    with trio.move_on_after(SHOW_PATIENCE_SECONDS) as waiting:
        async with session_lock(lock_file(settings), exclusive=False):
            waiting.deadline = math.inf
            vtysh = Vtysh.of(settings, locked=False)
            return redact(await vtysh.text(_SHOW))
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
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    except OSError:
        return f"process {pid}"


def _rendered(desired: DesiredState, settings: Settings) -> RenderedConfig:
    return render(desired, hostname=socket.gethostname(), listen_limit=settings.bgp_listen_limit)
