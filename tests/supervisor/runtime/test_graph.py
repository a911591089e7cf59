"""Mistakes in the wiring are found before anything starts."""

from __future__ import annotations

import pytest
import trio

from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from supervisor.runtime.child import AnyChannel, ChildSpec
from supervisor.runtime.graph import GraphError, check


async def body(_ctx: ActorContext) -> None:
    await trio.sleep_forever()


def child(name: str, *, reads: tuple[AnyChannel, ...] = (), writes: tuple[AnyChannel, ...] = ()) -> ChildSpec:
    return ChildSpec(name, body, reads=reads, writes=writes)


@pytest.fixture
def one() -> Latest[int]:
    return Latest("one")


@pytest.fixture
def two() -> Latest[int]:
    return Latest("two")


def test_a_pipeline_is_fine_and_prints_as_one(one: Latest[int], two: Latest[int]) -> None:
    reload: Latest[int] = Latest("reload")
    specs = [
        child("files", reads=(reload,), writes=(one,)),
        child("resolve", reads=(one,), writes=(two,)),
        child("report", reads=(one, two)),
    ]
    assert str(check(specs, external=(reload,))).splitlines() == [
        "(outside) -> [reload] -> files",
        "files -> [one] -> resolve, report",
        "resolve -> [two] -> report",
    ]


def test_what_nobody_reads_is_allowed_and_shown(one: Latest[int]) -> None:
    assert str(check([child("a", writes=(one,))])) == "a -> [one] -> (nobody)"


def test_a_cycle_is_refused_and_named(one: Latest[int], two: Latest[int]) -> None:
    specs = [child("a", reads=(two,), writes=(one,)), child("b", reads=(one,), writes=(two,))]
    with pytest.raises(GraphError, match="circle") as caught:
        check(specs)
    assert all(name in str(caught.value) for name in ("a", "[one]", "b", "[two]"))


def test_a_child_that_feeds_itself_is_a_cycle(one: Latest[int]) -> None:
    with pytest.raises(GraphError, match="circle"):
        check([child("a", reads=(one,), writes=(one,))])


def test_two_writers_of_one_state_are_refused(one: Latest[int]) -> None:
    with pytest.raises(GraphError, match="one has more than one writer: a, b"):
        check([child("a", writes=(one,)), child("b", writes=(one,))])


def test_a_child_must_not_write_what_is_fed_from_outside(one: Latest[int]) -> None:
    with pytest.raises(GraphError, match=r"more than one writer: a, \(outside\)"):
        check([child("a", writes=(one,))], external=(one,))


def test_a_channel_that_nobody_writes_is_refused(one: Latest[int]) -> None:
    with pytest.raises(GraphError, match="one is read by a but written by nobody"):
        check([child("a", reads=(one,))])


def test_two_channels_of_one_name_are_refused(one: Latest[int]) -> None:
    with pytest.raises(GraphError, match="two channels are called one"):
        check([child("a", writes=(one,)), child("b", reads=(Latest("one"),))])
