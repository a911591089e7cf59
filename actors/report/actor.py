"""The report actor: publishes the status when it changes, and about twice a minute with fresh ages and counters.

    newest values of all actors -> build_status -> channel (systemd, control socket), state file, metrics

The state file is the status on disk, for when no daemon answers on the control socket; the metrics are for
monitoring. Both are replaced atomically, at a change and once a minute. A disk that refuses costs the file, not the
daemon, and is logged once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import trio

from actors.lib.metrics import textfile
from actors.lib.metrics.exposition import metrics_text
from config.api import ApiAccess, ApiSnapshot
from config.desired import DesiredState
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome, StaticSnapshot
from config.settings import Settings
from config.status import ActorStatus, Status
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.atomic_file import remove_stale, write_atomic
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader, wait_any

from .status_builder import Process, StatusInputs, build_status

log = get_logger("report")

STATE_FILE: Final = "state.json"
#: For root and its group: it names tenants and peers.
STATE_MODE: Final = 0o640
#: Unchanged files are written this often, seconds: only ages and counters are older in them, a daemon that runs answers
#: on its socket, and hundreds of networks make encoding a large part of what a node at rest does.
UNCHANGED_SECONDS: Final = 60.0
#: Changed ones leave this much between two files, seconds: a change goes through many states, and nothing reads them
#: that often. What comes sooner waits as long.
METRICS_PAUSE_SECONDS: Final = 5.0
#: Ages and counters go out at the first occasion after this time, seconds; health's polls are one every 15.
REFRESH_SECONDS: Final = 20.0
#: Statuses leave this much between them, seconds: what happens meanwhile, as at a start, becomes one of them.
PAUSE_SECONDS: Final = 0.1
#: Deadline of writing a few kilobytes.
WRITE_SECONDS: Final = 20.0
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


async def run(
    ctx: ActorContext,
    *,
    settings: Settings,
    version: str,
    snapshots: LatestReader[StaticSnapshot],
    desired: LatestReader[DesiredState],
    frr: LatestReader[FrrOutcome],
    kernel: LatestReader[KernelOutcome],
    health: LatestReader[HealthReport],
    access: LatestReader[ApiAccess],
    api: LatestReader[ApiSnapshot],
    children: Callable[[], tuple[ActorStatus, ...]],
    children_changed: LatestReader[Any],
    out: Latest[Status],
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Report indefinitely. ``children`` returns the children's present state, ``stopping`` whether the daemon ends."""
    before = out.peek()
    files = StatusFiles(settings)
    inputs = StatusInputs(
        _process(settings, version, before), was_ready=before is not None and before.generations.desired > 0
    )
    ctx.started()
    while True:
        inputs = replace(
            inputs,
            snapshot=snapshots.take() or inputs.snapshot,
            desired=desired.take() or inputs.desired,
            frr=frr.take() or inputs.frr,
            kernel=kernel.take() or inputs.kernel,
            health=health.take() or inputs.health,
            access=access.take() or inputs.access,
            api=api.take() or inputs.api,
            children=children(),
            stopping=stopping(),
        )
        children_changed.take()
        inputs = replace(inputs, was_ready=inputs.was_ready or inputs.ready)
        built = trio.current_time()
        status = build_status(inputs, time.time())
        due = _is_due(status, before, REFRESH_SECONDS)
        if due:
            out.set(status)
            before = status
        if due or files.late:
            with ctx.working("writing the state file", WRITE_SECONDS):
                await files.write(status)
        ctx.progress()
        with ctx.idle():
            with trio.move_on_after(min(REFRESH_SECONDS, METRICS_PAUSE_SECONDS) if files.late else REFRESH_SECONDS):
                await wait_any(snapshots, desired, frr, kernel, health, access, api, children_changed)
            with trio.move_on_at(built + PAUSE_SECONDS):
                # A stop shows at once: this actor may itself be stopped during the pause.
                while not stopping():
                    await children_changed.receive()


def _is_due(status: Status, before: Status | None, seconds: float) -> bool:
    """Whether something other than ages and counters differs, or these are older than ``seconds``."""
    if before is None or not 0 <= status.updated_at - before.updated_at < seconds:
        return True
    return status.essence() != before.essence()


def _process(settings: Settings, version: str, before: Status | None) -> Process:
    """Describe this process; a restarted actor keeps the start time that its predecessor published."""
    return Process(
        version=version,
        pid=os.getpid(),
        boot_id=BOOT_ID.read_text().strip(),
        started_at=before.started_at if before else time.time(),
        configs_dir=str(settings.configs_dir),
    )


class StatusFiles:
    """Writes both files once a minute: the state file at changes as well, the metrics some time after them."""

    def __init__(self, settings: Settings) -> None:
        self._state = _File(settings.run_dir / STATE_FILE, STATE_MODE)
        metrics = textfile.textfile(settings)
        if settings.metrics_file is None:
            with suppress(OSError):  # writing the file says so
                metrics.parent.mkdir(mode=textfile.DIRECTORY_MODE, exist_ok=True)
        self._metrics = _File(metrics, textfile.MODE, textfile.reader)
        self._stored: Status | None = None
        self._measured: Status | None = None
        #: Whether metrics of a change have to wait.
        self.late = False

    async def write(self, status: Status) -> None:
        """Write a new status, where that is due."""
        if _is_due(status, self._stored, UNCHANGED_SECONDS):
            written = await self._state.write(status.to_json() + "\n")
            self._stored = status if written else None
        last = self._measured
        recent = last is not None and 0 <= status.updated_at - last.updated_at < METRICS_PAUSE_SECONDS
        due = _is_due(status, last, UNCHANGED_SECONDS)
        self.late = recent and due
        if due and not recent:
            await self._metrics.write(metrics_text(status))
            self._measured = status


class _File:
    """One file; a series of failures to write it is logged once."""

    def __init__(self, path: Path, mode: int, reader: Callable[[Path], int | None] = lambda _: None) -> None:
        self._path = path
        self._mode = mode
        self._reader = reader
        self._failing = False
        remove_stale(path)

    async def write(self, text: str) -> bool:
        """Replace the content; return whether the disk took it."""
        try:
            await trio.to_thread.run_sync(self._replace, text)
        except OSError as error:
            if not self._failing:
                message = f"{self._path} cannot be written: {error.strerror}"
                log.warning(message, message_id=message_ids.STATUS_UNWRITTEN)
            self._failing = True
        else:
            self._failing = False
        return not self._failing

    def _replace(self, text: str) -> None:
        write_atomic(self._path, text, mode=self._mode, reader=self._reader(self._path))
