"""The assignment of indices: lowest free, repaired where it can be, and never against a node's own configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.controller.node_indices import MAX_INDEX, IndexedNode, assign, described, duplicates, index_of, listed

ANNOTATIONS = st.one_of(
    st.none(), st.integers(0, 6).map(str), st.sampled_from(["", "x", "-1", "1.5", "007", " 2", "٣", str(2**63)])
)
NODES = st.lists(
    st.builds(
        IndexedNode,
        name=st.sampled_from([f"n{number}" for number in range(8)]),
        annotation=ANNOTATIONS,
        own=st.booleans(),
        settled=st.booleans(),
        created=st.sampled_from(["", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
    ),
    unique_by=lambda node: node.name,
)


def written(nodes: list[IndexedNode], changes: dict[str, int]) -> list[IndexedNode]:
    """Return the Nodes with their new indices."""
    return [replace(node, annotation=str(changes[node.name])) if node.name in changes else node for node in nodes]


@settings(derandomize=True)
@given(NODES)
def test_what_is_assigned_is_unique_lowest_and_lasting(nodes: list[IndexedNode]) -> None:
    changes = assign(nodes)
    after = written(nodes, changes)
    taken = {index_of(node.annotation) for node in after} - {None}
    for name, index in changes.items():
        [node] = [node for node in nodes if node.name == name]
        assert not node.own
        assert [other.name for other in after if index_of(other.annotation) == index] == [name]
        assert set(range(index)) <= taken
    assert assign(after) == {}


@settings(derandomize=True)
@given(NODES)
def test_afterwards_only_nodes_own_indices_clash(nodes: list[IndexedNode]) -> None:
    after = written(nodes, assign(nodes))
    clashing = {name for names in duplicates(after).values() for name in names}
    seen: dict[int, list[IndexedNode]] = {}
    for node in after:
        index = index_of(node.annotation)
        if index is not None:
            seen.setdefault(index, []).append(node)
        else:
            assert node.own or (not node.settled and node.annotation is None)
    assert {node.name for group in seen.values() if len(group) > 1 for node in group} == clashing
    assert clashing <= {node.name for node in nodes if node.own}


@settings(derandomize=True)
@given(NODES)
def test_a_usable_index_that_no_other_node_has_is_kept(nodes: list[IndexedNode]) -> None:
    changes = assign(nodes)
    for node in nodes:
        index = index_of(node.annotation)
        others = [index_of(other.annotation) for other in nodes if other.name != node.name]
        assert node.name not in changes or index is None or index in others


@settings(derandomize=True)
@given(NODES, st.randoms())
def test_the_order_of_the_nodes_does_not_matter(nodes: list[IndexedNode], random: object) -> None:
    shuffled = list(nodes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert assign(shuffled) == assign(nodes)


def test_the_oldest_of_two_keeps_its_index_and_the_own_one_before_all() -> None:
    older = IndexedNode("b", "0", created="2026-01-01T00:00:00Z")
    newer = IndexedNode("a", "0", created="2026-01-02T00:00:00Z")
    own = IndexedNode("c", "0", own=True, created="2026-01-03T00:00:00Z")
    assert assign([older, newer]) == {"a": 1}
    assert assign([older, newer, own]) == {"b": 1, "a": 2}


def test_a_new_node_without_an_index_is_left_to_its_own_daemon_for_a_while() -> None:
    assert assign([IndexedNode("a", settled=False), IndexedNode("b", "x", settled=False)]) == {"b": 0}


@pytest.mark.parametrize(
    ("text", "index"),
    [("0", 0), ("12", 12), ("007", 7), (str(MAX_INDEX), MAX_INDEX), (str(MAX_INDEX + 1), None), ("-1", None)],
)
def test_what_counts_as_an_index(text: str, index: int | None) -> None:
    assert index_of(text) == index


def test_duplicates_are_described_for_each_of_their_nodes() -> None:
    nodes = [IndexedNode(name, "3", own=True) for name in ("c", "a", "b", "d")]
    text = "nodes a, b, c and 1 more have the same index 3, and so the same addresses"
    assert described(duplicates(nodes)) == dict.fromkeys("abcd", text)


def test_names_are_listed_as_one_phrase() -> None:
    phrases = [listed(list("abcde")[:number]) for number in range(6)]
    assert phrases == ["", "a", "a and b", "a, b and c", "a, b, c and 1 more", "a, b, c and 2 more"]
