"""The saved API snapshot: it survives its text form, notices damage, and shows no password."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.api import ApiNode, ApiObject, ApiSnapshot
from config.desired import Secret
from config.precedence import Held
from config.problems import Kind, ResourceId
from config.store.api_snapshot_file import FILE, SavedSnapshot, essence, from_json, read_saved, to_json
from config.store.json_store import StoreError

PASSWORD = "correct-horse"
SNAPSHOT = ApiSnapshot(
    node=ApiNode("node-a", "uid", {"zone": "a"}, {"x": "y"}),
    objects=(
        ApiObject(
            Kind.L3VNI, "ns", "red", "uid-1", "12", 2, "2026-11-21T10:00:00Z", {"a": "b"}, {"manifest": PASSWORD},
            ({"kind": "Node"},), {"vrf": "red", "vni": 100},
        ),
    ),
    mirrored=(ApiObject(Kind.L3VNI, "ns", "static-node-a-red"),),
    secrets=MappingProxyType({("ns", "fabric", "password"): Secret(PASSWORD), ("ns", "gone", "password"): None}),
    node_status={"big": "thing"},
    synced_at=1234.5,
    live=True,
    chosen_by={"zone": "a"},
)  # fmt: skip
RED = ResourceId(Kind.L3VNI, "ns", "red")
STANDING = {RED: Held("digest"), ResourceId(Kind.L2VNI, "ns", "seg"): Held("other", RED)}
SAVED = SavedSnapshot("node-a", essence(SNAPSHOT), MappingProxyType(STANDING))


#: As version 0.1 wrote it.
WRITTEN = (
    '{"version": 1, "sha256": "747ce443ac5b3b2bc7828177f8e20a7d708a38c8e3826425b8510201d7ca3a3f", "content": {"node": '
    '"node-a", "synced_at": 1234.5, "labels": {"zone": "a"}, "objects": [{"kind": "L3VNI", "namespace": "ns", "name": '
    '"red", "uid": "uid-1", "resource_version": "12", "generation": 2, "created": "2026-11-21T10:00:00Z", "spec": '
    '{"vrf": "red", "vni": 100}}], "secrets": [{"namespace": "ns", "name": "fabric", "password": "correct-horse"}, '
    '{"namespace": "ns", "name": "gone", "password": null}], "in_force": [["L2VNI", "ns", "seg", "other", ["L3VNI", '
    '"ns", "red"]], ["L3VNI", "ns", "red", "digest", null]]}}\n'
)


def test_files_are_read_and_written_as_they_always_were() -> None:
    assert from_json(WRITTEN) == SAVED
    assert to_json(SAVED) == WRITTEN


def test_a_password_under_another_key_is_read_and_written() -> None:
    secrets = {("ns", "fabric", "tor-1"): Secret("other"), ("ns", "fabric", "password"): Secret(PASSWORD)}
    saved = replace(SAVED, snapshot=replace(SNAPSHOT, secrets=MappingProxyType(secrets)))
    again = from_json(to_json(saved)).snapshot
    assert again is not None
    assert again.secrets == secrets


def test_only_this_nodes_snapshot_is_read(tmp_path: Path) -> None:
    assert read_saved([tmp_path], "node-a") is None
    (tmp_path / FILE).write_text(WRITTEN)
    assert read_saved([tmp_path], "node-a") == SAVED
    with pytest.raises(StoreError, match=r"api-snapshot\.json: it belongs to another node, node-a"):
        read_saved([tmp_path], "node-b")
    (tmp_path / FILE).write_text(WRITTEN.replace("red", "blue"))
    with pytest.raises(StoreError, match=r"api-snapshot\.json: damaged: the checksum does not match"):
        read_saved([tmp_path], "node-a")


def test_the_essence_is_what_the_router_depends_on() -> None:
    snapshot = essence(SNAPSHOT)
    assert (snapshot.live, snapshot.synced_at, snapshot.secrets) == (False, 1234.5, SNAPSHOT.secrets)
    assert (snapshot.mirrored, snapshot.node_status, snapshot.node) == ((), None, None)
    assert snapshot.chosen_by == {"zone": "a"}
    (one,) = snapshot.objects
    assert (one.id, one.spec, one.origin) == (RED, {"vrf": "red", "vni": 100}, SNAPSHOT.objects[0].origin)
    assert not one.annotations


def test_it_survives_its_text_form() -> None:
    assert from_json(to_json(SAVED)) == SAVED
    assert to_json(from_json(to_json(SAVED))) == to_json(SAVED)


def test_no_answer_from_a_server_differs_from_a_server_without_objects() -> None:
    for saved in (SavedSnapshot("a"), SavedSnapshot("a", ApiSnapshot(synced_at=7.0))):
        assert from_json(to_json(saved)) == saved


def test_a_snapshot_from_before_labels_were_saved_is_read() -> None:
    assert SAVED.snapshot is not None
    stored = json.loads(to_json(SAVED))
    del stored["content"]["labels"]
    text = json.dumps(stored["content"], sort_keys=True, separators=(",", ":"))
    stored["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    assert from_json(json.dumps(stored)) == replace(SAVED, snapshot=replace(SAVED.snapshot, chosen_by=None))


def test_no_labels_differ_from_unknown_labels() -> None:
    either: tuple[dict[str, str] | None, ...] = ({}, None)
    for labels in either:
        saved = SavedSnapshot("a", ApiSnapshot(chosen_by=labels))
        found = from_json(to_json(saved)).snapshot
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
    saved = SavedSnapshot(name, snapshot)
    assert from_json(to_json(saved)) == saved


def outcome(text: bytes) -> SavedSnapshot | str:
    try:
        return from_json(text)
    except StoreError as error:
        return str(error)


@given(st.integers(0), st.integers(1, 255))
def test_any_damaged_byte_is_noticed(place: int, change: int) -> None:
    damaged = bytearray(to_json(SAVED).rstrip().encode())
    damaged[place % len(damaged)] ^= change
    found = outcome(bytes(damaged))
    assert found == SAVED or isinstance(found, str)
    assert PASSWORD not in str(found)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a version 1 snapshot"),
        ('{"version": 2}', "not a version 1 snapshot"),
        (json.dumps(json.loads(to_json(SAVED)) | {"sha256": "0"}), "checksum does not match"),
        (json.dumps({"version": 1, "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
                     "content": {}}), "not a valid snapshot of the API: node: Field required"),
    ],
)  # fmt: skip
def test_an_unusable_snapshot_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(StoreError, match=reason):
        from_json(text)


def test_time_and_status_updates_change_nothing() -> None:
    assert SAVED.snapshot is not None
    later = replace(SAVED.snapshot, synced_at=9999.0)
    touched = replace(later, objects=(replace(later.objects[0], resource_version="99"),))
    assert replace(SAVED, snapshot=touched).same_as(SAVED)


@pytest.mark.parametrize(
    "other",
    [
        None,
        SavedSnapshot("node-a"),
        replace(SAVED, node_name="node-b"),
        replace(SAVED, standing={}),
        replace(SAVED, snapshot=replace(SNAPSHOT, secrets={("ns", "fabric", "password"): Secret("new")})),
        replace(SAVED, snapshot=replace(SNAPSHOT, objects=())),
        replace(SAVED, snapshot=replace(essence(SNAPSHOT), chosen_by={"zone": "b"})),
        replace(SAVED, snapshot=replace(SNAPSHOT, objects=(replace(SNAPSHOT.objects[0], spec={}),))),
    ],
)
def test_everything_else_is_a_change(other: SavedSnapshot | None) -> None:
    assert not SAVED.same_as(other)


def test_it_shows_no_password() -> None:
    assert PASSWORD not in repr(SAVED)
    assert PASSWORD in to_json(SAVED)
    assert to_json(SAVED).count(PASSWORD) == 1
