"""Repeated warnings are logged at first, then rarely, then once more at the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.logs.logger import Log
from supervisor.logs.throttle import REPEAT_TEXTS, RepeatLimiter


class Recorder(Log):
    def __init__(self) -> None:
        super().__init__("test")
        self.lines: list[tuple[str, str, dict[str, object]]] = []

    def info(self, message: str, /, **fields: object) -> None:
        self.lines.append(("info", message, fields))

    def warning(self, message: str, /, **fields: object) -> None:
        self.lines.append(("warning", message, fields))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log() -> Recorder:
    return Recorder()


@pytest.fixture
def limiter(log: Recorder, clock: Clock) -> RepeatLimiter:
    return RepeatLimiter(log, clock=clock)


def test_the_first_warning_is_logged_and_the_second_is_not(limiter: RepeatLimiter, log: Recorder) -> None:
    assert limiter.failing("api", "no answer", attempt=1)
    assert not limiter.failing("api", "no answer", attempt=2)
    assert log.lines == [("warning", "no answer", {"attempt": 1})]


def test_repeats_come_at_growing_distance_with_their_number(
    limiter: RepeatLimiter, log: Recorder, clock: Clock
) -> None:
    start, logged = clock.now, []
    for _ in range(6 * 3600):
        if limiter.failing("api", "no answer"):
            logged.append(clock.now - start)
        clock.now += 1
    assert logged == [0, 60, 180, 420, 900, 1860, 3780, 7380, 10980, 14580, 18180]
    assert log.lines[1] == ("warning", "no answer", {"held_back": 59, "failing_seconds": 60})


def test_a_new_text_is_logged_at_once(limiter: RepeatLimiter) -> None:
    assert limiter.failing("api", "no answer")
    assert limiter.failing("api", "401")
    assert not limiter.failing("api", "no answer")
    assert not limiter.failing("api", "401")


def test_subjects_do_not_disturb_one_another(limiter: RepeatLimiter) -> None:
    assert limiter.failing("api", "no answer")
    assert limiter.failing("frr", "no answer")


def test_the_end_is_logged_with_the_count_and_the_duration(limiter: RepeatLimiter, log: Recorder, clock: Clock) -> None:
    assert not limiter.recovered("api", "answers again")
    for _ in range(3):
        limiter.failing("api", "no answer")
        clock.now += 10
    assert limiter.recovered("api", "answers again")
    assert not limiter.recovered("api", "answers again")
    assert log.lines[-1] == ("info", "answers again", {"failures": 3, "failing_seconds": 30})


def test_a_new_episode_starts_from_zero(limiter: RepeatLimiter) -> None:
    limiter.failing("api", "no answer")
    limiter.recovered("api", "answers again")
    assert limiter.failing("api", "no answer")


@given(st.lists(st.text(max_size=3), max_size=400))
def test_texts_that_change_every_time_cannot_flood(texts: list[str]) -> None:
    log = Recorder()
    limiter = RepeatLimiter(log, clock=Clock())
    for text in texts:
        limiter.failing("api", f"m{text}")
    assert len(log.lines) <= REPEAT_TEXTS + 1
