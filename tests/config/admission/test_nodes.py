"""Which nodes a selector selects, and what its cache costs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from config.admission.nodes import Nodes
from config.admission.objects import ObjectEntry, entry_of

from .examples import OWN, l3vni, node

#: The webhook's container has 384 MiB for everything.
BOUND = 48 * 2**20


@pytest.fixture
def tracing() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def nodes(count: int) -> Nodes:
    known = Nodes()
    for number in range(count):
        known.put(node(f"node-{number}", rack="1"))
    return known


def apart_from(value: str) -> ObjectEntry:
    """Return a network of all nodes but those whose rack has a name."""
    expression = {"key": "rack", "operator": "NotIn", "values": [value]}
    return entry_of(l3vni("red", 100, nodeSelector={"matchExpressions": [expression]}), OWN)


@pytest.mark.parametrize(
    ("selectors", "length", "count"),
    [(100, 1_000_000, 3), (16, 6_000_000, 3), (120, 10, 5000)],
    ids=["long", "longer than any is cached", "of many nodes"],
)
@pytest.mark.usefixtures("tracing")
def test_selectors_that_tenants_send_fill_a_bounded_part_of_the_memory(selectors: int, length: int, count: int) -> None:
    known = nodes(count)
    before, _ = tracemalloc.get_traced_memory()
    for number in range(selectors):
        assert len(known.selected(apart_from(f"{number}".rjust(length, "x")))) == count
    after, _ = tracemalloc.get_traced_memory()
    assert after - before < BOUND
    usual = apart_from("2")
    assert known.selected(usual) is known.selected(usual)
