"""What is reported to systemd, and when."""

from __future__ import annotations

from dataclasses import replace

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.systemd.actor import EXTEND_EVERY_SECONDS, PATIENCE_SECONDS, Handshake, run
from config.status import ReloadStatus, Status
from supervisor.process.sd_notify import Notifier
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest


class Recorder(Notifier):
    """Stands in for sd_notify: keeps what was sent, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []

    def ready(self) -> None:
        self.sent.append("READY")

    def reloading(self) -> None:
        self.sent.append("RELOADING")

    def status(self, text: str) -> None:
        self.sent.append(f"STATUS {text}")

    def extend_timeout(self, seconds: float) -> None:
        self.sent.append("EXTEND")

    def count(self, word: str) -> int:
        return self.sent.count(word)


class Scene:
    """The actor running against cells that a test writes."""

    def __init__(self) -> None:
        self.notifier = Recorder()
        self.handshake = Handshake()
        self.status: Latest[Status] = Latest("status")
        self.reload: Latest[int] = Latest("reload")

    async def play(self) -> None:
        await run(
            ActorContext("systemd"),
            notifier=self.notifier,
            handshake=self.handshake,
            status=self.status.reader(),
            reload=self.reload.reader(),
        )

    async def publish(self, status: Status) -> None:
        self.status.set(status)
        await wait_all_tasks_blocked()

    async def request(self, number: int) -> None:
        self.reload.set(number)
        await wait_all_tasks_blocked()


STARTING = Status(summary="waiting for FRR")
READY = Status(summary="ready: 1 session up", ready=True, phase="running")


async def test_ready_is_sent_once_and_only_when_the_status_is_ready(nursery: trio.Nursery) -> None:
    scene = Scene()
    nursery.start_soon(scene.play)
    await scene.publish(STARTING)
    assert scene.notifier.count("READY") == 0
    await scene.publish(READY)
    await scene.publish(replace(READY, summary="ready: 2 sessions up"))
    assert scene.notifier.count("READY") == 1
    assert scene.notifier.sent[-1] == "STATUS ready: 2 sessions up"


async def test_the_start_timeout_is_extended_until_ready_and_no_longer(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scene = Scene()
    nursery.start_soon(scene.play)
    await trio.sleep(EXTEND_EVERY_SECONDS * 5.5)
    assert scene.notifier.count("EXTEND") >= 5
    scene.status.set(READY)
    await trio.sleep(1)
    count = scene.notifier.count("EXTEND")
    await trio.sleep(EXTEND_EVERY_SECONDS * 5)
    assert scene.notifier.count("EXTEND") == count


async def test_a_start_that_takes_too_long_ends_with_a_late_status(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scene = Scene()
    nursery.start_soon(scene.play)
    scene.status.set(STARTING)
    await trio.sleep(PATIENCE_SECONDS - 1)
    assert scene.notifier.count("READY") == 0
    await trio.sleep(1 + EXTEND_EVERY_SECONDS)
    assert scene.notifier.count("READY") == 1
    sent = scene.notifier.sent
    assert sent[sent.index("READY") - 1] == "STATUS late: waiting for FRR"
    count = scene.notifier.count("EXTEND")
    await trio.sleep(PATIENCE_SECONDS)
    assert scene.notifier.count("READY") == 1
    assert scene.notifier.count("EXTEND") == count


async def test_what_comes_into_force_late_is_not_a_second_start(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scene = Scene()
    nursery.start_soon(scene.play)
    scene.status.set(STARTING)
    await trio.sleep(PATIENCE_SECONDS + EXTEND_EVERY_SECONDS)
    scene.status.set(READY)
    await trio.sleep(1)
    assert scene.notifier.count("STATUS ready: 1 session up") == 1
    assert scene.notifier.count("READY") == 1


async def test_a_restarted_actor_does_not_wait_longer_than_the_first(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scene = Scene()
    scene.status.set(STARTING)
    with trio.move_on_after(PATIENCE_SECONDS - 1):
        await scene.play()
    nursery.start_soon(scene.play)
    await trio.sleep(1 + EXTEND_EVERY_SECONDS)
    assert scene.notifier.count("READY") == 1


async def test_without_any_status_the_start_is_left_to_systemd(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scene = Scene()
    nursery.start_soon(scene.play)
    await trio.sleep(2 * PATIENCE_SECONDS)
    assert scene.notifier.count("READY") == 0
    assert scene.notifier.count("EXTEND") <= PATIENCE_SECONDS / EXTEND_EVERY_SECONDS


async def test_a_reload_is_announced_and_answered_when_it_is_verified(nursery: trio.Nursery) -> None:
    scene = Scene()
    nursery.start_soon(scene.play)
    await scene.publish(READY)
    await scene.request(1)
    assert scene.notifier.count("RELOADING") == 1
    assert scene.notifier.count("READY") == 1
    await scene.publish(replace(READY, reload=ReloadStatus(requested=1, taken_in=1, verified=1)))
    assert scene.notifier.count("READY") == 2


async def test_a_reload_before_anything_was_in_force_is_left_to_its_command(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It may never have an outcome, and systemd would wait for READY without end."""
    scene = Scene()
    nursery.start_soon(scene.play)
    scene.status.set(STARTING)
    await trio.sleep(PATIENCE_SECONDS + EXTEND_EVERY_SECONDS)
    assert scene.notifier.count("READY") == 1
    scene.reload.set(1)
    await trio.sleep(1)
    scene.status.set(READY)
    await trio.sleep(1)
    assert scene.notifier.count("RELOADING") == 0
    scene.reload.set(2)
    await trio.sleep(1)
    assert scene.notifier.count("RELOADING") == 1


async def test_a_failed_reload_is_answered_too(nursery: trio.Nursery) -> None:
    scene = Scene()
    nursery.start_soon(scene.play)
    await scene.publish(READY)
    await scene.request(1)
    await scene.publish(replace(READY, reload=ReloadStatus(requested=1, taken_in=1, failed=1, reason="refused")))
    assert scene.notifier.count("READY") == 2


async def test_a_status_of_before_the_reload_does_not_answer_it(nursery: trio.Nursery) -> None:
    scene = Scene()
    nursery.start_soon(scene.play)
    await scene.publish(READY)
    await scene.request(2)
    await scene.publish(replace(READY, reload=ReloadStatus(requested=1, taken_in=1, verified=1)))
    assert scene.notifier.count("READY") == 1


async def test_a_reload_before_ready_needs_no_announcement(nursery: trio.Nursery) -> None:
    scene = Scene()
    nursery.start_soon(scene.play)
    await scene.request(1)
    await scene.publish(READY)
    assert scene.notifier.count("RELOADING") == 0
    assert scene.notifier.count("READY") == 1


async def test_a_restarted_actor_does_not_send_ready_again_but_finishes_the_reload(nursery: trio.Nursery) -> None:
    scene = Scene()
    async with trio.open_nursery() as first:
        first.start_soon(scene.play)
        await scene.publish(READY)
        await scene.request(1)
        first.cancel_scope.cancel()
    nursery.start_soon(scene.play)
    await wait_all_tasks_blocked()
    assert scene.notifier.count("RELOADING") == 1
    await scene.publish(replace(READY, reload=ReloadStatus(requested=1, taken_in=1, verified=1)))
    assert scene.notifier.count("READY") == 2
