"""A configuration on trial: in force instead of the files until its deadline, unless it is confirmed before.

An operator who changes a node's underlay may cut off the very connection that they work over. So a trial, texts and
deadline, is on disk before any of it is applied, and ending it is the daemon's business: it survives the death of the
terminal that it was started from, of the daemon, and of the machine. A trial never outlives the boot it was started in.

The command line starts, confirms and reverts; the daemon reads :func:`current_trial` whenever these files change:

    trial.json             a trial with a deadline
    trial-accepted.json    the same file, renamed by a confirmation: no deadline, while its texts are written into the
                           configuration directory
    trial-ended.json       how the last one ended, without its texts
    before-trial/ID/       the files as they were before the newest confirmed trial

``rename`` and ``unlink`` of the first file decide between a confirmation and the deadline: exactly one of them finds
it. The daemon uses the texts on trial until the second file is gone, so it never sees half of the new files, however
often a confirmation is interrupted; every step may be repeated, and until the last one all can be taken back. How it
ended is on disk by then: with ``autoApply: false`` that decides whether the files count (:mod:`.waiting`). The files
hold passwords, so no one but root can read them.
"""

from __future__ import annotations

import math
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.atomic_file import remove_stale, sync_directory, write_atomic

log = get_logger("static_config")

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
ACCEPTED_FILE: Final = "trial-accepted.json"
SAVED: Final = "before-trial"
#: Of a configuration directory that has to be made, as in the package.
_DIRECTORY_MODE: Final = 0o750
_REVERTED: Final = "the trial is reverted; the files are in force again"
NOT_CONFIRMED: Final = "it was not confirmed in time"
RESTARTED: Final = "the machine was restarted before it was confirmed"


class TrialError(Exception):
    """The request does not fit the state of the trial; the text is for the user."""


class TrialDamagedError(TrialError):
    """A stored trial cannot be read. The text never quotes it."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time that no clock adjustment moves: seconds since the boot called ``boot_id``, with those of suspension."""

    boot_id: str
    seconds: float


def now() -> Moment:
    """Return the present."""
    return Moment(_BOOT_ID.read_text().strip(), time.clock_gettime(time.CLOCK_BOOTTIME))


def _file_name(name: str) -> str:
    if not name or "/" in name or name in {".", ".."}:
        raise ValueError("not the name of a file in a directory")
    return name


FileName = Annotated[str, AfterValidator(_file_name)]


@dataclass(frozen=True, slots=True)
class Trial:
    """A whole router configuration, and what confirming it changes in its directory.

    ``texts`` are all files by their final path, at least one; ``changed`` are the names of those to write and
    ``modes`` their permission bits, ``removed`` the names to remove. ``deadline`` is in seconds of ``boot_id``;
    ``ends_at`` is the same in Unix time, for people only. ``version`` grows when the meaning changes; an unknown one
    counts as damaged.
    """

    texts: Annotated[Mapping[str, str], Field(min_length=1)] = field(repr=False)
    changed: tuple[FileName, ...]
    removed: tuple[FileName, ...]
    modes: Mapping[str, int]
    boot_id: str
    deadline: float
    ends_at: float
    id: FileName = field(default_factory=lambda: secrets.token_hex(4))
    accepted: bool = False
    version: Literal[1] = 1

    @property
    def directory(self) -> Path:
        """Return the configuration directory."""
        return Path(next(iter(self.texts))).parent

    def left(self, moment: Moment) -> float:
        """Return the seconds that are left: 0 when the time is over, infinity once it is confirmed."""
        if self.accepted:
            return math.inf
        return max(0.0, self.deadline - moment.seconds) if moment.boot_id == self.boot_id else 0.0

    def __str__(self) -> str:
        count = len(self.changed) + len(self.removed)
        files = f"{count} changed file{'' if count == 1 else 's'}"
        if self.accepted:
            return f"a trial of {files}, confirmed but not completely written yet"
        return f"a trial of {files} until {time.strftime('%H:%M:%S %Z', time.localtime(self.ends_at))}"


@dataclass(frozen=True, slots=True)
class TrialEnding:
    """How a trial ended: ``at`` is in Unix seconds."""

    id: str
    confirmed: bool
    reason: str
    at: float


@cache
def _trial() -> TypeAdapter[Trial]:
    """Return the schema, which most starts do without."""
    return TypeAdapter(Trial)


@cache
def _ending() -> TypeAdapter[TrialEnding]:
    return TypeAdapter(TrialEnding)


def to_json(trial: Trial) -> str:
    """Return a trial as it is stored. It may hold passwords. Whether it is accepted is in the file's name."""
    return _trial().dump_json(trial, indent=1, exclude={"accepted"}).decode() + "\n"


class Journal:
    """The trial on disk. Used by the daemon and by the command line at the same time. Methods raise ``OSError``."""

    def __init__(self, state_dir: Path, clock: Callable[[], Moment] = now) -> None:
        self._directory = state_dir
        self._clock = clock
        self.open_file = state_dir / "trial.json"
        self.accepted_file = state_dir / ACCEPTED_FILE
        self.ended_file = state_dir / "trial-ended.json"

    def left(self, trial: Trial) -> float:
        """Return the seconds that a trial has left."""
        return trial.left(self._clock())

    def why_over(self, trial: Trial) -> str:
        """Return why a trial without time left has none."""
        return NOT_CONFIRMED if trial.boot_id == self._clock().boot_id else RESTARTED

    def load(self) -> Trial | None:
        """Return the trial on disk, its time over or not. Raises :class:`TrialDamagedError`."""
        for path, accepted in ((self.open_file, False), (self.accepted_file, True)):
            try:
                return replace(_trial().validate_json(path.read_bytes()), accepted=accepted)
            except FileNotFoundError:
                continue
            except ValidationError:
                raise TrialDamagedError("the stored trial cannot be read") from None
        return None

    def start(self, trial: Trial) -> None:
        """Put a trial on disk, which puts it in force. Raises :class:`TrialError` when there is one already."""
        if self.accepted_file.exists():
            raise TrialError(
                "an earlier trial was confirmed but not completed: openperouter try --confirm completes it"
            )
        staged = self._directory / f"trial-{trial.id}.json"
        write_atomic(staged, to_json(trial), mode=0o600)
        try:
            os.link(staged, self.open_file)
        except FileExistsError:
            raise TrialError("a trial is in force already: openperouter try --confirm or --revert ends it") from None
        finally:
            staged.unlink()
        sync_directory(self._directory)

    def accept(self, trial: Trial) -> Trial:
        """Lift the deadline. Raises :class:`TrialError` when it has passed or the trial has ended otherwise."""
        stored = self.load()
        if stored is None or stored.id != trial.id:
            raise TrialError(self.how_ended(trial.id))
        if stored.accepted:
            return stored
        if self.left(stored) <= 0:
            raise TrialError("too late: the trial has expired and is being reverted")
        try:
            self.open_file.rename(self.accepted_file)
        except FileNotFoundError:
            raise TrialError(self.how_ended(trial.id)) from None
        sync_directory(self._directory)
        return replace(stored, accepted=True)

    def complete(self, accepted: Trial) -> Path:
        """Write an accepted trial into the configuration directory and end it; return where the old files are saved.

        For the command line only: the daemon never writes to /etc.
        """
        saved = self.saved_directory(accepted)
        _save_old_files(accepted, saved)
        _write_new_files(accepted)
        self._end_accepted(TrialEnding(accepted.id, True, "it was confirmed", time.time()))
        return saved

    def revert(self, trial: Trial, reason: str) -> bool:
        """End a trial so that the files are in force again; return False when it has ended or was confirmed before.

        What an interrupted :meth:`complete` has written is taken back first.
        """
        stored = self.load()
        if stored is None or (stored.id, stored.accepted) != (trial.id, trial.accepted):
            return False
        ending = TrialEnding(trial.id, False, reason, time.time())
        if not stored.accepted:
            return self._end_open(ending)
        _restore_old_files(stored, self.saved_directory(stored))
        self._end_accepted(ending)
        return True

    def discard_damaged(self) -> None:
        """Remove a trial that cannot be read."""
        self.open_file.unlink(missing_ok=True)
        self.accepted_file.unlink(missing_ok=True)
        sync_directory(self._directory)

    def saved_directory(self, trial: Trial) -> Path:
        """Return where the files are as they were before a trial was confirmed."""
        return self._directory / SAVED / trial.id

    def last(self) -> TrialEnding | None:
        """Return how the last trial ended, None when that is unknown."""
        try:
            return _ending().validate_json(self.ended_file.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def how_ended(self, trial_id: str) -> str:
        """Return one sentence on how a trial ended."""
        ending = self.last()
        if ending is None or ending.id != trial_id:
            return "the trial is over"
        return f"the trial was {'kept' if ending.confirmed else 'reverted'}: {ending.reason}"

    def _end_open(self, ending: TrialEnding) -> bool:
        """Remove the trial, which decides whether it ends, and then write how it ended."""
        try:
            self.open_file.unlink()
        except FileNotFoundError:
            return False
        sync_directory(self._directory)
        self._write_ending(ending)
        return True

    def _end_accepted(self, ending: TrialEnding) -> None:
        """Write how the trial ended, and then remove it: the daemon must not see the files without knowing that."""
        self._write_ending(ending)
        self.accepted_file.unlink(missing_ok=True)
        sync_directory(self._directory)

    def _write_ending(self, ending: TrialEnding) -> None:
        write_atomic(self.ended_file, _ending().dump_json(ending), mode=0o600)


def current_trial(journal: Journal) -> Trial | None:
    """Return the trial that is in force; end one whose time is over. For the daemon alone, and never raises.

    A disk on which a trial cannot be removed does not keep it in force: its time is over.
    """
    try:
        while (trial := journal.load()) is not None and journal.left(trial) <= 0:
            reason = journal.why_over(trial)
            if journal.revert(trial, reason):
                log.warning(_REVERTED, message_id=message_ids.TRIAL_REVERTED, reason=reason, trial=trial.id)
    except TrialDamagedError as error:
        log.warning(_REVERTED, message_id=message_ids.TRIAL_REVERTED, reason=error)
        _discard(journal)
        return None
    except OSError as error:
        message = "the trial's journal is not usable; the files are in force"
        log.warning(message, message_id=message_ids.TRIAL_DAMAGED, file=journal.open_file, error=error)
        return None
    return trial


def _discard(journal: Journal) -> None:
    try:
        journal.discard_damaged()
    except OSError as error:
        message = "the damaged trial cannot be removed"
        log.warning(message, message_id=message_ids.TRIAL_DAMAGED, file=journal.open_file, error=error)


def _save_old_files(trial: Trial, saved: Path) -> None:
    """Save the files that a trial changes, those of the newest confirmed trial only."""
    for directory in (saved.parent, saved):
        # With "parents" only the last one would get the mode.
        directory.mkdir(mode=0o700, exist_ok=True)
    for older in saved.parent.iterdir():
        if older != saved:
            shutil.rmtree(older)
    for name in (*trial.changed, *trial.removed):
        path = trial.directory / name
        # What an interrupted run has written already was saved by that run.
        if path.exists() and not _is_written(trial, path):
            _copy(path, saved / name)


def _write_new_files(trial: Trial) -> None:
    trial.directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    for name in trial.changed:
        path = trial.directory / name
        remove_stale(path)
        if path.exists():
            status = path.stat()
            mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
            write_atomic(path, trial.texts[str(path)], mode=mode, owner=owner)
        else:
            write_atomic(path, trial.texts[str(path)], mode=trial.modes.get(name, 0o600) & 0o777)
    for name in trial.removed:
        (trial.directory / name).unlink(missing_ok=True)
    sync_directory(trial.directory)


def _restore_old_files(trial: Trial, saved: Path) -> None:
    for name in (*trial.changed, *trial.removed):
        path = trial.directory / name
        remove_stale(path)
        if (saved / name).exists():
            _copy(saved / name, path)
        elif path.exists() and _is_written(trial, path):
            path.unlink()
    sync_directory(trial.directory)


def _is_written(trial: Trial, path: Path) -> bool:
    return path.name in trial.changed and path.read_bytes() == trial.texts[str(path)].encode()


def _copy(source: Path, target: Path) -> None:
    status = source.stat()
    owner = (status.st_uid, status.st_gid)
    write_atomic(target, source.read_bytes(), mode=stat.S_IMODE(status.st_mode), owner=owner)
