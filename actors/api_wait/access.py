"""What to tell of the way to the API server, from what is known: pure.

Not knowing is not "none": credentials to which a server answered stay in force when their file disappears or becomes
unreadable, and a reader keeps them while the server is away or while newer ones do not work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from config.api import ApiAccess, ApiCredentials, ApiReach

from .probe import Answer

IN_FORCE = "what was read before stays in force"


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What there is to tell.

    ``candidate``: the credentials to use, None without any; ``proven``: the last to which a server answered;
    ``complaint``: why the file does not say what to use, ``missing`` whether that is because it is not there;
    ``answer``: what the server said to ``candidate``.
    """

    kubeconfig: str
    candidate: ApiCredentials | None = None
    proven: ApiCredentials | None = None
    complaint: str = ""
    missing: bool = False
    answer: Answer | None = None


def access_of(known: Knowledge, before: ApiAccess | None, now: float) -> ApiAccess:
    """Return what to publish; ``since`` is ``before``'s while the reach is the same."""
    reach, detail = _standing(known, now)
    since = before.since if before is not None and before.reach is reach else now
    return ApiAccess(reach, known.proven, detail, since)


def _standing(known: Knowledge, now: float) -> tuple[ApiReach, str]:
    if known.candidate is None or known.answer is None:
        # A file that is there and cannot be used is more than a file that may still come: somebody has to mend it.
        if known.missing:
            return ApiReach.UNCONFIGURED, f"waiting for {known.kubeconfig}"
        return ApiReach.UNREACHABLE, known.complaint
    trouble = _trouble(known.candidate, known.answer, now)
    kept = f"{known.complaint}; {IN_FORCE}" if known.complaint else ""
    return known.answer.reach, "; ".join(filter(None, (trouble, kept)))


def _trouble(credentials: ApiCredentials, answer: Answer, now: float) -> str:
    if answer.reach is ApiReach.REACHABLE:
        return ""
    ended = ""
    if credentials.expires_at is not None and credentials.expires_at <= now:
        ended = f", which ended {moment(credentials.expires_at)}"
    if answer.reach is ApiReach.REFUSED:
        return f"{credentials.server} refuses the credentials in {credentials.source}{ended}: {answer.reason}"
    return f"{credentials.server} (credentials in {credentials.source}{ended}): {answer.reason}"


def moment(seconds: float) -> str:
    """Return a moment for people (ISO 8601, UTC)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def same_credentials(one: ApiCredentials | None, other: ApiCredentials | None) -> bool:
    """Whether both do the same: when they end does not matter to who uses them now."""
    if one is None or other is None:
        return one is other
    return replace(one, expires_at=None) == replace(other, expires_at=None)


def same_access(one: ApiAccess | None, other: ApiAccess) -> bool:
    """Whether a reader of both would learn nothing from the second."""
    return (
        one is not None
        and (one.reach, one.detail, one.since) == (other.reach, other.detail, other.since)
        and same_credentials(one.credentials, other.credentials)
    )
