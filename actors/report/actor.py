"""The report actor: publishes the status when it changes, and about twice a minute with fresh ages and counters.

    newest values of all actors -> build_status -> channel (systemd, control socket), state file, metrics

The state file is the status on disk, for when no daemon answers on the control socket; the metrics are for
monitoring. Both are replaced atomically, some time after a change and once a minute. A disk that refuses costs the
file, not the daemon, and is logged once.
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
#: Changed ones are written so long after the change, seconds: a change goes through many states, and encoding each
#: would delay it. A first file, and that of a daemon that stops, do not wait.
STATE_SECONDS: Final = 2.0
METRICS_SECONDS: Final = 5.0
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
        if due or files.waits is not None:
            with ctx.working("writing the state file", WRITE_SECONDS):
                await files.write(status)
        ctx.progress()
        with ctx.idle():
            with trio.move_on_after(REFRESH_SECONDS if files.waits is None else min(REFRESH_SECONDS, files.waits)):
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
    """The state file and the metrics, each written once a minute and some time after changes."""

    def __init__(self, settings: Settings) -> None:
        metrics = textfile.textfile(settings)
        if settings.metrics_file is None:
            with suppress(OSError):  # writing the file says so
                metrics.parent.mkdir(mode=textfile.DIRECTORY_MODE, exist_ok=True)
        self._files = (
            _File(settings.run_dir / STATE_FILE, STATE_MODE, STATE_SECONDS, lambda status: status.to_json() + "\n"),
            _File(metrics, textfile.MODE, METRICS_SECONDS, metrics_text, textfile.reader),
        )

    @property
    def waits(self) -> float | None:
        """Seconds from the last status until one of the files is due, None if both are as it is."""
        return min((file.waits for file in self._files if file.waits is not None), default=None)

    async def write(self, status: Status) -> None:
        """Write a status, where that is due."""
        for file in self._files:
            await file.write(status)


class _File:
    """One file; a series of failures to write it is logged once."""

    def __init__(
        self,
        path: Path,
        mode: int,
        seconds: float,
        encode: Callable[[Status], str],
        reader: Callable[[Path], int | None] = lambda _: None,
    ) -> None:
        """``seconds`` pass from a change until it is written."""
        self._path = path
        self._mode = mode
        self._seconds = seconds
        self._encode = encode
        self._reader = reader
        self._failing = False
        self._written: Status | None = None
        self._changed_at = 0.0
        #: Seconds from the last status until a change is due, None without one.
        self.waits: float | None = None
        remove_stale(path)

    async def write(self, status: Status) -> None:
        """Write a status if that is due."""
        if not _is_due(status, self._written, UNCHANGED_SECONDS):
            self.waits = None
            return
        if self.waits is None:
            self._changed_at = status.updated_at
        age = status.updated_at - self._changed_at
        recent = self._written is not None and 0 <= status.updated_at - self._written.updated_at < UNCHANGED_SECONDS
        if recent and 0 <= age < self._seconds and status.phase != "stopping":
            self.waits = self._seconds - age
            return
        self.waits = None
        if await self._replace(self._encode(status)):
            self._written = status

    async def _replace(self, text: str) -> bool:
        """Replace the content; return whether the disk took it."""
        try:
            await trio.to_thread.run_sync(self._replace_now, text)
        except OSError as error:
            if not self._failing:
                message = f"{self._path} cannot be written: {error.strerror}"
                log.warning(message, message_id=message_ids.STATUS_UNWRITTEN)
            self._failing = True
        else:
            self._failing = False
        return not self._failing

    def _replace_now(self, text: str) -> None:
        write_atomic(self._path, text, mode=self._mode, reader=self._reader(self._path))
