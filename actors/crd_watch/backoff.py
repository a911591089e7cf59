"""What an error asks of a stream: a pure decision, so that each case can be read and tested by itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from actors.lib.kube.errors import (
    ApiError,
    CredentialsError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    ThrottledError,
    UnreachableError,
)
from supervisor.runtime.restart_policy import Backoff

#: For what a person has to mend: the first attempts are quick because a starting server may refuse for a moment.
SLOW: Final = Backoff(first=2, longest=60, jitter=0.5)
#: For what passes by itself.
USUAL: Final = Backoff(first=1, longest=30, jitter=0.5)
#: Most seconds before a list is read again: a restarted server must not meet all nodes' lists in one moment.
RELIST_SECONDS: Final = 3.0
GONE: Final = Backoff(first=RELIST_SECONDS, longest=60, jitter=0)
#: For a stream that keeps breaking although the server answers.
LOST: Final = Backoff(first=2, longest=10, jitter=0)
#: For a server that asks to be left alone. It says the same to all nodes, mostly a second, and that for as long as they
#: are too many: only ever longer waits make them fewer.
BUSY: Final = Backoff(first=1, longest=60, jitter=0.5)
#: After so many failures in a row of an unknown kind a version may be the reason.
PATIENCE: Final = 3


class Condition(StrEnum):
    """How a stream is doing."""

    WAITING = "waiting"
    LISTING = "listing"
    WATCHING = "watching"
    LOST = "lost"
    REFUSED = "refused"
    MISSING = "not installed"
    FAILING = "failing"


@dataclass(frozen=True, slots=True)
class Reaction:
    """What to do: the condition that shows, seconds to wait, whether to list again, whether to look for the server."""

    condition: Condition
    seconds: float = 0.0
    relist: bool = False
    closes_gate: bool = False


def react(error: ApiError, failures: int, chance: float) -> Reaction:
    """Return the reaction to the last of ``failures`` errors of its kind in a row; ``chance`` is random in [0, 1)."""
    match error:
        case UnreachableError() | CredentialsError():
            # The gate waits for the server, or for other credentials: this is for a stream alone in its trouble.
            seconds = chance * LOST.delay(failures, 0.5) if failures > 1 else 0.0
            return Reaction(Condition.LOST, seconds, closes_gate=True)
        case GoneError():
            return Reaction(Condition.LISTING, chance * GONE.delay(failures, 0.5), relist=True)
        case NotFoundError():
            return Reaction(Condition.MISSING, SLOW.delay(failures, chance), relist=True)
        case ForbiddenError():
            return Reaction(Condition.REFUSED, SLOW.delay(failures, chance))
        case ThrottledError():
            asked = (error.retry_after or 0.0) * (1 + chance / 2)
            # Never a list: a busy server is the last that should have to send one.
            return Reaction(Condition.FAILING, max(asked, BUSY.delay(failures, chance)))
        case _:
            return Reaction(Condition.FAILING, USUAL.delay(failures, chance), relist=failures >= PATIENCE)
