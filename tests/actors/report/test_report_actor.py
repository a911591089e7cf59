"""The report actor: changes at once, ages at intervals, a state file that is whole and closed to others."""

from __future__ import annotations

import re
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors.report import actor
from actors.report.actor import METRICS_SECONDS, STATE_SECONDS, UNCHANGED_SECONDS, StatusFiles
from config.api import ApiAccess, ApiReach, ApiSnapshot
from config.desired import DesiredState
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome, StaticSnapshot
from config.settings import Settings
from config.status import ActorStatus, Status
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader
from tests.actors.report.examples import desired, health


@dataclass
class Bench:
    """A running report actor with its channels."""

    settings: Settings
    snapshots: Latest[StaticSnapshot] = field(default_factory=lambda: Latest("static"))
    desired: Latest[DesiredState] = field(default_factory=lambda: Latest("desired"))
    frr: Latest[FrrOutcome] = field(default_factory=lambda: Latest("frr"))
    kernel: Latest[KernelOutcome] = field(default_factory=lambda: Latest("kernel"))
    health: Latest[HealthReport] = field(default_factory=lambda: Latest("health"))
    access: Latest[ApiAccess] = field(default_factory=lambda: Latest("access"))
    api: Latest[ApiSnapshot] = field(default_factory=lambda: Latest("api"))
    changed: Latest[int] = field(default_factory=lambda: Latest("children"))
    out: Latest[Status] = field(default_factory=lambda: Latest("status"))
    children: tuple[ActorStatus, ...] = ()
    stopping: bool = False

    async def start(self) -> None:
        await actor.run(
            ActorContext("report"),
            settings=self.settings,
            version="0.1.0",
            snapshots=self.snapshots.reader(),
            desired=self.desired.reader(),
            frr=self.frr.reader(),
            kernel=self.kernel.reader(),
            health=self.health.reader(),
            access=self.access.reader(),
            api=self.api.reader(),
            children=lambda: self.children,
            children_changed=self.changed.reader(),
            out=self.out,
            stopping=lambda: self.stopping,
        )

    def converge(self, generation: int = 4) -> None:
        state = desired(generation)
        self.desired.set(state)
        self.frr.set(FrrOutcome(state, applied=True))
        self.kernel.set(KernelOutcome(state, applied=True))
        self.health.set(health(generation))

    def on_disk(self) -> Status:
        return Status.from_json((self.settings.run_dir / "state.json").read_text())


async def until(statuses: LatestReader[Status], phase: str) -> Status:
    with trio.fail_after(60):
        while True:
            status = await statuses.receive()
            if status.phase == phase:
                return status


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Bench]:
    async with trio.open_nursery() as nursery:
        bench = Bench(Settings(run_dir=directory))
        nursery.start_soon(bench.start)
        yield bench
        nursery.cancel_scope.cancel()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running(tmp_path) as bench:
        yield bench


async def written(bench: Bench, phase: str) -> Status:
    """Wait until the state file shows a phase."""
    with trio.fail_after(60):
        while not (bench.settings.run_dir / "state.json").exists() or bench.on_disk().phase != phase:  # noqa: ASYNC110
            await trio.sleep(0.001)
    return bench.on_disk()


def has_line(path: Path, line: str) -> bool:
    return path.exists() and line in path.read_text().splitlines()


async def readable(path: Path, line: str) -> None:
    """Wait until a file has a line."""
    with trio.fail_after(60):
        while not has_line(path, line):  # noqa: ASYNC110
            await trio.sleep(0.001)


async def test_it_reports_before_anything_is_known(bench: Bench) -> None:
    status = await until(bench.out.reader(), "starting")
    assert status.summary == "starting: reading the configuration"


async def test_the_stages_values_become_one_status_in_the_channel_and_on_disk(bench: Bench) -> None:
    bench.converge()
    status = await until(bench.out.reader(), "running")
    assert (status.ready, status.generations.verified) == (True, 4)
    on_disk = replace(await written(bench, "running"), updated_at=status.updated_at)
    assert on_disk.to_json() == status.to_json()


async def test_the_state_file_is_for_root_and_its_group_only(bench: Bench) -> None:
    bench.converge()
    await written(bench, "running")
    assert stat.S_IMODE((bench.settings.run_dir / "state.json").stat().st_mode) == 0o640


async def test_the_metrics_are_for_root_and_a_group_only(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor, "METRICS_SECONDS", 0.0)
    bench.converge()
    await written(bench, "running")
    path = bench.settings.run_dir / "metrics" / "openperouter.prom"
    await readable(path, "openperouter_ready 1.0")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


async def test_the_metrics_can_be_put_where_a_collector_looks(tmp_path: Path) -> None:
    (tmp_path / "collector").mkdir()
    bench = Bench(Settings(run_dir=tmp_path, metrics_file=tmp_path / "collector" / "router.prom"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.start)
        await readable(tmp_path / "collector" / "router.prom", "openperouter_ready 0.0")
        nursery.cancel_scope.cancel()
    assert not (tmp_path / "metrics").exists()


async def moments(files: StatusFiles, written_at: Callable[[], float], *statuses: Status) -> list[float]:
    """Return the time of the status that a file has after each of some statuses."""
    found = []
    for status in statuses:
        await files.write(status)
        found.append(written_at())
    return found


def metrics_of(directory: Path) -> float:
    text = (directory / "metrics" / "openperouter.prom").read_text()
    return float(re.findall(r"^openperouter_status_timestamp_seconds (.*)$", text, re.M)[0])


def state_of(directory: Path) -> float:
    return Status.from_json((directory / "state.json").read_text()).updated_at


@pytest.mark.parametrize(("written_at", "pause"), [(state_of, STATE_SECONDS), (metrics_of, METRICS_SECONDS)])
async def test_a_file_is_written_some_time_after_a_change_and_once_a_minute(
    tmp_path: Path, written_at: Callable[[Path], float], pause: float
) -> None:
    minute = 1000.0 + UNCHANGED_SECONDS
    change = minute + 3
    found = await moments(
        StatusFiles(Settings(run_dir=tmp_path)),
        lambda: written_at(tmp_path),
        Status(updated_at=1000.0),
        Status(updated_at=minute - 1),
        Status(updated_at=minute),
        Status(updated_at=change, ready=True),
        Status(updated_at=change + pause - 1, ready=True, summary="another"),
        Status(updated_at=change + pause, ready=True, summary="the last"),
        Status(updated_at=change + 2 * pause, ready=True, summary="the last"),
        Status(updated_at=900.0, ready=True),
    )
    assert found == [1000.0, 1000.0, minute, minute, minute, change + pause, change + pause, 900.0]


@pytest.mark.parametrize("written_at", [state_of, metrics_of])
async def test_a_change_that_is_taken_back_is_not_written(tmp_path: Path, written_at: Callable[[Path], float]) -> None:
    files = StatusFiles(Settings(run_dir=tmp_path))
    found = await moments(
        files,
        lambda: written_at(tmp_path),
        Status(updated_at=1000.0),
        Status(updated_at=1001.0, ready=True),
        Status(updated_at=1001.5),
        Status(updated_at=1008.0, ready=True),
    )
    assert found == [1000.0] * 4
    assert files.waits == STATE_SECONDS


async def test_files_do_not_wait_when_the_daemon_stops(tmp_path: Path) -> None:
    files = StatusFiles(Settings(run_dir=tmp_path))
    for status in (Status(updated_at=1000.0), Status(updated_at=1000.5, phase="stopping")):
        await files.write(status)
    assert (state_of(tmp_path), metrics_of(tmp_path), files.waits) == (1000.5, 1000.5, None)


async def test_files_do_not_stay_with_a_state_between_two_changes(
    tmp_path: Path, no_threads: None, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last state of a change comes while the first one waits, and nothing follows that would have it written."""
    monkeypatch.setattr(time, "time", lambda: 1000.0 + trio.current_time())
    async with running(tmp_path) as bench:
        await trio.sleep(1)
        assert not bench.on_disk().ready
        bench.desired.set(desired(4))
        await trio.sleep(STATE_SECONDS / 2)
        bench.converge()
        await trio.sleep(STATE_SECONDS / 2 + actor.PAUSE_SECONDS)
        assert bench.on_disk().ready
        path = bench.settings.run_dir / "metrics" / "openperouter.prom"
        assert has_line(path, "openperouter_ready 0.0")
        await trio.sleep(METRICS_SECONDS - STATE_SECONDS)
        assert has_line(path, "openperouter_ready 1.0")


async def test_a_state_file_that_the_disk_refused_is_written_with_the_next_status(tmp_path: Path) -> None:
    files = StatusFiles(Settings(run_dir=tmp_path / "run"))
    await files.write(Status(updated_at=1000.0))
    (tmp_path / "run").mkdir()
    await files.write(Status(updated_at=1001.0))
    assert Status.from_json((tmp_path / "run" / "state.json").read_text()).updated_at == 1001.0


async def test_a_failing_child_shows_at_once(bench: Bench) -> None:
    bench.converge()
    statuses = bench.out.reader()
    await until(statuses, "running")
    bench.children = (ActorStatus("frr", "backoff", 2, "boom"),)
    bench.changed.set(1)
    status = await until(statuses, "degraded")
    assert status.actors == bench.children


async def test_a_stop_shows_at_the_next_tick(bench: Bench) -> None:
    bench.converge()
    statuses = bench.out.reader()
    await until(statuses, "running")
    bench.stopping = True
    bench.changed.set(1)
    await until(statuses, "stopping")
    assert (await written(bench, "stopping")).summary == "stopping; forwarding continues"


async def test_the_connection_to_the_api_shows_at_once(bench: Bench) -> None:
    bench.converge()
    statuses = bench.out.reader()
    await until(statuses, "running")
    bench.access.set(ApiAccess(ApiReach.UNREACHABLE, detail="no route", since=1.0))
    assert (await until(statuses, "running")).api.detail == "no route"
    bench.api.set(ApiSnapshot(live=True))
    assert (await until(statuses, "running")).api.live


async def test_unchanged_values_publish_nothing(tmp_path: Path, no_threads: None, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as bench:
        bench.converge()
        await trio.sleep(1)
        version = bench.out.version
        assert bench.out.peek().phase == "running"  # type: ignore[union-attr]
        for _ in range(3):
            bench.health.set(health())
            bench.changed.set(1)
            await trio.sleep(1)
        assert bench.out.version == version


async def test_what_changes_within_a_moment_becomes_one_status(
    tmp_path: Path, no_threads: None, autojump_clock: MockClock
) -> None:
    async with running(tmp_path) as bench:
        statuses = bench.out.reader()
        await trio.sleep(1)
        assert (await statuses.receive()).phase == "starting"
        seen = []
        for generation in range(1, 9):
            bench.desired.set(desired(generation))
            await trio.sleep(actor.PAUSE_SECONDS / 10)
            if (status := statuses.take()) is not None:
                seen.append(status.generations.desired)
        await trio.sleep(actor.PAUSE_SECONDS)
        assert [*seen, (await statuses.receive()).generations.desired] == [1, 8]


async def test_a_stop_shows_at_once_even_right_after_a_change(
    tmp_path: Path, no_threads: None, autojump_clock: MockClock
) -> None:
    async with running(tmp_path) as bench:
        await trio.sleep(1)
        bench.converge()
        await until(bench.out.reader(), "running")
        bench.stopping, before = True, trio.current_time()
        bench.changed.set(1)
        await until(bench.out.reader(), "stopping")
        assert trio.current_time() == before


async def test_ages_and_counters_are_refreshed_at_an_interval(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor, "REFRESH_SECONDS", 0.05)
    bench.converge()
    statuses = bench.out.reader()
    first = await until(statuses, "running")
    second = await until(statuses, "running")
    assert second.updated_at > first.updated_at
    assert second.essence() == first.essence()


async def test_a_restarted_report_keeps_the_daemons_start_time(bench: Bench) -> None:
    bench.converge()
    first = await until(bench.out.reader(), "running")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.start)
        bench.children = (ActorStatus("other", "running"),)
        bench.changed.set(1)
        statuses = bench.out.reader()
        while not (status := await statuses.receive()).actors:
            pass
        assert status.started_at == first.started_at
        nursery.cancel_scope.cancel()


async def test_a_disk_that_refuses_costs_the_file_and_not_the_status(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(Settings(run_dir=tmp_path / "absent"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.start)
        statuses = bench.out.reader()
        await until(statuses, "starting")
        bench.converge()
        await until(statuses, "running")
        nursery.cancel_scope.cancel()
    for name in ("state.json", "openperouter.prom"):
        assert caplog.text.count(f"{name} cannot be written") == 1
