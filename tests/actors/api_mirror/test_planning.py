"""What has to change for the API to show the files."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.api_mirror.planning import (
    Change,
    MirrorPlan,
    another_nodes,
    difference,
    mirrors,
    plan,
    renamed,
    same_content,
)
from config.api import PROOF_ANNOTATION, SOURCE_LABEL, STATIC_NODE_LABEL, ApiObject
from config.outcomes import StaticSnapshot
from config.resources import Resource
from config.sources.mirror_objects import other_name
from tests.fakes.api_server import merged

from .examples import NODE, blue, broken, files, prove, red, snapshot, stored, unknown

MIRROR = mirrors(files(red()), NODE, prove)[red().id]
LABELS = dict(MIRROR.labels)


def planned(static: StaticSnapshot, *mirrored: ApiObject, objects: tuple[ApiObject, ...] = ()) -> MirrorPlan:
    return plan(static, mirrors(static, NODE, prove), snapshot(*mirrored, objects=objects))


def quiet(result: MirrorPlan) -> bool:
    return not result.changes and not result.mislabelled


def verbs(result: MirrorPlan) -> list[tuple[str, str]]:
    return [(change.verb, change.id.name) for change in result.changes]


def test_a_missing_mirror_is_created() -> None:
    assert verbs(planned(files(red(), blue()))) == [("create", "static-node-red"), ("create", "static-node-blue")]


def test_a_mirror_that_is_there_needs_no_change() -> None:
    assert quiet(planned(files(red()), stored(MIRROR)))


def test_the_servers_own_defaults_are_no_difference() -> None:
    spec = {key: value for key, value in MIRROR.spec.items() if key != "vxlanPort"} | {"importRTs": []}
    assert quiet(planned(files(red()), stored(MIRROR, spec=spec)))


def test_mirrors_that_no_file_has_are_deleted_first() -> None:
    assert verbs(planned(files(blue()), stored(MIRROR))) == [
        ("delete", "static-node-red"),
        ("create", "static-node-blue"),
    ]


@pytest.mark.parametrize(
    "edited",
    [
        {"spec": MIRROR.spec | {"vni": 7}},
        {"spec": MIRROR.spec | {"importRTs": ["1:1"]}},
        {"spec": MIRROR.spec | {"nodeSelector": {}}},
        {"spec": MIRROR.spec | {"unheard": "of"}},
        {"spec": None},
        {"labels": {}},
        {"labels": LABELS | {STATIC_NODE_LABEL: "other"}},
        {"owners": ()},
        {"owners": (*MIRROR.owners, {"apiVersion": "v1", "kind": "ConfigMap", "name": "keeps", "uid": "it"})},
        {"owners": ({**MIRROR.owners[0], "blockOwnerDeletion": True},)},
        {"annotations": {}},
        {"annotations": {**MIRROR.annotations, "openperouter.github.io/withheld": "nothing"}},
    ],
)
def test_a_manual_edit_is_reverted(edited: dict[str, Any]) -> None:
    observed = stored(MIRROR, **edited)
    assert planned(files(red()), observed).changes == (Change(observed, MIRROR),)


def test_labels_and_annotations_of_others_are_left_alone() -> None:
    observed = stored(MIRROR, labels={**LABELS, "team": "x"}, annotations={**MIRROR.annotations, "note": "y"})
    assert quiet(planned(files(red()), observed))


def test_an_object_of_a_files_resource_is_its_mirror_even_without_proof() -> None:
    stripped = stored(MIRROR, labels={}, annotations={})
    result = planned(files(red()), objects=(stripped,))
    assert (result.changes, result.mislabelled) == ((Change(stripped, MIRROR),), ())


OTHER_LABEL = {"labels": LABELS | {STATIC_NODE_LABEL: "no"}}
OTHER_OWNER = {"labels": {}, "owners": ({"apiVersion": "v1", "kind": "Node", "name": "no", "uid": "u"},)}


@pytest.mark.parametrize("changes", [OTHER_LABEL, OTHER_OWNER])
def test_the_label_or_owner_names_another_node(changes: dict[str, Any]) -> None:
    assert another_nodes(stored(MIRROR, **changes), MIRROR) == "no"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"labels": {}, "owners": ()},
        {"owners": ({**MIRROR.owners[0], "uid": "from before the Node was made again"},)},
        {"owners": ({"apiVersion": "v1", "kind": "ConfigMap", "name": "no", "uid": "u"},)},
    ],
)
def test_neither_names_another_node(changes: dict[str, Any]) -> None:
    assert another_nodes(stored(MIRROR, **changes), MIRROR) == ""


def named_otherwise(*resources: Resource) -> tuple[dict[Any, ApiObject], dict[Any, Any]]:
    """Return the mirrors when the names of all are taken, and what they are called."""
    static = files(*resources)
    names = dict(renamed(static, snapshot(), {one.id for one in resources}))
    return mirrors(static, NODE, prove, names), names


def test_a_mirror_whose_name_is_taken_has_another_and_its_own_proof() -> None:
    wanted, names = named_otherwise(red())
    [mirror] = wanted.values()
    assert mirror.name == other_name("static-node-red", "node") == names[red().id].name
    assert mirror.annotations[PROOF_ANNOTATION] == prove(mirror.id)
    assert (mirror.spec, mirror.labels) == (MIRROR.spec, MIRROR.labels)


def test_a_mirror_keeps_the_name_that_it_has() -> None:
    wanted, _ = named_otherwise(red())
    [mirror] = wanted.values()
    there = snapshot(stored(mirror))
    assert {one.name for one in renamed(files(red()), there, ()).values()} == {mirror.name}
    assert plan(files(red()), wanted, there).changes == ()


def test_a_mirror_that_is_there_under_its_own_name_needs_no_other() -> None:
    wanted, _ = named_otherwise(red())
    both = snapshot(stored(MIRROR), *(stored(one) for one in wanted.values()))
    assert renamed(files(red()), both, {red().id}) == {}
    result = plan(files(red()), mirrors(files(red()), NODE, prove), both)
    assert [(change.verb, change.id) for change in result.changes] == [("delete", next(iter(wanted)))]


@pytest.mark.parametrize("static", [files(broken(red())), files(unknown("/c/openpe_a.yaml"))])
def test_a_mirror_under_another_name_stays_when_its_resource_became_unusable(static: StaticSnapshot) -> None:
    wanted, _ = named_otherwise(red())
    there = snapshot(*(stored(one) for one in wanted.values()))
    assert quiet(plan(static, mirrors(static, NODE, prove, renamed(static, there, ())), there))


def test_a_mirror_under_another_name_goes_with_its_resource() -> None:
    wanted, _ = named_otherwise(red())
    assert verbs(planned(files(), *(stored(one) for one in wanted.values()))) == [("delete", next(iter(wanted)).name)]


def test_a_mirror_with_another_nodes_proof_is_foreign() -> None:
    foreign = stored(MIRROR, annotations={PROOF_ANNOTATION: "another key's"})
    assert planned(files(red()), objects=(foreign,)).foreign == {red().id}
    assert planned(files(red()), objects=(stored(MIRROR, annotations={}),)).foreign == frozenset()


def test_a_label_alone_makes_no_mirror() -> None:
    spoof = ApiObject(MIRROR.kind, "ns", "mine", uid="u2", labels=LABELS)
    result = planned(files(), objects=(spoof,))
    assert (result.changes, result.mislabelled) == ((), (spoof,))


def test_an_object_of_a_user_needs_no_change() -> None:
    assert quiet(planned(files(), objects=(ApiObject(MIRROR.kind, "ns", "mine"),)))


@pytest.mark.parametrize("observed", [stored(MIRROR), stored(MIRROR, labels={}, spec={})])
def test_the_mirror_of_a_resource_that_became_invalid_stays_as_it_was(observed: ApiObject) -> None:
    assert quiet(planned(files(broken(red())), observed))
    assert quiet(planned(files(broken(red())), objects=(observed,)))


@pytest.mark.parametrize("place", ["/c/openpe_a.yaml", "/c"])
def test_nothing_from_a_file_of_unknown_content_is_deleted(place: str) -> None:
    assert quiet(planned(files(unknown(place)), stored(MIRROR)))


def test_a_mirror_that_does_not_say_its_file_stays_while_any_content_is_unknown() -> None:
    anonymous = stored(MIRROR, annotations={PROOF_ANNOTATION: prove(MIRROR.id)})
    assert quiet(planned(files(unknown("/c/openpe_z.yaml")), anonymous))


@pytest.mark.parametrize("place", ["/c/openpe_z.yaml", "/c/openpe_a", "/"])
def test_other_files_unknown_content_keeps_nothing(place: str) -> None:
    assert verbs(planned(files(unknown(place)), stored(MIRROR))) == [("delete", "static-node-red")]


def test_a_resource_that_cannot_be_read_has_no_mirror() -> None:
    assert mirrors(files(unknown("/c/openpe_a.yaml"), broken(red())), NODE, prove) == {}


def test_the_proof_is_that_of_the_objects_own_identity() -> None:
    assert MIRROR.annotations[PROOF_ANNOTATION] == prove(red().id) != prove(blue().id)


def test_a_patch_has_only_what_differs() -> None:
    observed = stored(
        MIRROR,
        labels={**LABELS, SOURCE_LABEL: "x", "team": "x"},
        annotations={**MIRROR.annotations, "openperouter.github.io/withheld": "x", "note": "y"},
        spec=MIRROR.spec | {"vni": 7, "unheard": 1},
    )
    assert difference(observed, MIRROR) == {
        "metadata": {"labels": {SOURCE_LABEL: "static"}, "annotations": {"openperouter.github.io/withheld": None}},
        "spec": {"vni": 100, "unheard": None},
    }


def test_a_patch_goes_into_objects_and_replaces_lists() -> None:
    one = mirrors(files(red(pool="198.51.100.0/24")), NODE, prove)[red().id]
    assert difference(stored(MIRROR), one) == {"spec": {"hostSession": {"localCIDR": {"ipv4": "198.51.100.0/24"}}}}
    owners = difference(stored(MIRROR, owners=()), MIRROR)
    assert owners == {"metadata": {"ownerReferences": [dict(MIRROR.owners[0])]}}


JSON = st.recursive(
    st.integers(0, 2) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("xyz"), JSON, max_size=3) | st.none() | st.just("text"))
def test_a_patch_makes_any_spec_the_wanted_one(spec: Any) -> None:
    patch = difference(stored(MIRROR, spec=spec), MIRROR)
    assert merged({"spec": spec}, patch)["spec"] == MIRROR.spec


@pytest.mark.parametrize(
    "other", [{}, {"labels": {**LABELS, "a": "b"}}, {"annotations": {**MIRROR.annotations, "a": "b"}}]
)
def test_content_is_the_same_whatever_the_version_and_other_clients_labels(other: dict[str, Any]) -> None:
    assert same_content(stored(MIRROR, **other), MIRROR, MIRROR)


@pytest.mark.parametrize("other", [{"labels": {}}, {"annotations": {}}, {"owners": ()}, {"spec": {}}])
def test_content_differs_in_whatever_is_ours(other: dict[str, Any]) -> None:
    assert not same_content(stored(MIRROR, **other), MIRROR, MIRROR)


def test_a_change_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="nothing"):
        _ = Change(None, None).id


@given(st.lists(st.sampled_from([red(), blue(), broken(red()), red(5)]), unique_by=lambda one: one.id))
def test_a_carried_out_plan_leaves_nothing_to_plan(resources: list[Resource]) -> None:
    static = files(*resources)
    done: dict[Any, ApiObject] = {MIRROR.id: stored(MIRROR)}
    for change in planned(static, *done.values()).changes:
        done.pop(change.id, None)
        if change.wanted:
            done[change.id] = stored(change.wanted)
    assert quiet(planned(static, *done.values()))
