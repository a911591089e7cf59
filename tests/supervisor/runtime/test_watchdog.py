"""systemd's watchdog is notified while the critical children work, and only then."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from supervisor.runtime.actor import ActorContext
from supervisor.runtime.child import ChildState, ChildStatus
from supervisor.runtime.watchdog import complaint, run, watchdog_period

WORKS = ChildStatus("frr", ChildState.RUNNING, critical=True, mode="idle")
FROZEN = replace(WORKS, mode="busy", progress_age=61, frozen=True)
OVERDUE = replace(WORKS, mode="working", activity="frr-reload", frozen=True)


@dataclass
class Watchdog:
    """Records when it was notified."""

    notified: list[float] = field(default_factory=list)

    def notify(self) -> None:
        self.notified.append(trio.current_time())


@pytest.mark.parametrize(
    "status",
    [
        WORKS,
        replace(WORKS, progress_age=1e9),
        replace(FROZEN, frozen=False),
        replace(FROZEN, critical=False),
        replace(OVERDUE, frozen=False, progress_age=1e9),
        *(replace(WORKS, mode="busy", state=state) for state in (ChildState.STARTING, ChildState.BACKOFF)),
    ],
)
def test_a_child_that_is_idle_or_within_its_deadline_or_restarting_is_fine(status: ChildStatus) -> None:
    assert complaint([status]) is None


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (FROZEN, "frr made no progress for 61 s"),
        (OVERDUE, "frr is overdue in: frr-reload"),
        (replace(WORKS, stuck=True, state=ChildState.STOPPING), "frr does not end"),
        (replace(WORKS, state=ChildState.FAILED, last_error="no"), "frr failed: no"),
    ],
)
def test_a_critical_child_that_does_not_work_is_named(status: ChildStatus, words: str) -> None:
    assert words in (complaint([WORKS, status]) or "")


async def test_notifications_come_at_once_and_then_every_quarter_of_the_period(autojump_clock: MockClock) -> None:
    systemd = Watchdog()
    with trio.move_on_after(100):
        await run(ActorContext("watchdog"), notify=systemd.notify, snapshot=lambda: [WORKS], period=60)
    assert systemd.notified == [0, 15, 30, 45, 60, 75, 90]


async def test_notifications_stop_while_a_child_is_frozen_and_each_change_is_logged_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="openperouter")
    systemd = Watchdog()

    def snapshot() -> list[ChildStatus]:
        return [FROZEN if 20 < trio.current_time() < 70 else WORKS]

    with trio.move_on_after(100):
        await run(ActorContext("watchdog"), notify=systemd.notify, snapshot=snapshot, period=60)
    assert systemd.notified == [0, 15, 75, 90]
    assert [record.getMessage() for record in caplog.records] == [
        "no longer notifying systemd's watchdog",
        "notifying systemd's watchdog again",
    ]


async def test_a_notification_is_withheld_when_the_event_loop_was_late(mock_clock: MockClock) -> None:
    systemd = Watchdog()
    async with trio.open_nursery() as nursery:

        async def keep_notifying() -> None:
            await run(ActorContext("watchdog"), notify=systemd.notify, snapshot=lambda: [WORKS], period=60)

        nursery.start_soon(keep_notifying)
        for seconds in (15, 29, 32, 15):
            await wait_all_tasks_blocked()
            mock_clock.jump(seconds)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert systemd.notified == [0, 15, 44, 91]


async def test_without_a_period_nothing_is_notified_and_the_child_is_idle(autojump_clock: MockClock) -> None:
    systemd, ctx = Watchdog(), ActorContext("watchdog")
    async with trio.open_nursery() as nursery:

        async def keep_notifying() -> None:
            await run(ctx, notify=systemd.notify, snapshot=lambda: [WORKS], period=None)

        nursery.start_soon(keep_notifying)
        await trio.sleep(1000)
        assert (ctx.has_started, ctx.mode, systemd.notified) == (True, "idle", [])
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("environment", "period"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "60000000"}, 60),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "7"}, 60),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_period_is_the_one_that_systemd_sets_for_this_process(
    environment: dict[str, str], period: float | None
) -> None:
    assert watchdog_period(environment, 7) == period


def test_the_current_period_is_this_process_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "2000000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    assert watchdog_period() == 2
