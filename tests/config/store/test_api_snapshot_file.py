"""The memory of the API survives its text form, notices damage, and shows no password."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.api import ApiNode, ApiObject, ApiSnapshot
from config.desired import Secret
from config.problems import Kind, ResourceId
from config.resolve.precedence import Held
from config.store.api_snapshot_file import ApiMemory, ApiMemoryError, essence, from_json, to_json

PASSWORD = "correct-horse"
SNAPSHOT = ApiSnapshot(
    node=ApiNode("node-a", "uid", {"zone": "a"}, {"x": "y"}),
    objects=(
        ApiObject(
            Kind.L3VNI, "ns", "red", "uid-1", "12", 2, "2026-11-21T10:00:00Z", {"a": "b"}, {"manifest": PASSWORD},
            ({"kind": "Node"},), {"vrf": "red", "vni": 100}, ({"type": "Ready"},),
        ),
    ),
    mirrored=(ApiObject(Kind.L3VNI, "ns", "static-node-a-red"),),
    secrets=MappingProxyType({("ns", "fabric"): Secret(PASSWORD), ("ns", "gone"): None}),
    node_status={"big": "thing"},
    synced_at=1234.5,
    live=True,
    chosen_by={"zone": "a"},
)  # fmt: skip
RED = ResourceId(Kind.L3VNI, "ns", "red")
STANDING = {RED: Held("digest"), ResourceId(Kind.L2VNI, "ns", "seg"): Held("other", RED)}
MEMORY = ApiMemory("node-a", essence(SNAPSHOT), MappingProxyType(STANDING))


def test_the_essence_is_what_the_router_depends_on() -> None:
    snapshot = essence(SNAPSHOT)
    assert (snapshot.live, snapshot.synced_at, snapshot.secrets) == (False, 1234.5, SNAPSHOT.secrets)
    assert (snapshot.mirrored, snapshot.node_status, snapshot.node) == ((), None, None)
    assert snapshot.chosen_by == {"zone": "a"}
    (one,) = snapshot.objects
    assert (one.id, one.spec, one.origin) == (RED, {"vrf": "red", "vni": 100}, SNAPSHOT.objects[0].origin)
    assert not one.annotations


def test_it_survives_its_text_form() -> None:
    assert from_json(to_json(MEMORY)) == MEMORY
    assert to_json(from_json(to_json(MEMORY))) == to_json(MEMORY)


def test_knowing_no_server_is_not_knowing_a_server_without_objects() -> None:
    for memory in (ApiMemory("a"), ApiMemory("a", ApiSnapshot(synced_at=7.0))):
        assert from_json(to_json(memory)) == memory


def test_a_memory_from_before_labels_were_remembered_is_understood() -> None:
    assert MEMORY.snapshot is not None
    stored = json.loads(to_json(MEMORY))
    del stored["content"]["labels"]
    text = json.dumps(stored["content"], sort_keys=True, separators=(",", ":"))
    stored["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    assert from_json(json.dumps(stored)) == replace(MEMORY, snapshot=replace(MEMORY.snapshot, chosen_by=None))


def test_no_labels_are_not_unknown_labels() -> None:
    either: tuple[dict[str, str] | None, ...] = ({}, None)
    for labels in either:
        memory = ApiMemory("a", ApiSnapshot(chosen_by=labels))
        found = from_json(to_json(memory)).snapshot
        assert found is not None
        assert found.chosen_by == labels


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.text(min_size=1), st.floats(0, 1e10))
def test_any_spec_survives(spec: object, name: str, moment: float) -> None:
    snapshot = ApiSnapshot(objects=(ApiObject(Kind.L2VNI, "ns", name, spec=spec),), synced_at=moment)
    memory = ApiMemory(name, snapshot)
    assert from_json(to_json(memory)) == memory


def outcome(text: bytes) -> ApiMemory | str:
    try:
        return from_json(text)
    except ApiMemoryError as error:
        return str(error)


@given(st.integers(0), st.integers(1, 255))
def test_any_damaged_byte_is_noticed(place: int, change: int) -> None:
    damaged = bytearray(to_json(MEMORY).rstrip().encode())
    damaged[place % len(damaged)] ^= change
    found = outcome(bytes(damaged))
    assert found == MEMORY or isinstance(found, str)
    assert PASSWORD not in str(found)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a version 1 memory"),
        ('{"version": 2}', "not a version 1 memory"),
        (json.dumps(json.loads(to_json(MEMORY)) | {"sha256": "0"}), "checksum does not fit"),
        (json.dumps({"version": 1, "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
                     "content": {}}), "cannot be understood"),
    ],
)  # fmt: skip
def test_what_is_no_memory_is_said_to_be_none(text: str, reason: str) -> None:
    with pytest.raises(ApiMemoryError, match=reason):
        from_json(text)


def test_time_and_reports_on_objects_are_no_news() -> None:
    assert MEMORY.snapshot is not None
    later = replace(MEMORY.snapshot, synced_at=9999.0)
    touched = replace(later, objects=(replace(later.objects[0], resource_version="99"),))
    assert replace(MEMORY, snapshot=touched).same_as(MEMORY)


@pytest.mark.parametrize(
    "other",
    [
        None,
        ApiMemory("node-a"),
        replace(MEMORY, node_name="node-b"),
        replace(MEMORY, standing={}),
        replace(MEMORY, snapshot=replace(SNAPSHOT, secrets={("ns", "fabric"): Secret("new")})),
        replace(MEMORY, snapshot=replace(SNAPSHOT, objects=())),
        replace(MEMORY, snapshot=replace(essence(SNAPSHOT), chosen_by={"zone": "b"})),
        replace(MEMORY, snapshot=replace(SNAPSHOT, objects=(replace(SNAPSHOT.objects[0], spec={}),))),
    ],
)
def test_everything_else_is_news(other: ApiMemory | None) -> None:
    assert not MEMORY.same_as(other)


def test_it_shows_no_password() -> None:
    assert PASSWORD not in repr(MEMORY)
    assert PASSWORD in to_json(MEMORY)
    assert to_json(MEMORY).count(PASSWORD) == 1
