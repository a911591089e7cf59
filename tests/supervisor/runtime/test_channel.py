"""Channels keep the last value, replay it to new readers, and never block a writer."""

from __future__ import annotations

import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from supervisor.runtime.channel import Latest, wait_any


async def test_a_new_reader_sees_the_current_value_at_once() -> None:
    cell: Latest[int] = Latest("c")
    cell.set(1)
    cell.set(2)
    for _ in range(2):
        assert await cell.reader().receive() == 2


async def test_a_reader_waits_for_the_first_value_and_then_for_newer_ones(autojump_clock: MockClock) -> None:
    cell: Latest[str] = Latest("c")
    seen: list[tuple[float, str]] = []

    async def read() -> None:
        reader = cell.reader()
        while True:
            value = await reader.receive()
            seen.append((trio.current_time(), value))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        for value in "ab":
            await trio.sleep(1)
            cell.set(value)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert seen == [(1, "a"), (2, "b")]


async def test_a_slow_reader_skips_values_but_never_the_last() -> None:
    cell: Latest[int] = Latest("c")
    reader = cell.reader()
    for value in range(100):
        cell.set(value)
    assert await reader.receive() == 99
    assert not reader.pending


async def test_an_equal_value_is_news() -> None:
    cell: Latest[int] = Latest("c")
    reader = cell.reader()
    for _ in range(2):
        cell.set(7)
        assert reader.take() == 7
    assert reader.take() is None


async def test_none_is_a_value() -> None:
    cell: Latest[int | None] = Latest("c")
    reader = cell.reader()
    assert not reader.pending
    cell.set(None)
    assert reader.pending
    assert await reader.receive() is None


async def test_a_cancelled_receive_consumes_nothing() -> None:
    cell: Latest[int] = Latest("c")
    reader = cell.reader()
    cell.set(1)
    with trio.CancelScope() as scope:
        scope.cancel()
        await reader.receive()
    assert scope.cancelled_caught
    assert reader.take() == 1


async def test_a_receive_cancelled_while_waiting_consumes_nothing(autojump_clock: MockClock) -> None:
    cell: Latest[int] = Latest("c")
    reader = cell.reader()
    with trio.move_on_after(1):
        await reader.receive()
    cell.set(1)
    assert await reader.receive() == 1


async def test_every_waiting_reader_is_woken() -> None:
    cell: Latest[int] = Latest("c")
    seen: list[int] = []

    async def read() -> None:
        seen.append(await cell.reader().receive())

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(read)
        await wait_all_tasks_blocked()
        cell.set(3)
    assert seen == [3] * 5


@given(st.lists(st.integers(), min_size=1), st.integers(0, 20))
def test_whatever_the_interleaving_the_last_value_read_is_the_last_one_written(values: list[int], stride: int) -> None:
    cell: Latest[int] = Latest("c")
    reader = cell.reader()
    read: list[int | None] = []
    for position, value in enumerate(values):
        cell.set(value)
        if stride and position % stride == 0:
            read.append(reader.take())
    if reader.pending:
        read.append(reader.take())
    assert read[-1] == values[-1]
    assert cell.version == len(values)


async def test_waiting_for_a_value_does_not_consume_it() -> None:
    cell: Latest[int] = Latest("c")
    reader = cell.reader()
    cell.set(1)
    await reader.wait_pending()
    assert reader.take() == 1


async def test_waiting_for_any_ends_with_the_first_and_consumes_nothing(autojump_clock: MockClock) -> None:
    one, two = Latest[int]("one"), Latest[int]("two")
    readers = one.reader(), two.reader()
    async with trio.open_nursery() as nursery:

        async def write() -> None:
            await trio.sleep(3)
            two.set(2)

        nursery.start_soon(write)
        await wait_any(*readers)
    assert trio.current_time() == 3
    assert [reader.pending for reader in readers] == [False, True]
    await wait_any(*readers)
    assert readers[1].take() == 2


async def test_waiting_for_any_can_be_cancelled(autojump_clock: MockClock) -> None:
    with trio.move_on_after(1) as scope:
        await wait_any(Latest[int]("one").reader(), Latest[int]("two").reader())
    assert scope.cancelled_caught


async def test_a_wait_that_was_cancelled_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    one, two = Latest[int]("one"), Latest[int]("two")
    for _ in range(3):
        with trio.move_on_after(1):
            await wait_any(one.reader(), two.reader())
    one.set(1)
    await wait_any(one.reader(), two.reader())
    assert not one._waiting
    assert not two._waiting


async def test_two_who_wait_for_any_are_both_woken_by_one_value(autojump_clock: MockClock) -> None:
    one, two, three = (Latest[int](name) for name in ("one", "two", "three"))
    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_any, one.reader(), two.reader())
            nursery.start_soon(wait_any, two.reader(), three.reader())
            await wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 2
            two.set(2)
    assert not one._waiting | two._waiting | three._waiting
