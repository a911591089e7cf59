"""What is kept of the server's objects, and what is not an object."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pydantic import ValidationError

from actors.lib.kube.decoding import api_node, api_object, is_behind, items, password, version_of
from actors.lib.kube.errors import UnreachableError
from config.desired import Secret
from config.models import Underlay
from config.models.base import MAX_DEPTH
from config.problems import Kind

RAW: dict[str, Any] = {
    "metadata": {
        "name": "red",
        "namespace": "tenant",
        "uid": "u",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": "2026-11-21T00:00:00Z",
        "labels": {"a": "b", "openperouter.github.io/source": "static"},
        "annotations": {
            "openperouter.github.io/file": "d",
            "kubectl.kubernetes.io/last-applied-configuration": '{"password": "hunter2"}',
        },
        "ownerReferences": [{"kind": "Node", "name": "n"}],
        "managedFields": [{}],
    },
    "spec": {"vni": 7, "password": "hunter2"},
    "status": {"conditions": [{"type": "Ready"}, "odd"]},
}


def test_an_object_is_kept_without_unused_fields() -> None:
    found = api_object(Kind.L3VNI, RAW)
    assert (found.namespace, found.name, found.uid, found.resource_version) == ("tenant", "red", "u", "7")
    assert (found.generation, found.created) == (3, "2026-11-21T00:00:00Z")
    assert found.labels == {"openperouter.github.io/source": "static"}
    assert found.annotations == {"openperouter.github.io/file": "d"}
    assert found.owners == ({"kind": "Node", "name": "n"},)
    assert found.spec == RAW["spec"]
    assert "hunter2" not in repr(found)


def test_a_spec_is_kept_to_the_depth_that_is_refused() -> None:
    spec: Any = "end"
    for _ in range(900):
        spec = {"a": [spec]}
    kept = api_object(Kind.UNDERLAY, RAW | {"spec": spec}).spec
    assert str(kept).count("{") + str(kept).count("[") == MAX_DEPTH + 1
    with pytest.raises(ValidationError, match="nested deeper than 32 levels"):
        Underlay.from_api(kept)


def test_an_object_of_the_barest_kind_is_one() -> None:
    found = api_object(Kind.L3VNI, {"metadata": {"name": "red", "labels": None}, "spec": None})
    assert (found.name, found.spec, found.labels, found.generation) == ("red", None, {}, 0)


def test_a_node_s_annotations_are_ours_only() -> None:
    annotations = {"openpe.io/nodeindex": "1", "openperouter.github.io/x": "y", "clock.example/now": "12:00"}
    raw = {"metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}, "annotations": annotations}}
    node = api_node(raw)
    assert (node.name, node.uid, node.labels) == ("n", "u", {"a": "b"})
    assert node.annotations == {"openpe.io/nodeindex": "1", "openperouter.github.io/x": "y"}


@pytest.mark.parametrize("raw", [None, [], {}, {"metadata": None}, {"metadata": {}}, {"metadata": {"name": 7}}])
def test_what_has_no_name_is_no_object(raw: Any) -> None:
    with pytest.raises(UnreachableError):
        api_object(Kind.L3VNI, raw)


@pytest.mark.parametrize("raw", [None, {}, {"metadata": {}}, {"metadata": {"resourceVersion": ""}}])
def test_what_has_no_version_is_none_of_the_server_s(raw: Any) -> None:
    with pytest.raises(UnreachableError):
        version_of(raw)


def test_an_empty_list_is_an_answer_and_no_list_is_none() -> None:
    assert items({"items": []}) == []
    assert items({"kind": "SecretList", "items": None}) == []
    nothing: list[dict[str, Any]] = [{}, {"items": None}, {"items": {}}, {"kind": "Status"}]
    for page in nothing:
        with pytest.raises(UnreachableError):
            items(page)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"hunter2", Secret("hunter2")),
        (b"hunter2\n", Secret("hunter2")),
        (b"hunter2\r\n", Secret("hunter2")),
        (b"", None),
        (b"\n", None),
        (b"two words", None),
        (b"x" * 129, None),
        ("größe".encode(), None),
    ],
)
def test_a_password_is_what_files_may_hold_too(content: bytes, expected: Secret | None) -> None:
    raw = {"metadata": {"name": "s"}, "data": {"password": base64.b64encode(content).decode()}}
    assert password(raw) == expected


@pytest.mark.parametrize("data", [None, {}, {"other": "aHVudGVyMg=="}, {"password": "?"}, {"password": None}, "odd"])
def test_a_secret_without_a_password_has_none(data: Any) -> None:
    assert password({"metadata": {"name": "s"}, "data": data}) is None


def test_versions_are_compared_as_numbers_where_they_are_numbers() -> None:
    assert is_behind("9", "10")
    assert not is_behind("10", "10")
    assert not is_behind("11", "10")
    assert not is_behind("9", None)
    assert not is_behind("a", "b")
    assert not is_behind("b", "10")
