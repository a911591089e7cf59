"""What is written on an object is read again as it was meant, and nonsense is read as nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.status_writer.condition_codec import Claim, claim_of, conditions, confirmed, failing, manifest
from config.api import ApiObject

from .examples import cr

NOW = 1_800_000_000.0
names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?(\.[a-z0-9]{1,60}){0,3}", fullmatch=True)
claims = st.one_of(
    st.builds(Claim, st.just(False), names),
    st.builds(failing, names, st.text(), st.text()),
)


def carrying(claim: Claim, one: ApiObject | None = None, now: float = NOW) -> ApiObject:
    one = one or cr()
    made = conditions(claim, one.generation, now, one.conditions)
    return replace(one, conditions=tuple(each.model_dump(by_alias=True, exclude_none=True) for each in made))


@settings(max_examples=50)
@given(claims)
def test_a_claim_is_read_as_it_was_written(claim: Claim) -> None:
    assert claim_of(carrying(claim)) == claim


@settings(max_examples=30)
@given(names, st.text(), st.text())
def test_a_confirmed_claim_is_the_same_claim(node: str, reason: str, why: str) -> None:
    claim = failing(node, reason, why)
    read = claim_of(carrying(confirmed(claim, NOW)))
    assert read is not None
    assert read.same(claim)
    assert read.confirmed == "2027-01-15T08:00:00Z"
    again = claim_of(carrying(confirmed(read, NOW + 60)))
    assert again is not None
    assert again.same(claim)
    assert again.confirmed == "2027-01-15T08:01:00Z"


def test_ready_and_degraded_are_opposites_and_name_the_node() -> None:
    ready, degraded = conditions(failing("node-x", "ValidationFailed", "vni 100 is taken"), 4, NOW, ())
    assert (ready.type, ready.status, degraded.type, degraded.status) == ("Ready", "False", "Degraded", "True")
    assert degraded.message == "node node-x: vni 100 is taken"
    assert {ready.observed_generation, degraded.observed_generation} == {4}
    assert degraded.reason == "ValidationFailed"


def test_a_transition_time_stays_while_the_status_does() -> None:
    first = carrying(failing("node-x", "ValidationFailed", "one"))
    second = carrying(failing("node-y", "DependencyFailed", "two"), first, NOW + 100)
    third = carrying(Claim(False, "node-y"), second, NOW + 200)
    times = [[each["lastTransitionTime"] for each in one.conditions] for one in (first, second, third)]
    assert times[0] == times[1]
    assert times[2] == ["2027-01-15T08:03:20Z"] * 2


def test_a_claim_on_an_older_generation_is_none_on_this_one() -> None:
    assert claim_of(replace(carrying(Claim(False, "a")), generation=2)) is None


def _edit(place: int, **changes: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda data: data[place].update(changes)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.clear(),
        lambda data: data.pop(),
        _edit(0, status="True"),
        _edit(0, status="Unknown"),
        _edit(1, message="something is wrong"),
        _edit(0, message="something is wrong"),
        _edit(1, reason="Other"),
        _edit(1, observedGeneration=9),
    ],
)
def test_what_somebody_else_made_of_it_is_nothing(spoil: Callable[[list[dict[str, Any]]], None]) -> None:
    one = carrying(failing("node-x", "ValidationFailed", "vni 100 is taken"))
    data = [dict(each) for each in one.conditions]
    spoil(data)
    assert claim_of(replace(one, conditions=tuple(data))) is None


@pytest.mark.parametrize(
    "node",
    ["\x7f", "../../..", "..", "a/../../b", "?watch=true", "node-a?limit=1", "node-a#x", "%2e%2e", "node-a/status",
     "Node-A", "nöde", "-a", "a-", ".a", "a.", "a..b", "a.-b", "n" * 254],
)  # fmt: skip
def test_what_no_node_can_be_called_claims_nothing(node: str) -> None:
    """The name becomes part of a path, and anybody who may write a status may have written it."""
    one = carrying(failing("node-x", "ValidationFailed", "broken"))
    data = tuple({**each, "message": f"node {node}: broken"} for each in one.conditions)
    assert claim_of(replace(one, conditions=data)) is None


def test_the_longest_name_is_a_name() -> None:
    claim = failing(f"{'n' * 63}." * 3 + "n" * 61, "ValidationFailed", "broken")
    assert claim_of(carrying(claim)) == claim


def test_a_very_long_reason_is_cut() -> None:
    assert len(failing("a", "x", "y" * 9000).why) == 500


def test_what_is_applied_is_guarded_by_version_and_uid() -> None:
    one = cr("red", version="77", generation=3)
    written = manifest(one, Claim(False, "node-a"), NOW)
    assert written["metadata"] == {"name": "red", "namespace": "tenants", "uid": "uid-of-red", "resourceVersion": "77"}
    assert [each["type"] for each in written["status"]["conditions"]] == ["Ready", "Degraded"]
    assert "spec" not in written
