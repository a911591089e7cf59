"""One trial as seen from the terminal or by a program: its outcome, and the question whether to keep it.

Nothing here is needed for a trial to be reverted: the daemon does that when the time is over. This only makes it
happen at once when the terminal hangs up, the user interrupts, or the input ends.
"""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from actors.static_config.trial import Journal, Trial, TrialError
from config.problems import errors
from config.status import Status, StatusFormatError, what_remains
from supervisor.operations.control_client import NoAnswerError, NotRunningError, ReloadOutcome, reload
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.inspection.current_status import statuses
from supervisor.operations.paths import CONTROL_SOCKET

from ...terminal import is_quiet, print_line, print_problems, say

if TYPE_CHECKING:
    from config.desired import ResourceFailure
    from config.problems import Problem

#: The daemon's own limit for one reload request.
LONGEST_RELOAD_SECONDS: Final = 600.0
#: Returns to the start of a terminal's line and clears it (ECMA-48).
_REWRITE: Final = "\r\033[K"


class HangupError(Exception):
    """The terminal is gone, or this process was asked to terminate."""


@dataclass
class Report:
    """What happens to a trial: lines at once for people, or only ``data`` at the end for programs (``silent``)."""

    run_dir: Path
    silent: bool = False
    data: dict[str, Any] = field(default_factory=lambda: {"problems": [], "outcome": None})

    def problems(self, problems: Sequence[Problem]) -> bool:
        """Report what is wrong with the files; return whether there are errors."""
        from supervisor.operations.documents import problem_document

        self.data["problems"] = [problem_document(problem) for problem in problems]
        if not self.silent:
            print_problems(problems)
        return bool(errors(problems))

    def reload(self, seconds: float, good: str, bad: str) -> bool:
        """Make the daemon read what is there now; report its progress and one of two phrases with the outcome."""
        seconds = min(max(seconds, 1.0), LONGEST_RELOAD_SECONDS)
        try:
            outcome = reload(self.run_dir / CONTROL_SOCKET, seconds, lambda line: say(f"  {line}"))
        except CommandError as error:
            outcome = _unknown(error)
        return self._outcome(outcome, good, bad)

    def ended(self, journal: Journal, seconds: float, good: str, bad: str) -> bool:
        """Wait until the daemon has what was in force before a trial; report that as :meth:`reload` does.

        It notices the end of a trial by itself. A reload would also take in files that wait for one, and confirm that
        a directory that may not be mounted is gone.
        """
        try:
            outcome = _restored(self.run_dir, journal, seconds)
        except (CommandError, StatusFormatError) as error:
            outcome = _unknown(error)
        return self._outcome(outcome, good, bad)

    def _outcome(self, outcome: ReloadOutcome, good: str, bad: str) -> bool:
        self.data["outcome"] = {"ok": outcome.ok, "message": outcome.text, "problems": outcome.problems}
        if not self.silent and not (outcome.ok and is_quiet()):
            print_line(f"{good if outcome.ok else bad}: {outcome.text}", "good" if outcome.ok else "warn")
            for problem in outcome.problems:
                print_line(f"  {problem}", "bad")
            sys.stdout.flush()
        return outcome.ok


def _restored(run_dir: Path, journal: Journal, seconds: float) -> ReloadOutcome:
    """Wait until a status is verified and without a trial; print its progress. Raises :class:`CommandError`."""
    on_trial = {str(journal.open_file), str(journal.accepted_file)}
    shown, latest = "", time.monotonic() + seconds
    try:
        for status in statuses(run_dir, "watch", max(seconds, 1.0)):
            if status.ready and not any(str(problem.origin) in on_trial for problem in status.problems):
                return _decided(status)
            if status.summary != shown:
                shown = status.summary
                say(f"  {shown}")
            if time.monotonic() >= latest:
                break
        else:
            raise NotRunningError("the daemon ended before this was verified")
    except NoAnswerError:
        # A status that stays the same is not sent again.
        if not shown:
            raise
    return ReloadOutcome(False, f"not verified within {seconds:g} s: {shown}")


def _decided(status: Status) -> ReloadOutcome:
    """Return the outcome of a verified status. As with a reload, what the API has does not count."""
    # An origin is one text in a status that was read: an object's has no leading slash.
    found: list[Problem | ResourceFailure] = [*errors(status.problems), *status.failures]
    complaints = tuple(str(one) for one in found if not one.origin.path or one.origin.path.startswith("/"))
    return ReloadOutcome(not complaints, what_remains(len(complaints)) if complaints else status.summary, complaints)


def _unknown(error: Exception) -> ReloadOutcome:
    return ReloadOutcome(False, f"{error}; the daemon continues from here once it is back")


def ask_to_keep(journal: Journal, trial: Trial) -> bool:
    """Wait for ENTER; return False when the trial ends before. Raises ``EOFError`` at the end of the input."""
    prompt = _Prompt()
    try:
        while (left := journal.left(trial)) > 0 and _is_open(journal, trial):
            prompt.show(left)
            if prompt.wait_for_enter(min(left, 1.0)):
                return True
    finally:
        prompt.close()
    return False


def _is_open(journal: Journal, trial: Trial) -> bool:
    try:
        stored = journal.load()
    except TrialError:
        return False
    return stored is not None and stored.id == trial.id and not stored.accepted


class _Prompt:
    """The question: on a terminal it counts down in its line, elsewhere it is printed once."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno() if sys.stdin is not None else None
        self._live = sys.stdout.isatty()
        self._shown = False
        if self._input is not None and os.isatty(self._input):
            # An ENTER from before the question does not answer it.
            termios.tcflush(self._input, termios.TCIFLUSH)

    def show(self, left: float) -> None:
        text = f"Press ENTER to keep it; it is reverted in {math.ceil(left)} s (at once with Ctrl-C) "
        if self._live:
            print(f"{_REWRITE}{text}", end="", flush=True)
        elif not self._shown:
            print(text, flush=True)
        self._shown = True

    def wait_for_enter(self, seconds: float) -> bool:
        if self._input is None:
            raise EOFError
        ready, _, _ = select.select([self._input], [], [], seconds)
        if not ready:
            return False
        received = os.read(self._input, 4096)
        if not received:
            raise EOFError
        return b"\n" in received

    def close(self) -> None:
        if self._live and self._shown:
            print(flush=True)


@contextmanager
def hangups_raised() -> Iterator[None]:
    """Turn a hangup and a request to terminate into :class:`HangupError`, unless they are ignored (nohup)."""

    def hang_up(number: int, _: FrameType | None) -> None:
        raise HangupError(signal.Signals(number).name)

    numbers = [n for n in (signal.SIGHUP, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    with _handled(numbers, hang_up):
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let nothing but SIGKILL interrupt what takes milliseconds and should be done completely."""
    with _handled([signal.SIGHUP, signal.SIGTERM, signal.SIGINT], signal.SIG_IGN):
        yield


@contextmanager
def _handled(
    numbers: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], Any] | signal.Handlers
) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def silence() -> None:
    """Discard all further output: every write to a terminal that has hung up fails."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(null, stream.fileno())
    os.close(null)
