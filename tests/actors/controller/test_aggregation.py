"""Aggregation: what the nodes' reports say together, and that an update names every object that it changes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.controller.aggregation import Aggregation, Verdict, indexed_nodes
from actors.controller.cluster_state import ClusterDecoder, ClusterState
from config.crd.node_status import failed_resource, observed_resource
from config.problems import Kind, Reason

RED = 7


def node(name: str, index: str | None = None, **labels: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "labels": labels}
    return {"metadata": metadata | ({"annotations": {"openpe.io/nodeindex": index}} if index else {})}


def vni(name: str = "red", generation: int = RED, *, kind: str = "L3VNI", selector: Any = None) -> dict[str, Any]:
    metadata = {"namespace": "demo", "name": name, "uid": f"uid-{name}", "generation": generation}
    return {"kind": kind, "metadata": metadata, "spec": {"nodeSelector": selector}}


def report(
    name: str, seen: dict[str, tuple[int, bool]], failed: dict[str, str] | None = None, problem: str = ""
) -> dict[str, Any]:
    """Return a status object as a node writes it."""
    resources = [
        observed_resource(Kind.L3VNI, each, generation, in_force=in_force, namespace="demo")
        for each, (generation, in_force) in seen.items()
    ]
    failures = [
        failed_resource(Kind.L3VNI, each, Reason.VALIDATION_FAILED, message, namespace="demo")
        for each, message in (failed or {}).items()
    ]
    degraded = {
        "type": "Degraded",
        "status": "True" if failed or problem else "False",
        "reason": "ConfigurationFailed",
        "message": problem or "see failedResources",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    data = {
        "conditions": [degraded],
        "resources": [one.model_dump(mode="json", by_alias=True) for one in resources],
        "failedResources": [one.model_dump(mode="json", by_alias=True) for one in failures],
    }
    return {"metadata": {"name": name, "namespace": "openperouter-system"}, "status": data}


def state_of(
    nodes: list[dict[str, Any]],
    reports: list[dict[str, Any]],
    objects: list[dict[str, Any]],
    decoder: ClusterDecoder | None = None,
) -> ClusterState:
    decoder = decoder or ClusterDecoder()
    decoded = [decoder.object(Kind(one["kind"]), one) for one in objects]
    return ClusterState(
        {one["metadata"]["name"]: decoder.node(one) for one in nodes},
        {one["metadata"]["name"]: decoder.report(one) for one in reports},
        {one.key: one for one in decoded},
        live=True,
    )


def judged(state: ClusterState) -> dict[str, Verdict]:
    """Return what holds for each object, computed from nothing."""
    aggregation = Aggregation()
    aggregation.update(state, indexed_nodes(state, state.nodes))
    return {key.name: aggregation.verdict(key) for key in state.objects}


def red(reports: list[dict[str, Any]], **more: Any) -> Verdict:
    nodes = [node(one["metadata"]["name"]) for one in reports]
    return judged(state_of(nodes, reports, [vni(**more)]))["red"]


IN_FORCE = {"red": (RED, True)}


def test_in_force_on_all_nodes_is_ready() -> None:
    verdict = red([report(name, IN_FORCE) for name in "abc"])
    assert (verdict.ready, verdict.degraded) == (True, False)
    assert (verdict.reason, verdict.message) == ("ConfigurationSuccessful", "3/3 nodes")


def test_nodes_that_have_not_processed_this_generation_are_waited_for() -> None:
    seen: list[dict[str, tuple[int, bool]]] = [IN_FORCE, {"red": (RED - 1, True)}, {}, {"red": (RED, False)}]
    verdict = red([report(name, one) for name, one in zip("abcd", seen, strict=True)])
    assert (verdict.ready, verdict.degraded, verdict.reason) == (False, False, "ConfigurationPending")
    assert verdict.message == "1/4 nodes; waiting for b, c and d"


def test_failing_nodes_are_named_the_first_with_its_message() -> None:
    failing = [report(name, {"red": (RED, False)}, {"red": f"reason of {name}"}) for name in "cab"]
    verdict = red([report("d", IN_FORCE), *failing])
    assert (verdict.ready, verdict.degraded, verdict.reason) == (False, True, "ConfigurationFailed")
    assert verdict.message == "1/4 nodes; failing on a (reason of a), b and c"
    assert verdict.degraded_message == "failing on a (reason of a), b and c"


def test_a_router_that_fails_fails_with_its_message() -> None:
    verdict = red([report("a", {"red": (RED, False)}, problem="FRR cannot be reached")])
    assert verdict.message == "0/1 nodes; failing on a (FRR cannot be reached)"


def test_another_resource_that_fails_is_no_failure_of_this_one() -> None:
    seen = {"red": (RED, False), "blue": (1, True)}
    verdict = red([report("a", seen, {"green": "refused"})])
    assert (verdict.degraded, verdict.message) == (False, "0/1 nodes; waiting for a")


def test_only_selected_nodes_that_report_count() -> None:
    nodes = [node("a", zone="x"), node("b", zone="y"), node("c", zone="x"), node("d", zone="x")]
    reports = [report(name, IN_FORCE) for name in ("a", "b", "c", "departed")]
    selectors = {
        "exact": {"matchLabels": {"zone": "x"}},
        "other": {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["x"]}]},
        "none": {"matchLabels": {"zone": "z"}},
        "unreadable": {"matchLabels": 3},
    }
    verdicts = judged(state_of(nodes, reports, [vni(name, 1, selector=one) for name, one in selectors.items()]))
    counts = {name: verdict.message.split()[0] for name, verdict in verdicts.items()}
    assert counts == {"exact": "0/2", "other": "0/1", "none": "0/0", "unreadable": "0/3"}
    assert (verdicts["none"].ready, verdicts["none"].reason) == (None, "NoNodes")


def test_an_underlay_is_degraded_where_nodes_have_the_same_index() -> None:
    nodes = [node("a", "3"), node("b", "3"), node("c", "4")]
    reports = [report(name, IN_FORCE) for name in "abc"]
    objects = [vni(), vni("fabric", 1, kind="Underlay")]
    verdicts = judged(state_of(nodes, reports, objects))
    fabric = verdicts["fabric"]
    assert (fabric.degraded, fabric.degraded_reason) == (True, "DuplicateNodeIndex")
    assert fabric.degraded_message == "nodes a and b have the same index 3, and so the same addresses"
    assert not verdicts["red"].degraded


def test_the_time_of_a_condition_is_that_of_its_last_change() -> None:
    decoder = ClusterDecoder()
    [one] = state_of([], [], [vni()], decoder).objects.values()
    ready, degraded = red([report("a", IN_FORCE)]).conditions(one, 1000.0)
    raw = {
        **vni(),
        "status": {"conditions": [each.model_dump(mode="json", by_alias=True) for each in (ready, degraded)]},
    }
    shown = decoder.object(Kind.L3VNI, raw)
    later, degraded = red([report("a", {})]).conditions(shown, 2000.0)
    assert (later.status, later.last_transition_time) == ("False", "1970-01-01T00:33:20Z")
    assert degraded.last_transition_time == "1970-01-01T00:16:40Z"
    assert red([report("a", IN_FORCE)]).is_shown(shown)
    assert not red([report("b", {})]).is_shown(shown)


def kept_from(before: ClusterState, state: ClusterState) -> ClusterState:
    """Return a state in which what did not change is the same object as before, as the watch has it."""
    objects = {
        key: before.objects[key] if before.objects.get(key) == one else one for key, one in state.objects.items()
    }
    return replace(state, objects=objects)


NAMES = ["a", "b", "c"]
OBJECTS = ["red", "blue"]
SEEN = st.dictionaries(st.sampled_from(OBJECTS), st.tuples(st.integers(1, 2), st.booleans()))
FAILED = st.dictionaries(st.sampled_from(OBJECTS), st.sampled_from(["one", "two"]))
PROBLEM = st.sampled_from(["", "FRR"])


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Any], list[Any], list[Any]]:
    labels = st.fixed_dictionaries({}, optional={"zone": st.sampled_from(["x", "y"])})
    nodes = [
        node(name, draw(st.sampled_from([None, "1", "2"])), **draw(labels))
        for name in draw(st.sets(st.sampled_from(NAMES)))
    ]
    reports = [report(name, draw(SEEN), draw(FAILED), draw(PROBLEM)) for name in draw(st.sets(st.sampled_from(NAMES)))]
    selectors = st.sampled_from([None, {"matchLabels": {"zone": "x"}}])
    kinds = {"red": "L3VNI", "blue": "L3VNI", "fabric": "Underlay"}
    objects = [
        vni(name, draw(st.integers(1, 2)), kind=kinds[name], selector=draw(selectors))
        for name in draw(st.sets(st.sampled_from(sorted(kinds))))
    ]
    return nodes, reports, objects


@settings(derandomize=True)
@given(st.lists(clusters(), min_size=1, max_size=5))
def test_an_update_names_each_object_that_it_changes(history: list[tuple[list[Any], list[Any], list[Any]]]) -> None:
    """What is remembered and brought up to date is what would be computed from nothing."""
    aggregation, decoder, kept = Aggregation(), ClusterDecoder(), dict[str, Verdict]()
    for nodes, reports, objects in history:
        state = kept_from(aggregation.state, state_of(nodes, reports, objects, decoder))
        for key in aggregation.update(state, indexed_nodes(state, state.nodes)):
            kept[key.name] = aggregation.verdict(key)
        assert {key.name: kept[key.name] for key in state.objects} == judged(state)


@settings(derandomize=True)
@given(clusters())
def test_the_counts_add_up(cluster: tuple[list[Any], list[Any], list[Any]]) -> None:
    for verdict in judged(state_of(*cluster)).values():
        in_force, total = map(int, verdict.message.split()[0].split("/"))
        assert in_force <= total
        assert verdict.ready == (None if total == 0 else in_force == total)


@pytest.fixture
def tracing() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize(("length", "selectors"), [(100_000, 50), (10, 300)], ids=["long", "of many nodes"])
@pytest.mark.usefixtures("tracing")
def test_selectors_that_an_object_no_longer_has_are_forgotten(length: int, selectors: int) -> None:
    names = [f"node-{number}" for number in range(1000)]
    aggregation, decoder = Aggregation(), ClusterDecoder()
    reports = state_of([node(name) for name in names], [report(name, {}) for name in names], [], decoder)
    aggregation.update(reports, [])
    before, _ = tracemalloc.get_traced_memory()
    for number in range(selectors):
        expressions = [{"key": "zone", "operator": "NotIn", "values": [f"{number}".rjust(length, "x")]}]
        changed = state_of([], [], [vni(selector={"matchExpressions": expressions})], decoder)
        state = replace(reports, objects=changed.objects)
        aggregation.update(state, [])
        [key] = state.objects
        assert aggregation.verdict(key).message.startswith("0/1000 nodes")
    after, _ = tracemalloc.get_traced_memory()
    assert after - before < 2**20
    last = aggregation.selected(state.objects[key].selector)
    aggregation.update(replace(state), [])
    assert aggregation.selected(state.objects[key].selector) is last


def test_equal_reports_of_several_nodes_are_one_object() -> None:
    state = state_of([], [report(name, IN_FORCE) for name in "abc"], [])
    assert len({id(one) for one in state.reports.values()}) == 1
