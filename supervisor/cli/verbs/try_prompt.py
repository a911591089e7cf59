"""One trial seen from the terminal: what became of it, and the question whether to keep it.

Nothing here is needed for the trial to be reverted: the daemon does that when the time is over. What this adds is
haste: a terminal that hangs up, an interrupt and the end of the input revert at once.
"""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any, Final

from actors.static_config.trial import Journal, Trial, TrialError
from supervisor.operations.control_client import ANSWER_SECONDS, NoAnswerError, NotRunningError, ask

from ..options import CONTROL_SOCKET
from ..terminal import Painter, wants_colour

#: The daemon's own limit for one reload request.
LONGEST_RELOAD_SECONDS: Final = 600.0
#: Returns to the start of a terminal's line and clears it (ECMA-48).
_REWRITE: Final = "\r\033[K"


class DepartedError(Exception):
    """The terminal, or whoever else could answer, is gone."""


class Answer(Enum):
    """How the wait for the user ended."""

    KEEP = "keep"
    NO = "no"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a reload: ``ok`` only when all of the configuration is in force and verified."""

    ok: bool
    text: str
    problems: tuple[str, ...] = ()


def follow_reload(run_dir: Path, seconds: float) -> Outcome:
    """Ask the daemon to take in what is there now; print its progress, return the outcome."""
    seconds = min(max(seconds, 1.0), LONGEST_RELOAD_SECONDS)
    request = {"verb": "reload", "seconds": seconds}
    try:
        for answer in ask(run_dir / CONTROL_SOCKET, request, seconds=seconds + ANSWER_SECONDS):
            if "error" in answer:
                return Outcome(False, f"the daemon refuses: {answer['error']}")
            if answer.get("event") == "progress":
                print(f"  {answer.get('summary', '')}", flush=True)
            if answer.get("event") == "done":
                return _outcome(answer)
    except (NotRunningError, NoAnswerError) as error:
        return Outcome(False, f"{error}; it goes on from here when it is back")
    return Outcome(False, "the daemon ended meanwhile; it goes on from here when it is back")


def _outcome(done: dict[str, Any]) -> Outcome:
    if done.get("ok"):
        return Outcome(True, str(done.get("summary", "")))
    return Outcome(False, str(done.get("reason")), tuple(str(problem) for problem in done.get("problems", ())))


def show_outcome(good: str, bad: str, outcome: Outcome) -> None:
    """Print an outcome, led in by one of two words."""
    painter = Painter(colour=wants_colour())
    print(painter.paint(f"{good if outcome.ok else bad}: {outcome.text}", "good" if outcome.ok else "warn"))
    for problem in outcome.problems:
        print(painter.paint(f"  {problem}", "bad"))
    sys.stdout.flush()


def ask_to_keep(journal: Journal, trial: Trial) -> Answer:
    """Wait for ENTER, the end of the input, or the end of the trial."""
    question = _Question()
    try:
        while (left := journal.left(trial)) > 0 and _is_open(journal, trial):
            question.show(left)
            answer = question.receive(min(left, 1.0))
            if answer is not None:
                return answer
    finally:
        question.close()
    return Answer.OVER


def _is_open(journal: Journal, trial: Trial) -> bool:
    try:
        stored = journal.load()
    except TrialError:
        return False
    return stored is not None and stored.id == trial.id and not stored.accepted


class _Question:
    """The prompt: on a terminal it counts down in its line, elsewhere it is said once."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno() if sys.stdin is not None else None
        self._lively = sys.stdout.isatty()
        self._shown = False
        if self._input is not None and os.isatty(self._input):
            # An ENTER from before the question is no answer to it.
            termios.tcflush(self._input, termios.TCIFLUSH)

    def show(self, left: float) -> None:
        text = f"Press ENTER to keep it; it is reverted in {math.ceil(left)} s (at once with Ctrl-C) "
        if self._lively:
            print(f"{_REWRITE}{text}", end="", flush=True)
        elif not self._shown:
            print(text, flush=True)
        self._shown = True

    def receive(self, seconds: float) -> Answer | None:
        if self._input is None:
            return Answer.NO
        ready, _, _ = select.select([self._input], [], [], seconds)
        if not ready:
            return None
        received = os.read(self._input, 4096)
        if b"\n" in received:
            return Answer.KEEP
        return None if received else Answer.NO

    def close(self) -> None:
        if self._lively and self._shown:
            print(flush=True)


@contextmanager
def departures_raised() -> Iterator[None]:
    """Turn a hangup and a request to terminate into :class:`DepartedError`, unless they are ignored (nohup)."""

    def depart(number: int, _: FrameType | None) -> None:
        raise DepartedError(signal.Signals(number).name)

    numbers = [n for n in (signal.SIGHUP, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    with _handled(numbers, depart):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let nothing but SIGKILL interrupt what takes milliseconds and should be done whole."""
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
    """Send whatever is still said nowhere: a terminal that has hung up answers each write with an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
