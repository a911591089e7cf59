"""Warnings that repeat for hours, said a few times.

An actor that retries must not fill the journal, and must not fall silent either: the limiter keeps the first, thins out
the rest, and says when it is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from .logger import Log

#: First distance between repeated warnings, and the largest, in seconds.
REPEAT_FIRST_SECONDS: Final = 60.0
REPEAT_LONGEST_SECONDS: Final = 3600.0
#: Different texts told apart in one episode: a text with a counter in it must not make the limiter useless.
REPEAT_TEXTS: Final = 16


@dataclass(slots=True)
class _Repeat:
    """One text's history in an episode: ``due`` is when it may be said again."""

    due: float
    gap: float
    suppressed: int = 0


@dataclass(slots=True)
class _Episode:
    began: float
    count: int = 0
    texts: dict[str, _Repeat] = field(default_factory=dict)


class RepeatLimiter:
    """Says once what fails over and over, then at growing distance, then that it is over.

    A ``subject`` is what is failing. Its first warning and each new text are logged at once, the same text again only
    after one minute, then two, four, up to an hour, with the number of times that it was held back.
    """

    def __init__(self, log: Log, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._episodes: dict[str, _Episode] = {}

    def failing(self, subject: str, message: str, /, **fields: object) -> bool:
        """Note one more failure of a subject; return whether it was logged."""
        now = self._clock()
        episode = self._episodes.setdefault(subject, _Episode(now))
        episode.count += 1
        known = message in episode.texts or len(episode.texts) < REPEAT_TEXTS
        key = message if known else ""
        repeat = episode.texts.get(key)
        if repeat is None:
            episode.texts[key] = _Repeat(now + REPEAT_FIRST_SECONDS, REPEAT_FIRST_SECONDS)
            self._log.warning(message, **fields)
            return True
        if now < repeat.due:
            repeat.suppressed += 1
            return False
        elapsed = round(now - episode.began)
        self._log.warning(message, **{**fields, "held_back": repeat.suppressed, "failing_seconds": elapsed})
        repeat.gap = min(repeat.gap * 2, REPEAT_LONGEST_SECONDS)
        repeat.due, repeat.suppressed = now + repeat.gap, 0
        return True

    def recovered(self, subject: str, message: str, /, **fields: object) -> bool:
        """Say that a subject's failures are over; silent, and False, when it was not failing."""
        episode = self._episodes.pop(subject, None)
        if episode is None:
            return False
        elapsed = round(self._clock() - episode.began)
        self._log.info(message, **{**fields, "failures": episode.count, "failing_seconds": elapsed})
        return True
