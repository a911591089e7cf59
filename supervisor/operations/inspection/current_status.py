"""The router's status from the daemon, or from the state file if the daemon does not run or answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from config.status import Status, StatusFormatError

from ..control_client import ANSWER_SECONDS, NoAnswerError, NotRunningError, ask
from ..exit_codes import NO_ANSWER, NOT_RUNNING, OK, CommandError
from ..paths import CONTROL_SOCKET, STATE_FILE


@dataclass(frozen=True, slots=True)
class CurrentStatus:
    """A status. If it is the last one of a daemon that does not answer, ``why`` and ``code`` (an exit code) are set."""

    status: Status
    why: str = ""
    code: int = OK

    @property
    def is_last(self) -> bool:
        """Whether this is the last known status."""
        return self.code != OK


def read_status(directory: Path) -> CurrentStatus:
    """Return the daemon's status, or its last one; ``directory`` is its runtime directory.

    Raises :class:`CommandError` if there is neither, and ``PermissionError`` unless run as root.
    """
    try:
        status = next(statuses(directory, "status"), None)
    except NotRunningError:
        return _last(directory, "the daemon is not running", NOT_RUNNING)
    except (NoAnswerError, StatusFormatError) as error:
        return _last(directory, str(error), NO_ANSWER)
    if status is None:
        return _last(directory, "the daemon closed the connection without an answer", NO_ANSWER)
    return CurrentStatus(status)


def statuses(directory: Path, verb: str, seconds: float | None = None) -> Iterator[Status]:
    """Yield what the daemon answers to ``status`` (once) or ``watch`` (each change, after ``seconds`` at the most).

    Errors as of ``ask``, and StatusFormatError.
    """
    seconds = seconds if verb == "watch" else ANSWER_SECONDS
    for answer in ask(directory / CONTROL_SOCKET, {"verb": verb}, seconds=seconds):
        if not isinstance(answer, dict) or "status" not in answer:
            raise NoAnswerError(f"the daemon refuses: {answer.get('error') if isinstance(answer, dict) else answer}")
        yield Status.from_data(answer["status"])


def _last(directory: Path, why: str, code: int) -> CurrentStatus:
    path = directory / STATE_FILE
    try:
        return CurrentStatus(Status.from_json(path.read_bytes()), why, code)
    except FileNotFoundError:
        raise CommandError(f"{why}, and left no status in {path}", code) from None
    except StatusFormatError as error:
        raise CommandError(f"{why}, and its last status in {path} cannot be read: {error}", code) from None
