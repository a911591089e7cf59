"""The graph is what the children hold; mistakes in the wiring are found before anything starts."""

from __future__ import annotations

import pytest
import trio

from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from supervisor.runtime.child import Body, ChildSpec
from supervisor.runtime.graph import AnyChannel, Graph, GraphError, Ports


async def body(_ctx: ActorContext) -> None:
    await trio.sleep_forever()


def child(
    name: str,
    *,
    reads: tuple[AnyChannel, ...] = (),
    writes: tuple[AnyChannel, ...] = (),
    commands: tuple[AnyChannel, ...] = (),
) -> ChildSpec:
    def connect(ports: Ports) -> Body:
        for take, channels in ((ports.reads, reads), (ports.writes, writes), (ports.commands, commands)):
            for channel in channels:
                take(channel)
        return body

    return ChildSpec(name, connect)


def graph(*specs: ChildSpec, outside: tuple[AnyChannel, ...] = ()) -> Graph:
    return Graph([edge for spec in specs for edge in spec.edges()], outside)


@pytest.fixture
def one() -> Latest[int]:
    return Latest("one")


@pytest.fixture
def two() -> Latest[int]:
    return Latest("two")


async def test_ports_give_the_ends_of_the_very_channel(one: Latest[int], two: Latest[int]) -> None:
    ports = Ports("a")
    reader, writer = ports.reads(one), ports.writes(two)
    one.set(1)
    writer.set(2)
    assert (await reader.receive(), two.peek()) == (1, 2)
    assert [(edge.child, edge.kind, edge.channel) for edge in ports.edges] == [
        ("a", "reads", one),
        ("a", "writes", two),
    ]


def test_a_pipeline_is_fine_and_prints_as_one(one: Latest[int], two: Latest[int]) -> None:
    reload: Latest[int] = Latest("reload")
    pipeline = graph(
        child("files", reads=(reload,), writes=(one,)),
        child("resolve", reads=(one,), writes=(two,)),
        child("report", reads=(one, two)),
        outside=(reload,),
    )
    pipeline.check()
    assert str(pipeline).splitlines() == [
        "(outside) -> [reload] -> files",
        "files -> [one] -> resolve, report",
        "resolve -> [two] -> report",
    ]


def test_an_unread_channel_is_allowed_and_shown(one: Latest[int]) -> None:
    unread = graph(child("a", writes=(one,)))
    unread.check()
    assert str(unread) == "a -> [one] -> (unread)"


def test_a_cycle_is_refused_and_named(one: Latest[int], two: Latest[int]) -> None:
    with pytest.raises(GraphError, match="circle") as caught:
        graph(child("a", reads=(two,), writes=(one,)), child("b", reads=(one,), writes=(two,))).check()
    assert all(name in str(caught.value) for name in ("a", "[one]", "b", "[two]"))


def test_a_child_that_feeds_itself_is_a_cycle(one: Latest[int]) -> None:
    with pytest.raises(GraphError, match="circle"):
        graph(child("a", reads=(one,), writes=(one,))).check()


def test_two_writers_of_one_channel_are_refused(one: Latest[int]) -> None:
    with pytest.raises(GraphError, match="one has more than one writer: a, b"):
        graph(child("a", writes=(one,)), child("b", writes=(one,))).check()


def test_a_child_must_not_write_what_is_written_from_outside(one: Latest[int]) -> None:
    with pytest.raises(GraphError, match=r"more than one writer: \(outside\), a"):
        graph(child("a", writes=(one,)), outside=(one,)).check()


def test_a_channel_that_is_never_written_is_refused(one: Latest[int]) -> None:
    with pytest.raises(GraphError, match="one is read by a but never written"):
        graph(child("a", reads=(one,))).check()


def test_two_channels_of_one_name_are_refused(one: Latest[int]) -> None:
    with pytest.raises(GraphError, match="two channels are called one"):
        graph(child("a", writes=(one,)), child("b", reads=(Latest("one"),))).check()


def test_a_declared_command_may_lead_back_to_the_source_of_its_child_s_data(one: Latest[int], two: Latest[int]) -> None:
    loop = graph(child("source", reads=(one,), writes=(two,)), child("view", reads=(two,), commands=(one,)))
    loop.check(commands={("view", "one")})
    assert str(loop).splitlines()[0] == "view (command) -> [one] -> source"


def test_a_command_that_is_not_declared_is_refused(one: Latest[int]) -> None:
    with pytest.raises(GraphError, match="b commands through one, which is not declared"):
        graph(child("a", reads=(one,)), child("b", commands=(one,))).check(commands={("c", "one")})


def test_a_declared_command_that_is_not_there_is_refused(one: Latest[int]) -> None:
    with pytest.raises(GraphError, match="b does not command through one"):
        graph(child("a", writes=(one,))).check(commands={("b", "one")})


def test_a_child_that_commands_writes_no_data(one: Latest[int], two: Latest[int]) -> None:
    with pytest.raises(GraphError, match="a commands through one and writes data to two"):
        graph(child("a", commands=(one,), writes=(two,))).check(commands={("a", "one")})


def test_a_channel_of_commands_carries_no_data_of_a_child(one: Latest[int]) -> None:
    with pytest.raises(GraphError, match="a commands through one, which carries data of b"):
        graph(child("a", commands=(one,)), child("b", writes=(one,))).check(commands={("a", "one")})
