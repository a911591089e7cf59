"""Readers of FRR's configuration share the lock, a writer excludes all others, and no one waits indefinitely."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from actors.lib.frr import frr_lock
from actors.lib.frr.frr_lock import holders, session_lock


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "frr.lock"


async def enters(lock: Path | None, *, exclusive: bool) -> bool:
    """Return whether the lock is available, on a machine that may be busy."""
    return await _is_available(lock, exclusive, 60)


async def is_excluded(lock: Path | None, *, exclusive: bool) -> bool:
    """Return whether the lock is not available within a moment."""
    return not await _is_available(lock, exclusive, 0.3)


async def _is_available(lock: Path | None, exclusive: bool, seconds: float) -> bool:
    with trio.move_on_after(seconds):
        async with session_lock(lock, exclusive=exclusive):
            return True
    return False


async def test_readers_share(lock: Path) -> None:
    async with session_lock(lock, exclusive=False):
        assert await enters(lock, exclusive=False)
        assert await is_excluded(lock, exclusive=True)
    assert await enters(lock, exclusive=True)


async def test_a_writer_excludes_all_others(lock: Path) -> None:
    async with session_lock(lock, exclusive=True):
        assert await is_excluded(lock, exclusive=False)
        assert await is_excluded(lock, exclusive=True)
    assert await enters(lock, exclusive=False)
    assert (await trio.Path(lock).stat()).st_mode & 0o777 == 0o600


async def test_readers_that_follow_one_another_do_not_keep_a_writer_out(lock: Path) -> None:
    async def read(started: trio.Event, until: trio.Event) -> None:
        async with session_lock(lock, exclusive=False):
            started.set()
            await until.wait()

    async with trio.open_nursery() as nursery:
        first, over = trio.Event(), trio.Event()
        nursery.start_soon(read, first, over)
        await first.wait()
        written = trio.Event()

        async def write() -> None:
            async with session_lock(lock, exclusive=True):
                written.set()

        nursery.start_soon(write)
        with trio.fail_after(60):
            # Newcomers have to wait although only a reader has the lock, as soon as the writer waits for it.
            while not await is_excluded(lock, exclusive=False):
                assert not written.is_set()
                await trio.lowlevel.checkpoint()
            over.set()
            await written.wait()


async def test_a_lock_that_is_kept_too_long_is_not_waited_for(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frr_lock, "PATIENCE_SECONDS", 0.1)
    async with session_lock(lock, exclusive=True):
        assert await enters(lock, exclusive=True)


@pytest.mark.parametrize("exclusive", [True, False])
async def test_without_the_directory_no_one_is_locked_out(tmp_path: Path, exclusive: bool) -> None:
    missing = tmp_path / "missing" / "frr.lock"
    async with session_lock(missing, exclusive=exclusive):
        assert await enters(missing, exclusive=True)
    assert await enters(None, exclusive=exclusive)


async def test_the_kernel_shows_who_holds_the_lock(lock: Path) -> None:
    assert holders(lock) == ()
    async with session_lock(lock, exclusive=True):
        assert holders(lock) == (os.getpid(),)
    assert holders(lock) == ()
