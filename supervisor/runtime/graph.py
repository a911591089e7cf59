"""The channel graph: who feeds whom, checked once before anything starts.

Data flows one way. A cycle could deadlock or oscillate, two writers of one state would fight, and a channel that nobody
writes would leave its readers waiting indefinitely: each is a mistake in the composition root, found here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from .child import AnyChannel, ChildSpec


class GraphError(Exception):
    """The wiring is wrong."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Writers and readers by channel name, each in start order; ``external`` are channels fed from outside the tree."""

    channels: tuple[str, ...]
    writers: Mapping[str, tuple[str, ...]]
    readers: Mapping[str, tuple[str, ...]]
    external: frozenset[str]

    def __str__(self) -> str:
        return "\n".join(self._line(name) for name in self.channels)

    def _line(self, name: str) -> str:
        sources = [*self.writers[name], *(["(outside)"] if name in self.external else [])]
        return f"{', '.join(sources)} -> [{name}] -> {', '.join(self.readers[name]) or '(nobody)'}"


def check(specs: Sequence[ChildSpec], *, external: Iterable[AnyChannel] = ()) -> Graph:
    """Return the graph of the specs' channels.

    Raises :class:`GraphError` for a cycle (naming it), two writers of one :class:`Latest`, a channel that is read but
    written by nobody, and two channels of the same name. What writes those in ``external`` is no child.
    """
    outside = tuple(external)
    graph = _build(specs, outside)
    _check_names([*outside, *(channel for spec in specs for channel in (*spec.writes, *spec.reads))])
    for channel in {id(channel): channel for spec in specs for channel in (*spec.writes, *spec.reads)}.values():
        _check_channel(graph, channel)
    _check_acyclic(specs)
    return graph


def _build(specs: Sequence[ChildSpec], external: tuple[AnyChannel, ...]) -> Graph:
    writers, readers = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for spec in specs:
        for channel in spec.writes:
            writers[channel.name].append(spec.name)
        for channel in spec.reads:
            readers[channel.name].append(spec.name)
    outside = [channel.name for channel in external]
    names = tuple(dict.fromkeys([*outside, *writers, *readers]))
    return Graph(
        names,
        {name: tuple(writers[name]) for name in names},
        {name: tuple(readers[name]) for name in names},
        frozenset(outside),
    )


def _check_names(channels: Iterable[AnyChannel]) -> None:
    seen: dict[str, AnyChannel] = {}
    for channel in channels:
        if seen.setdefault(channel.name, channel) is not channel:
            raise GraphError(f"two channels are called {channel.name}")


def _check_channel(graph: Graph, channel: AnyChannel) -> None:
    writers = graph.writers[channel.name]
    outside = channel.name in graph.external
    if len(writers) + outside > 1:
        raise GraphError(
            f"{channel.name} has more than one writer: {', '.join([*writers, *['(outside)'][: int(outside)]])}"
        )
    if graph.readers[channel.name] and not writers and not outside:
        raise GraphError(f"{channel.name} is read by {', '.join(graph.readers[channel.name])} but written by nobody")


def _check_acyclic(specs: Sequence[ChildSpec]) -> None:
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for spec in specs:
        sorter.add(spec.name, *(f"[{channel.name}]" for channel in spec.reads))
        for channel in spec.writes:
            sorter.add(f"[{channel.name}]", spec.name)
    try:
        sorter.prepare()
    except CycleError as error:
        raise GraphError(f"data flows in a circle: {' -> '.join(error.args[1])}") from error
