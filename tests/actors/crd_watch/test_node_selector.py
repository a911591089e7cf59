"""Where an object belongs. That selectors mean what Kubernetes means is tested with config.models.selector."""

from __future__ import annotations

from typing import Any

import pytest

from actors.crd_watch.node_selector import Place, Verdict, judge
from actors.lib.kube.mirror_signature import proof
from config.api import PROOF_ANNOTATION, SOURCE_LABEL, STATIC_SOURCE, ApiObject
from config.problems import Kind, ResourceId

KEY = b"k" * 32
LABELS = {"zone": "a"}
MINE = {"matchLabels": {"zone": "a"}}
OTHERS = {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}


def candidate(spec: Any, **more: Any) -> ApiObject:
    return ApiObject(Kind.L3VNI, "default", "red", spec=spec, **more)


@pytest.mark.parametrize(
    ("spec", "place", "keys"),
    [
        ({}, Place.HERE, set()),
        ({"nodeSelector": None}, Place.HERE, set()),
        ({"nodeSelector": {}}, Place.HERE, set()),
        ({"nodeSelector": MINE}, Place.HERE, {"zone"}),
        ({"nodeSelector": OTHERS}, Place.ELSEWHERE, {"rack"}),
        ({"nodeSelector": {**MINE, **OTHERS}}, Place.ELSEWHERE, {"zone", "rack"}),
        ({"nodeSelector": {"matchFields": {}}}, Place.HERE, set()),
        ({"nodeSelector": 7}, Place.HERE, set()),
        (None, Place.HERE, set()),
        ("odd", Place.HERE, set()),
    ],
)
def test_a_selector_decides_and_one_that_cannot_be_read_does_not(spec: Any, place: Place, keys: set[str]) -> None:
    assert judge(candidate(spec), LABELS, KEY) == Verdict(place, frozenset(keys))


def test_of_a_node_that_is_not_known_nothing_is_assumed() -> None:
    without = {"matchExpressions": [{"key": "rack", "operator": "DoesNotExist"}]}
    assert judge(candidate({"nodeSelector": without}), LABELS, KEY).place is Place.HERE
    assert judge(candidate({"nodeSelector": without}), None, KEY).place is Place.ELSEWHERE
    assert judge(candidate({}), None, KEY).place is Place.HERE


def test_only_a_proof_makes_an_object_ours() -> None:
    signed = {PROOF_ANNOTATION: proof(KEY, ResourceId(Kind.L3VNI, "default", "red"))}
    assert judge(candidate({"nodeSelector": OTHERS}, annotations=signed), LABELS, KEY).place is Place.MIRRORED
    assert judge(candidate({}, annotations=signed), LABELS, b"other" * 8).place is Place.HERE
    assert judge(candidate({}, labels={SOURCE_LABEL: STATIC_SOURCE}), LABELS, KEY).place is Place.HERE
