"""AdmissionReviews as API servers send them, and malformed ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actors.webhook.admission import NotAReviewError, read_review, write_review
from config.admission.review import ReviewResponse
from config.problems import Kind, ResourceId


def asked(operation: str = "CREATE", **more: Any) -> dict[str, Any]:
    request = {
        "uid": "705ab4f5",
        "kind": {"group": "network.openperouter.io", "version": "v1alpha1", "kind": "L3VNI"},
        "name": "red",
        "namespace": "tenant",
        "operation": operation,
        "object": {"metadata": {"name": "red", "namespace": "tenant"}, "spec": {"vrf": "red", "vni": 1}},
        "oldObject": None,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request | more}


def encoded(review: Any) -> bytes:
    return json.dumps(review).encode()


def test_a_creation_has_its_object() -> None:
    uid, request = read_review(encoded(asked()))
    assert uid == "705ab4f5"
    assert request.new is not None
    assert request.new.id == ResourceId(Kind.L3VNI, "tenant", "red")
    assert request.new.spec == {"vrf": "red", "vni": 1}
    assert request.old is None


def test_an_update_has_both_versions() -> None:
    old = {"metadata": {"name": "red", "namespace": "tenant"}, "spec": {"vrf": "red", "vni": 2}}
    _, request = read_review(encoded(asked("UPDATE", oldObject=old)))
    assert request.old is not None
    assert request.old.spec["vni"] == 2


def test_a_name_that_the_server_makes_may_be_missing() -> None:
    _, request = read_review(encoded(asked(object={"metadata": {"generateName": "red-"}, "spec": {}}, name="")))
    assert request.new is not None
    assert request.new.namespace == "tenant"


@pytest.mark.parametrize(
    "review",
    [
        asked("DELETE", object=None),
        asked("CONNECT"),
        asked(kind={"group": "apps", "version": "v1", "kind": "Deployment"}),
        asked("UPDATE", object={"metadata": {"name": "red", "deletionTimestamp": "now"}}, oldObject={"metadata": {}}),
    ],
)
def test_what_is_not_reviewed_is_allowed(review: Any) -> None:
    _, request = read_review(encoded(review))
    assert request.new is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'"text"',
        b"\xff\xfe",
        encoded({"request": {"uid": ""}}),
        encoded(asked(object=None)),
        encoded(asked(object="text")),
        encoded(asked(object={"metadata": 7})),
        encoded(asked("UPDATE")),
        encoded(asked(kind="L3VNI")),
        encoded(asked(uid=7)),
        encoded({**asked(), "apiVersion": "admission.k8s.io/v1beta1"}),
        b"[" * 100_000,
    ],
)
def test_what_is_no_review_is_refused_without_quoting_it(body: bytes) -> None:
    with pytest.raises(NotAReviewError):
        read_review(body)


def test_an_answer_names_the_request_it_is_for() -> None:
    denied = json.loads(write_review("705ab4f5", ReviewResponse(allowed=False, message="taken")))
    assert denied["response"] == {
        "uid": "705ab4f5",
        "allowed": False,
        "status": {"code": 422, "reason": "Invalid", "message": "taken"},
    }
    warned = json.loads(write_review("1", ReviewResponse(warnings=("a", "b"))))
    assert warned["response"] == {"uid": "1", "allowed": True, "warnings": ["a", "b"]}
