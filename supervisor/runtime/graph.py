"""The channel graph: which child feeds which, derived from the channel ends that the children hold.

A child gets its channel ends from a :class:`Ports`, which records each as an edge, so the graph that is checked before
anything starts is the wiring itself and not a description of it. There are four kinds of edge:

* A child *reads* a channel.
* A child *writes* a channel. A channel has one writer.
* A child *commands* through a channel: it passes an operator's request into the tree.
* A child *heeds* a channel: it reads requests of a child that its own data reaches.

Data, which is what is read and written, flows one way: a cycle could deadlock or oscillate. A command may lead back to
where its child's data comes from, because an operator decides in between, not a program. So that this stays the
exception, the composition root declares each command, a child that commands writes no data, and nothing else of the
tree writes to the channel that it commands through. What is heeded may close a circle too, so the composition root
declares it as well: each request must follow from an observation and end with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal, TypeVar

from .channel import Latest, LatestReader

T = TypeVar("T")
AnyChannel = Latest[Any]
Kind = Literal["reads", "writes", "commands", "heeds"]


class GraphError(Exception):
    """The wiring is wrong."""


@dataclass(frozen=True, slots=True)
class Edge:
    """What one child does with one channel."""

    child: str
    kind: Kind
    channel: AnyChannel


class Ports:
    """Gives a child the ends of its channels, and records each in ``edges``."""

    def __init__(self, child: str) -> None:
        self.child = child
        self.edges: list[Edge] = []

    def reads(self, channel: Latest[T]) -> LatestReader[T]:
        """Return a reading end that has seen nothing yet."""
        self.edges.append(Edge(self.child, "reads", channel))
        return channel.reader()

    def writes(self, channel: Latest[T]) -> Latest[T]:
        """Return the writing end: the cell itself, in which a restarted child finds what it wrote last."""
        self.edges.append(Edge(self.child, "writes", channel))
        return channel

    def heeds(self, channel: Latest[T]) -> LatestReader[T]:
        """Return a reading end for requests that may depend on what this child writes."""
        self.edges.append(Edge(self.child, "heeds", channel))
        return channel.reader()

    def commands(self, channel: Latest[T]) -> Latest[T]:
        """Return the writing end of a channel for an operator's requests."""
        self.edges.append(Edge(self.child, "commands", channel))
        return channel


class Graph:
    """All edges, in start order; ``outside`` are channels that something other than a child writes as well."""

    def __init__(self, edges: Sequence[Edge], outside: Iterable[AnyChannel] = ()) -> None:
        self.edges = edges
        self.outside = tuple(outside)

    def children(self, kind: Kind, channel: AnyChannel) -> list[str]:
        """Return the children that do this with a channel."""
        return [edge.child for edge in self.edges if edge.kind == kind and edge.channel is channel]

    def channels(self) -> list[AnyChannel]:
        """Return every channel once."""
        return list(dict.fromkeys([*self.outside, *(edge.channel for edge in self.edges)]))

    def __str__(self) -> str:
        return "\n".join(map(self._line, self.channels()))

    def _line(self, channel: AnyChannel) -> str:
        sources = [*self._writers(channel), *(f"{name} (command)" for name in self.children("commands", channel))]
        readers = [*self.children("reads", channel), *(f"{name} (heeds)" for name in self.children("heeds", channel))]
        return f"{', '.join(sources)} -> [{channel.name}] -> {', '.join(readers) or '(unread)'}"

    def _writers(self, channel: AnyChannel) -> list[str]:
        outside = ["(outside)"] if channel in self.outside else []
        return [*outside, *self.children("writes", channel)]

    def check(self, *, commands: Collection[tuple[str, str]] = (), heeded: Collection[tuple[str, str]] = ()) -> None:
        """Raise :class:`GraphError` for a mistake in the wiring.

        Mistakes are a cycle of data (it is named), two writers of one channel, a channel that is read but never
        written, two channels of one name, and commands other than ``commands`` or requests that are heeded other than
        ``heeded``, pairs of a child and a channel's name.
        """
        errors = [*self._naming_errors(), *self._writing_errors(), *self._command_errors(commands)]
        errors += [*self._heeding_errors(heeded), *self._cycles()]
        if errors:
            raise GraphError("; ".join(errors))

    def _naming_errors(self) -> Iterator[str]:
        names = [channel.name for channel in self.channels()]
        yield from (f"two channels are called {name}" for name in sorted(set(names)) if names.count(name) > 1)

    def _writing_errors(self) -> Iterator[str]:
        for channel in self.channels():
            writers = self._writers(channel)
            readers = [*self.children("reads", channel), *self.children("heeds", channel)]
            if len(writers) > 1:
                yield f"{channel.name} has more than one writer: {', '.join(writers)}"
            if readers and not writers and not self.children("commands", channel):
                yield f"{channel.name} is read by {', '.join(readers)} but never written"

    def _command_errors(self, declared: Collection[tuple[str, str]]) -> Iterator[str]:
        found = {(edge.child, edge.channel.name): edge for edge in self.edges if edge.kind == "commands"}
        yield from (
            f"{child} does not command through {name}" for child, name in declared if (child, name) not in found
        )
        for (child, name), edge in found.items():
            if (child, name) not in declared:
                yield f"{child} commands through {name}, which is not declared"
            for writer in self.children("writes", edge.channel):
                yield f"{child} commands through {name}, which carries data of {writer}"
            for other in self.edges:
                if other.kind == "writes" and other.child == child:
                    yield f"{child} commands through {name} and writes data to {other.channel.name}"

    def _heeding_errors(self, declared: Collection[tuple[str, str]]) -> Iterator[str]:
        found = {(edge.child, edge.channel.name) for edge in self.edges if edge.kind == "heeds"}
        yield from (f"{child} does not heed {name}" for child, name in sorted({*declared} - found))
        yield from (f"{child} heeds {name}, which is not declared" for child, name in sorted(found - {*declared}))

    def _cycles(self) -> Iterator[str]:
        sorter: TopologicalSorter[str] = TopologicalSorter()
        for edge in self.edges:
            if edge.kind == "reads":
                sorter.add(edge.child, f"[{edge.channel.name}]")
            elif edge.kind == "writes":
                sorter.add(f"[{edge.channel.name}]", edge.child)
        try:
            sorter.prepare()
        except CycleError as error:
            yield f"data flows in a circle: {' -> '.join(error.args[1])}"
