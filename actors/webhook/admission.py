"""AdmissionReview (admission.k8s.io/v1): reading the API server's requests and writing the responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from actors.lib.kube.decoding import api_object
from actors.lib.kube.errors import UnreachableError
from config.admission.review import ReviewRequest, ReviewResponse
from config.api import GROUP, PLURALS
from config.problems import Kind

_API_VERSION: Final = "admission.k8s.io/v1"
#: The operations that are reviewed; a deletion is never refused.
_REVIEWED: Final = ("CREATE", "UPDATE")


class NotAReviewError(Exception):
    """The body is not an AdmissionReview; the text says why."""


def read_review(body: bytes) -> tuple[str, ReviewRequest]:
    """Return the request's uid and content. Raises :class:`NotAReviewError`.

    Objects of other kinds, and those that are being deleted, become a request that is always allowed.
    """
    try:
        review = json.loads(body)
        if review["apiVersion"] != _API_VERSION:
            raise NotAReviewError(f"not {_API_VERSION}")
        asked = review["request"]
        uid, operation, group, kind = asked["uid"], asked["operation"], asked["kind"]["group"], asked["kind"]["kind"]
        if not isinstance(uid, str) or not uid:
            raise NotAReviewError("the request has no uid")
        if group != GROUP or kind not in set(PLURALS) or operation not in _REVIEWED:
            return uid, ReviewRequest(None)
        old = _object(kind, asked["oldObject"], asked) if operation == "UPDATE" else None
        if "deletionTimestamp" in (asked["object"].get("metadata") or {}):
            return uid, ReviewRequest(None)
        return uid, ReviewRequest(_object(kind, asked["object"], asked), old)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError, UnreachableError) as error:
        raise NotAReviewError(f"not an AdmissionReview: {type(error).__name__}") from None


def write_review(uid: str, answer: ReviewResponse) -> bytes:
    """Return the response that the API server expects."""
    response: dict[str, Any] = {"uid": uid, "allowed": answer.allowed}
    if answer.warnings:
        response["warnings"] = list(answer.warnings)
    if not answer.allowed:
        response["status"] = {"code": 422, "reason": "Invalid", "message": answer.message}
    return json.dumps({"apiVersion": _API_VERSION, "kind": "AdmissionReview", "response": response}).encode()


def _object(kind: str, raw: Mapping[str, Any], asked: Mapping[str, Any]) -> Any:
    # The namespace, and a name that the server generates (generateName), may be in the request only.
    named = {"name": asked.get("name") or "", "namespace": asked.get("namespace") or ""}
    return api_object(Kind(kind), {**raw, "metadata": {**named, **raw["metadata"]}})
