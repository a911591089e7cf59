"""A configuration on trial: in force instead of the files until its time is over, unless somebody confirms it.

Whoever changes the underlay of a node may cut off the very connection that he works over. So the trial, texts and
deadline, is on disk before anything of it is applied, and ending it is this daemon's business: it survives the death of
the terminal that asked for it, of the daemon, and of the machine. A trial never outlives the boot it was started in.

Three files in the state directory are all there is; they hold passwords, hence mode 0600:

    trial.json             a trial with a deadline
    trial-accepted.json    the same file, renamed: it was confirmed and stays in force while it is written to its place
    trial-ended.json       how the last one ended, without its texts

``rename`` and ``unlink`` decide between a confirmation and the deadline: exactly one of them finds the file.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.atomic_file import write_atomic

log = get_logger("static_config")

#: Grows when the stored form changes its meaning; an unknown version counts as damaged, which ends the trial.
_VERSION: Final = 1
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
ACCEPTED_FILE: Final = "trial-accepted.json"
_REVERTED: Final = "the trial is reverted; the files are in force again"
NOT_CONFIRMED: Final = "it was not confirmed in time"
RESTARTED: Final = "the machine was restarted before it was confirmed"


class TrialError(Exception):
    """What was asked of a trial is not possible; the text is for the user."""


class TrialDamagedError(TrialError):
    """A stored trial is not what :func:`to_json` wrote. The text never quotes it."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time that no clock adjustment moves: seconds since the boot called ``boot_id``, with those of suspension."""

    boot_id: str
    seconds: float


def now() -> Moment:
    """Return the present."""
    return Moment(_BOOT_ID.read_text().strip(), time.clock_gettime(time.CLOCK_BOOTTIME))


@dataclass(frozen=True, slots=True)
class Trial:
    """A whole router configuration, and what confirming it changes in its directory.

    ``texts`` are all files by their final path; ``changed`` are the names of those to write and ``modes`` their
    permission bits, ``removed`` the names to remove. ``deadline`` is in seconds of ``boot_id``; ``ends_at`` says the
    same in Unix time, for people only.
    """

    texts: Mapping[str, str] = field(repr=False)
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    modes: Mapping[str, int]
    boot_id: str
    deadline: float
    ends_at: float
    id: str = field(default_factory=lambda: secrets.token_hex(4))
    accepted: bool = False

    def left(self, moment: Moment) -> float:
        """Return the seconds that are left: 0 when the time is over, infinity once it is confirmed."""
        if self.accepted:
            return math.inf
        return max(0.0, self.deadline - moment.seconds) if moment.boot_id == self.boot_id else 0.0

    def __str__(self) -> str:
        count = len(self.changed) + len(self.removed)
        files = f"{count} changed file{'' if count == 1 else 's'}"
        if self.accepted:
            return f"a trial of {files}, confirmed but not written to its place yet"
        return f"a trial of {files} until {time.strftime('%H:%M:%S %Z', time.localtime(self.ends_at))}"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a trial ended: ``at`` is in Unix seconds."""

    id: str
    confirmed: bool
    reason: str
    at: float


def to_json(trial: Trial) -> str:
    """Return a trial as text. It may hold passwords."""
    document = {"version": _VERSION, **asdict(trial)}
    del document["accepted"]  # the file's name says that
    return json.dumps(document, indent=1) + "\n"


def from_json(text: str) -> Trial:
    """Return what :func:`to_json` wrote; raise :class:`TrialDamagedError` otherwise."""
    try:
        stored: Any = json.loads(text)
        if stored["version"] != _VERSION:
            raise TrialDamagedError("the stored trial is of another version")
        return Trial(
            texts={str(path): _text(content) for path, content in stored["texts"].items()},
            changed=tuple(map(_name, stored["changed"])),
            removed=tuple(map(_name, stored["removed"])),
            modes={str(name): int(mode) & 0o777 for name, mode in stored["modes"].items()},
            boot_id=_text(stored["boot_id"]),
            deadline=float(stored["deadline"]),
            ends_at=float(stored["ends_at"]),
            id=_text(stored["id"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise TrialDamagedError("the stored trial cannot be understood") from None


def _text(value: object) -> str:
    """Return a text that a file can hold: JSON can spell halves of characters, which UTF-8 has not."""
    if not isinstance(value, str):
        raise TypeError
    value.encode("utf-8")
    return value


def _name(value: object) -> str:
    """Return a file name; one that would lead out of the directory is no name."""
    name = _text(value)
    if not name or "/" in name or name in {".", ".."}:
        raise ValueError
    return name


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
                return replace(from_json(path.read_text(encoding="utf-8")), accepted=accepted)
            except FileNotFoundError:
                continue
            except UnicodeDecodeError:
                raise TrialDamagedError("the stored trial is not text") from None
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
        self._sync()

    def accept(self, trial: Trial) -> Trial:
        """Lift the deadline. Raises :class:`TrialError` when it has passed or the trial has ended otherwise."""
        stored = self.load()
        if stored is None or stored.id != trial.id:
            raise TrialError(self.how_ended(trial.id))
        if stored.accepted:
            return stored
        if self.left(stored) <= 0:
            raise TrialError("too late: the time of the trial is over, and it is being reverted")
        try:
            self.open_file.rename(self.accepted_file)
        except FileNotFoundError:
            raise TrialError(self.how_ended(trial.id)) from None
        self._sync()
        return replace(stored, accepted=True)

    def finish(self, trial: Trial) -> None:
        """End a confirmed trial whose files are in their place."""
        self._end(self.accepted_file, Ending(trial.id, True, "it was confirmed", time.time()))

    def revert(self, trial: Trial, reason: str) -> bool:
        """End a trial so that the files are in force again; return False when it has ended or was confirmed before."""
        path = self.accepted_file if trial.accepted else self.open_file
        stored = self.load()
        if stored is None or (stored.id, stored.accepted) != (trial.id, trial.accepted):
            return False
        return self._end(path, Ending(trial.id, False, reason, time.time()))

    def discard_damaged(self) -> None:
        """Remove a trial that cannot be read."""
        self.open_file.unlink(missing_ok=True)
        self.accepted_file.unlink(missing_ok=True)
        self._sync()

    def last(self) -> Ending | None:
        """Return how the last trial ended, None when nothing is known."""
        try:
            stored = json.loads(self.ended_file.read_text(encoding="utf-8"))
            return Ending(str(stored["id"]), bool(stored["confirmed"]), str(stored["reason"]), float(stored["at"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def how_ended(self, trial_id: str) -> str:
        """Return one sentence on how a trial ended."""
        ending = self.last()
        if ending is None or ending.id != trial_id:
            return "the trial is over"
        return f"the trial was {'kept' if ending.confirmed else 'reverted'}: {ending.reason}"

    def _end(self, path: Path, ending: Ending) -> bool:
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        self._sync()
        write_atomic(self.ended_file, json.dumps(asdict(ending)) + "\n", mode=0o600)
        return True

    def _sync(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def current_trial(journal: Journal) -> Trial | None:
    """Return the trial that is in force; end one whose time is over. For the daemon alone, and never raises.

    A disk that refuses to forget a trial cannot keep it in force: its time is over all the same.
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
