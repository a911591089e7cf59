"""What is kept of a collection: exactly what the server has for this node, by list or by event.

That selectors mean what Kubernetes means is tested with config.resolve.selection.
"""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.crd_watch import store as stores
from actors.crd_watch.store import KindStore, SelectedObject, selection
from actors.lib.kube.decoding import api_node
from actors.lib.kube.mirror_signature import proof
from actors.lib.kube.store import Store
from config.api import PROOF_ANNOTATION, SOURCE_LABEL, STATIC_SOURCE
from config.problems import Kind, ResourceId

KEY = b"k" * 32
ZONES = ("a", "b")
SELECTORS: dict[str, Any] = {
    "all": None,
    "a": {"matchLabels": {"zone": "a"}},
    "b": {"matchLabels": {"zone": "b"}},
    "rack": {"matchExpressions": [{"key": "rack", "operator": "Exists"}]},
    "odd": {"matchExpressions": "?"},
}


def vni(name: str, selector: str = "all", *, version: int = 1, ours: bool = False) -> dict[str, Any]:
    signed = {PROOF_ANNOTATION: proof(KEY, ResourceId(Kind.L3VNI, "default", name))} if ours else {}
    metadata = {"name": name, "namespace": "default", "resourceVersion": str(version), "annotations": signed}
    return {"metadata": metadata, "spec": {"nodeSelector": SELECTORS[selector], "vni": version}}


def store_for(labels: dict[str, str]) -> KindStore:
    store = KindStore(Kind.L3VNI, KEY, "openperouter-system")
    store.select_by(labels)
    return store


def names(store: KindStore) -> set[str]:
    return {one.name for one in store.objects(mirrored=False)}


def test_a_write_to_the_status_of_an_object_is_no_change_of_it() -> None:
    store = store_for({"zone": "a"})
    store.put(vni("red"))
    newer = vni("red")
    newer["metadata"]["resourceVersion"] = "2"
    assert not store.put(newer)
    assert [one.resource_version for one in store.objects(mirrored=False)] == ["2"]
    assert store.put(vni("red", version=3))


def test_each_version_of_a_mirror_counts_since_its_deletion_names_the_newest() -> None:
    store = store_for({"zone": "a"})
    store.put(vni("red", ours=True))
    newer = vni("red", ours=True)
    newer["metadata"]["resourceVersion"] = "2"
    assert store.put(newer)


def test_a_list_takes_effect_only_as_a_whole() -> None:
    store = store_for({"zone": "a"})
    fresh = store.fresh()
    fresh.put(vni("red"))
    assert (store.known, store.items) == (False, {})
    assert store.replace(fresh)
    assert (store.known, names(store)) == (True, {"red"})
    assert not store.replace(fresh)


def test_an_empty_list_is_news_when_nothing_was_known() -> None:
    store = store_for({})
    assert store.replace(store.fresh())
    assert not store.replace(store.fresh())


def test_an_object_is_selected_or_mirrored_as_it_changes() -> None:
    store = store_for({"zone": "a"})
    assert store.put(vni("red", "a"))
    assert not store.put(vni("red", "a"))
    assert store.put(vni("red", "a", version=2))
    assert store.put(vni("red", "b", ours=True))
    assert (names(store), len(store.objects(mirrored=True))) == (set(), 1)
    assert store.put(vni("red", "b"))
    assert not store.items
    assert not store.put(vni("red", "b", version=3))
    assert not store.remove(vni("red"))


@pytest.mark.parametrize("kind", Kind)
def test_the_selector_decides_about_each_kind_of_object(kind: Kind) -> None:
    store = KindStore(kind, KEY, "default")
    store.select_by({"zone": "a"})
    for name in ("all", "a", "b"):
        store.put(vni(name, name))
    assert names(store) == {"all", "a"}


def test_only_labels_that_a_selector_uses_make_it_stale() -> None:
    store = store_for({"zone": "a"})
    store.put(vni("red", "b"))
    store.select_by({"zone": "a", "rack": "7"})
    assert not store.stale
    store.select_by({"zone": "b", "rack": "7"})
    assert store.stale
    store.select_by({"zone": "a"})
    assert not store.stale


def test_labels_that_change_during_a_list_make_it_stale_at_once() -> None:
    store = store_for({"zone": "a"})
    fresh = store.fresh()
    fresh.put(vni("red", "b"))
    store.select_by({"zone": "b"})
    store.replace(fresh)
    assert store.stale


def test_labels_that_change_during_a_list_count_for_what_comes_after_it() -> None:
    store = store_for({"zone": "a"})
    fresh = store.fresh()
    store.select_by({"zone": "a", "rack": "7"})
    store.replace(fresh)
    assert not store.stale
    store.put(vni("red", "rack"))
    assert names(store) == {"red"}
    assert not store.stale


def test_with_too_many_keys_any_label_may_matter() -> None:
    store = store_for({"zone": "a"})
    for number in range(stores.MOST_KEYS + 2):
        raw = vni(f"vni-{number}")
        raw["spec"]["nodeSelector"] = {"matchLabels": {f"key-{number}": "x"}}
        store.put(raw)
    assert store.keys is None
    store.select_by({"zone": "a", "new": "1"})
    assert store.stale


@dataclass
class Truth:
    """A server's collection, and a store that follows it."""

    labels: dict[str, str] = field(default_factory=lambda: {"zone": "a"})
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: int = 0

    def expected(self) -> tuple[set[str], set[str]]:
        def here(raw: dict[str, Any]) -> bool:
            selector = raw["spec"]["nodeSelector"]
            wanted = {
                "all": True,
                "a": self.labels.get("zone") == "a",
                "b": self.labels.get("zone") == "b",
                "rack": "rack" in self.labels,
                "odd": True,
            }
            [word] = [word for word, known in SELECTORS.items() if known == selector]
            return wanted[word]

        signed = {name for name, raw in self.objects.items() if raw["metadata"]["annotations"]}
        return {name for name, raw in self.objects.items() if here(raw)} - signed, signed


_STEP = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("xyz"), st.sampled_from(sorted(SELECTORS)), st.booleans()),
    st.tuples(st.just("delete"), st.sampled_from("xyz")),
    st.tuples(st.just("label"), st.sampled_from(ZONES), st.booleans()),
    st.tuples(st.sampled_from(("lost", "back"))),
)


@settings(max_examples=300)
@given(st.lists(_STEP, max_size=40))
def test_a_store_has_what_the_server_has_or_had_when_it_was_lost(steps: list[tuple[Any, ...]]) -> None:
    truth, store, lost = Truth(), store_for({"zone": "a"}), True
    for step in [*steps, ("back",)]:
        before = content(store)
        match step:
            case ("put", name, selector, ours):
                truth.version += 1
                truth.objects[name] = vni(name, selector, version=truth.version, ours=ours)
                _ = lost or store.put(truth.objects[name])
            case ("delete", name):
                raw = truth.objects.pop(name, None)
                _ = raw is None or lost or store.remove(raw)
            case ("label", zone, rack):
                truth.labels = {"zone": zone, **({"rack": "1"} if rack else {})}
                store.select_by(truth.labels)
            case ("lost",):
                lost = True
            case ("back",):
                lost = False
                relist(store, truth)
        if not lost and store.stale:
            relist(store, truth)
        assert content(store) == (before if lost else truth.expected())


def content(store: KindStore) -> tuple[set[str], set[str]]:
    return names(store), {one.name for one in store.objects(mirrored=True)}


def relist(store: KindStore, truth: Truth) -> None:
    fresh = store.fresh()
    for raw in truth.objects.values():
        fresh.put(raw)
    store.replace(fresh)


def test_a_single_object_is_there_or_not() -> None:
    store = Store(api_node, only="node")
    assert store.replace(store.fresh())
    assert not store.put({"metadata": {"name": "other"}})
    assert store.put({"metadata": {"name": "node", "labels": {"a": "b"}}})
    assert not store.put({"metadata": {"name": "node", "labels": {"a": "b"}, "resourceVersion": "2"}})
    assert not store.remove({"metadata": {"name": "other"}})
    assert store.remove({"metadata": {"name": "node"}})
    assert store.value is None
    assert not store.remove({"metadata": {"name": "node"}})


def test_objects_of_other_nodes_cost_no_memory() -> None:
    """Ten thousand objects, of which twenty are for this node."""

    def raw(number: int) -> dict[str, Any]:
        one = vni(f"vni-{number}", "a" if number % 500 == 0 else "b")
        one["spec"]["text"] = "x" * 2000 + str(number)
        return one

    store = store_for({"zone": "a"})
    store.put(raw(1))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        fresh = store.fresh()
        for number in range(10_000):
            fresh.put(raw(number))
        store.replace(fresh)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(store.items) == 20
    assert grown < 20 * 10_000


MINE = {"matchLabels": {"zone": "a"}}
OTHERS = {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("spec", "selected", "keys"),
    [
        ({}, True, set()),
        ({"nodeSelector": None}, True, set()),
        ({"nodeSelector": {}}, True, set()),
        ({"nodeSelector": MINE}, True, {"zone"}),
        ({"nodeSelector": OTHERS}, False, {"rack"}),
        ({"nodeSelector": {**MINE, **OTHERS}}, False, {"zone", "rack"}),
        ({"nodeSelector": {"matchFields": {}}}, True, set()),
        ({"nodeSelector": 7}, True, set()),
        (None, True, set()),
        ("odd", True, set()),
    ],
)
def test_a_selector_decides_and_one_that_cannot_be_read_selects(spec: Any, selected: bool, keys: set[str]) -> None:
    assert selection(spec, {"zone": "a"}) == (selected, frozenset(keys))


def test_of_an_unknown_node_nothing_is_assumed() -> None:
    without = {"matchExpressions": [{"key": "rack", "operator": "DoesNotExist"}]}
    assert selection({"nodeSelector": without}, {"zone": "a"})[0]
    assert not selection({"nodeSelector": without}, None)[0]
    assert selection({}, None)[0]


def test_only_a_signature_makes_an_object_ours() -> None:
    signed = vni("red", "rack", ours=True)
    store, another = store_for({"zone": "a"}), KindStore(Kind.L3VNI, b"other" * 8, "openperouter-system", {"zone": "a"})
    store.put(signed)
    another.put(vni("red", ours=True))
    labelled = vni("blue")
    labelled["metadata"]["labels"] = {SOURCE_LABEL: STATIC_SOURCE}
    another.put(labelled)
    assert [one.mirrored for one in store.items.values()] == [True]
    assert all(isinstance(one, SelectedObject) and not one.mirrored for one in another.items.values())
    assert len(another.items) == 2


@pytest.mark.parametrize(("namespace", "kept"), [("openperouter-system", {"rawConfig": "!"}), ("tenant", {})])
def test_no_text_is_kept_of_a_snippet_that_is_refused(namespace: str, kept: object) -> None:
    store = KindStore(Kind.RAW_FRR_CONFIG, KEY, "openperouter-system", {})
    store.put({"metadata": {"name": "x", "namespace": namespace}, "spec": {"rawConfig": "!"}})
    [found] = store.objects(mirrored=False)
    assert (found.name, found.spec) == ("x", kept)


@pytest.mark.parametrize(
    ("selector", "kept"), [(SELECTORS["a"], {}), (None, {}), ({"odd": 1}, {"nodeSelector": {"odd": 1}})]
)
def test_a_node_selector_that_was_read_is_not_kept(selector: Any, kept: dict[str, Any]) -> None:
    """Nothing bounds its size, and each object of a tenant costs memory on each node that it selects."""
    store = store_for({"zone": "a"})
    one, ours = vni("red"), vni("own", "a", ours=True)
    one["spec"]["nodeSelector"] = selector
    store.put(one)
    store.put(ours)
    assert [found.spec for found in store.objects(mirrored=False)] == [{"vni": 1, **kept}]
    # A mirror is compared with what it should be.
    assert [found.spec for found in store.objects(mirrored=True)] == [ours["spec"]]
