"""Conditions, as every object of the API carries them in its status (the shape is metav1.Condition's).

Automation waits for these words: a user writes ``kubectl wait --for=condition=Ready``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from config.models.base import Model
from config.models.rules import OneEach

ConditionStatus = Literal["True", "False", "Unknown"]

READY: Final = "Ready"
DEGRADED: Final = "Degraded"
#: Another node has the same addresses; it is written once that was so.
DUPLICATE_INDEX: Final = "DuplicateIndex"
#: Its reason while there is no such node.
UNIQUE_INDEX: Final = "UniqueIndex"
#: Reasons, upstream's (reference 12).
SUCCESSFUL: Final = "ConfigurationSuccessful"
FAILED: Final = "ConfigurationFailed"
UNDERLAY_FAILED: Final = "UnderlayFailed"
#: Our reason for neither ready nor degraded; upstream is ready in that moment.
PENDING: Final = "ConfigurationPending"
#: The patterns and lengths are metav1.Condition's.
MAX_MESSAGE: Final = 32768
_MAX_REASON: Final = 1024
_REASON_PATTERN: Final = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
_TYPE_PATTERN: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
#: Control characters, and halves of surrogate pairs, which are no text in JSON.
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
_ELLIPSIS: Final = "…"


class Condition(Model):
    """A condition of the object, as Kubernetes defines conditions."""

    type: str = Field(max_length=316, pattern=_TYPE_PATTERN, description="Type of the condition.")
    status: ConditionStatus = Field(description="Status of the condition.")
    observed_generation: int | None = Field(
        default=None,
        strict=True,
        ge=0,
        description="metadata.generation of the object when the condition was set.",
    )
    last_transition_time: str = Field(
        json_schema_extra={"format": "date-time"}, description="When the status last changed."
    )
    reason: str = Field(
        min_length=1, max_length=_MAX_REASON, pattern=_REASON_PATTERN, description="Machine-readable reason."
    )
    message: str = Field(max_length=MAX_MESSAGE, description="Human-readable message.")


#: All conditions of an object, each type once.
Conditions = Annotated[tuple[Condition, ...], OneEach("type")]


class ResourceStatus(Model):
    """The result on all nodes that the object selects, combined."""

    conditions: Conditions = Field(default=(), description="The conditions Ready and Degraded.")


def legal_text(text: str, limit: int, fallback: str) -> str:
    """Return ``text`` on one line with at most ``limit`` characters; ``fallback`` when nothing is left of it.

    The API server counts characters, not bytes, as Python does.
    """
    line = " ".join(_UNPRINTABLE.sub(" ", text).split())
    return (line if len(line) <= limit else line[: limit - 1].rstrip() + _ELLIPSIS) or fallback


def legal_reason(text: str) -> str:
    """Return ``text`` as a condition's reason."""
    word = re.sub(r"[^A-Za-z0-9_,:]", "", text)[:_MAX_REASON].lstrip("0123456789_,:").rstrip(",:")
    return word or "Unknown"


def condition(
    type_: str,
    status: bool | None,
    reason: str,
    message: str,
    *,
    now: float,
    generation: int | None = None,
    previous: Iterable[Condition] = (),
) -> Condition:
    """Return a legal condition; ``status`` None is Unknown, ``now`` Unix seconds.

    Its transition time is that of the ``previous`` condition of the same type while the status has not changed.
    """
    word: ConditionStatus = "Unknown" if status is None else "True" if status else "False"
    since = timestamp(now)
    for old in previous:
        if old.type == type_ and old.status == word:
            since = old.last_transition_time
    return Condition.model_validate(
        {
            "type": type_,
            "status": word,
            "observedGeneration": generation,
            "lastTransitionTime": since,
            "reason": legal_reason(reason),
            "message": legal_text(message, MAX_MESSAGE, ""),
        }
    )


def read_conditions(conditions: Iterable[Any]) -> Iterator[Condition]:
    """Yield the conditions in an object's JSON data, without those of another shape."""
    for data in conditions:
        try:
            yield Condition.model_validate(data)
        except ValidationError:
            continue


def timestamp(now: float) -> str:
    """Return Unix seconds as metav1.Time writes them: UTC, whole seconds."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
