"""The key of the signatures: one for a node, however many processes create it, and readable by root only."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from actors.lib.kube.mirror_signature import KEY_FILE, mirror_key

#: How long a machine that is busy with something else may take for a step.
SECONDS = 60.0


@pytest.fixture
def no_umask() -> Iterator[None]:
    old = os.umask(0)
    yield
    os.umask(old)


@pytest.mark.parametrize("content", [None, b"", b"torn", b"x" * 33], ids=["missing", "empty", "torn", "too long"])
def test_who_asks_while_another_one_makes_the_key_gets_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / KEY_FILE).write_bytes(content)
    making, second_is_through_or_waits = Event(), Event()
    really_lock, really_make = fcntl.flock, secrets.token_bytes
    others: list[Future[bytes]] = []

    def ask_too() -> bytes:
        try:
            return mirror_key(tmp_path)
        finally:
            second_is_through_or_waits.set()

    def lock(descriptor: int, operation: int) -> None:
        if making.is_set():
            second_is_through_or_waits.set()
        really_lock(descriptor, operation)

    def make(count: int | None = None) -> bytes:
        if not making.is_set():
            making.set()
            others.append(pool.submit(ask_too))
            assert second_is_through_or_waits.wait(SECONDS)
        return really_make(count)

    monkeypatch.setattr(fcntl, "flock", lock)
    monkeypatch.setattr(secrets, "token_bytes", make)
    with ThreadPoolExecutor(1) as pool:
        key = mirror_key(tmp_path)
    assert [other.result(SECONDS) for other in others] == [key]
    assert (tmp_path / KEY_FILE).read_bytes() == key


def test_the_key_stays_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    key = mirror_key(tmp_path)
    assert len(key) == 32
    assert mirror_key(tmp_path) == key
    assert [entry.name for entry in tmp_path.iterdir()] == [KEY_FILE]


def test_the_key_is_private_from_its_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_umask: None
) -> None:
    seen: list[int] = []
    really_write = os.write

    def write(descriptor: int, data: bytes) -> int:
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return really_write(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    mirror_key(tmp_path)
    assert seen == [0o600]
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        mirror_key(tmp_path / "missing")
