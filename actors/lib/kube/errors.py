"""What can go wrong with a request to the API server, by what the caller can do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from config.syntax.printable import one_line
from supervisor.runtime.faults import DependencyFault


class ApiError(DependencyFault):
    """The server answered with an error: ``code`` is HTTP's, ``reason`` Kubernetes', ``retry_after`` in seconds.

    ``retry`` says whether the same request may succeed later.
    """

    retry: ClassVar[bool] = True

    @property
    def category(self) -> str:
        """Return the kind of error in a word, for metrics: ``conflict``."""
        return type(self).__name__.removesuffix("Error").lower()

    def __init__(self, message: str, *, code: int = 0, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.retry_after = retry_after


class UnreachableError(ApiError):
    """No whole answer came: no connection, a broken one, silence, or something that is not an API server."""


class TooLargeError(UnreachableError):
    """The answer is larger than any that is expected; of a list a smaller page may not be."""


class CredentialsError(ApiError):
    """401: the server does not (or no longer) accept the credentials. Others are needed."""


class ForbiddenError(ApiError):
    """403: RBAC does not allow it. Trying again later may help, since an administrator can fix it."""


class NotFoundError(ApiError):
    """404: the object is not there, or its whole kind (its CRD is not installed)."""


class ConflictError(ApiError):
    """409: the object changed meanwhile, exists already, or another field manager owns the field."""


class GoneError(ApiError):
    """410: the resource version is too old (as an answer or as an ERROR event); list again."""


class InvalidError(ApiError):
    """400 or 422: the server refuses the request; sending it again does not help."""

    retry = False


class ThrottledError(ApiError):
    """429, or 503 with Retry-After: wait ``retry_after`` seconds."""


class ServerError(ApiError):
    """Any other 5xx."""


#: Errors that concern every request alike. An internal error is none: it may concern one object, whose webhook fails.
SERVER_ERRORS: Final = (UnreachableError, CredentialsError, ThrottledError)


def error_for(code: int, reason: str, message: str, retry_after: float | None = None) -> ApiError:
    """Return the error for a status code."""
    kinds: dict[int, type[ApiError]] = {
        400: InvalidError,
        401: CredentialsError,
        403: ForbiddenError,
        404: NotFoundError,
        409: ConflictError,
        410: GoneError,
        422: InvalidError,
        429: ThrottledError,
    }
    kind = kinds.get(code, ServerError if code >= 500 else ApiError)
    if code == 503 and retry_after is not None:
        kind = ThrottledError
    return kind(message, code=code, reason=reason, retry_after=retry_after)


def error_in(event: Mapping[str, Any]) -> ApiError | None:
    """Return the error in a watch's ERROR event, None for any other event.

    A watch begins with HTTP 200, so a later error comes as a Status object: 410 when history was compacted.
    """
    if event.get("type") != "ERROR":
        return None
    status = event.get("object")
    status = status if isinstance(status, dict) else {}
    code = status.get("code")
    message = str(status.get("message") or "the server gives no reason")
    return error_for(code if isinstance(code, int) else 500, str(status.get("reason") or ""), one_line(message))
