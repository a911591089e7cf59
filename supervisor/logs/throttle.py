"""Rate limit for warnings that repeat for hours.

An actor that retries must not fill the journal, and must not fall silent either: the limiter logs the first warning,
thins out the repeats, and logs the recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from .logger import Log

#: First distance between repeated warnings, and the largest, in seconds.
REPEAT_FIRST_SECONDS: Final = 60.0
REPEAT_LONGEST_SECONDS: Final = 3600.0
#: Texts that count as different in one episode: one with a counter in it must not defeat the limiter.
REPEAT_TEXTS: Final = 16


@dataclass(slots=True)
class _Repeat:
    """One text's history in an episode: ``due`` is when it may be logged again."""

    due: float
    gap: float
    suppressed: int = 0


@dataclass(slots=True)
class _Episode:
    began: float
    count: int = 0
    texts: dict[str, _Repeat] = field(default_factory=dict)


class RepeatLimiter:
    """Logs a repeating failure at first, then at growing intervals, then its end.

    A ``subject`` is what is failing. Its first warning and each new text are logged at once, the same text again only
    after one minute, then two, four, up to an hour, with the number of repeats in between. ``clock`` is in seconds.
    """

    def __init__(self, log: Log, *, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._episodes: dict[str, _Episode] = {}

    def failing(self, subject: str, message: str, /, **fields: object) -> bool:
        """Count one more failure of a subject; return whether it was logged."""
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
        """Log that a subject's failures are over; return False, and log nothing, when it was not failing."""
        episode = self._episodes.pop(subject, None)
        if episode is None:
            return False
        elapsed = round(self._clock() - episode.began)
        self._log.info(message, **{**fields, "failures": episode.count, "failing_seconds": elapsed})
        return True
