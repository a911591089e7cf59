"""ERROR events: what goes wrong with a watch after it has begun."""

from __future__ import annotations

from typing import Any

import pytest

from actors.lib.kube.errors import ApiError, CredentialsError, GoneError, ServerError, error_in


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", None])
def test_other_events_are_no_errors(kind: str | None) -> None:
    assert error_in({"type": kind, "object": {"code": 410}}) is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ({"code": 410, "reason": "Expired", "message": "too old resource version: 1 (2)"}, GoneError),
        ({"code": 401, "reason": "Unauthorized", "message": "token expired"}, CredentialsError),
        ({"code": 500, "reason": "InternalError", "message": "etcd"}, ServerError),
        ({"code": "410"}, ServerError),
        ({}, ServerError),
        (None, ServerError),
        ("text", ServerError),
    ],
)
def test_an_error_event_becomes_its_error(status: Any, kind: type[ApiError]) -> None:
    error = error_in({"type": "ERROR", "object": status})
    assert type(error) is kind
    message = status.get("message") if isinstance(status, dict) else None
    assert str(error) == (message or "the server gives no reason")
