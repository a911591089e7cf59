"""Checks parsed YAML against a model and turns every complaint into a :class:`Problem` with a position.

Keys that differ from the schema's only in upper and lower case are accepted with a warning, since upstream's decoder
ignores case. Unknown keys are errors that name the closest known key. Values are never quoted.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from config.models.base import fields_by_key
from config.problems import Problem, Reason, Severity

from .hints import message_of, renamed_key
from .yaml_reader import Document, FieldPath, format_path

M = TypeVar("M", bound=BaseModel)

#: Each round of key corrections uncovers at most one more level of nesting; no schema is deeper.
_MAX_ROUNDS = 16
#: difflib's own default is 0.6, which suggests far-fetched names for short keys.
_SIMILARITY = 0.7


def validate(
    model: type[M], data: Any, document: Document, path: FieldPath = (), *, reason: Reason = Reason.VALIDATION_FAILED
) -> tuple[M | None, tuple[Problem, ...]]:
    """Return the validated object, or None with at least one error, and all problems found.

    ``path`` is where ``data`` stands in the document. ``data`` is changed in place where the case of keys is corrected.
    """
    warnings: list[Problem] = []
    for _ in range(_MAX_ROUNDS):
        try:
            return model.model_validate(data), tuple(warnings)
        except ValidationError as error:
            details = error.errors(include_url=False, include_input=False, include_context=True)
        corrections = list(_correct_case(model, data, details, document, path))
        warnings += corrections
        if not corrections:
            found = (_problem(model, detail, document, path, reason) for detail in meant(details))
            return None, (*warnings, *found)
    raise AssertionError("keys cannot nest deeper than the schema")


def meant(details: list[ErrorDetails]) -> Iterator[ErrorDetails]:
    """Leave out what follows from another complaint.

    A list is too short only because entries of it are refused; a key is missing only because it is misspelt.
    """
    places = [detail["loc"] for detail in details]
    unknown = [detail["loc"] for detail in details if detail["type"] == "extra_forbidden"]
    for detail in details:
        loc = detail["loc"]
        inside = any(len(place) > len(loc) and place[: len(loc)] == loc for place in places)
        misspelt = detail["type"] == "missing" and any(
            place[:-1] == loc[:-1] and _stands_for(str(place[-1]), str(loc[-1])) for place in unknown
        )
        if not misspelt and not (inside and detail["type"] == "too_short"):
            yield detail


def _stands_for(key: str, wanted: str) -> bool:
    """Whether an unknown key is ``wanted``, misspelt or by its former name."""
    renamed = renamed_key(key, (wanted,))
    return _closest(key, (wanted,)) is not None or (renamed is not None and f" {wanted}:" in renamed)


def known_keys(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the keys a model accepts, as users write them."""
    return tuple(fields_by_key(model))


def suggestion(key: str, known: tuple[str, ...], useless: tuple[str, ...] = ()) -> str:
    """Return a hint at the known key that was probably meant, or what keys there are but for those of no use."""
    close = _closest(key, known)
    return f"did you mean {close!r}?" if close else f"known keys: {', '.join(sorted({*known}.difference(useless)))}"


def _closest(key: str, known: tuple[str, ...]) -> str | None:
    folded = {name.lower(): name for name in known}
    return next((folded[one] for one in difflib.get_close_matches(key.lower(), folded, 1, _SIMILARITY)), None)


def case_match(key: str, known: tuple[str, ...]) -> str | None:
    """Return the known key that equals ``key`` but for upper and lower case, or None."""
    return next((name for name in known if name.lower() == key.lower()), None)


def case_warning(document: Document, path: FieldPath, name: str) -> Problem:
    """Return the warning about a key at ``path`` that was accepted as ``name``."""
    return Problem(
        message=f"accepted as {name!r}; use this spelling",
        origin=document.key_origin(path),
        field=format_path(path),
        severity=Severity.WARNING,
    )


def _correct_case(
    model: type[BaseModel], data: Any, details: list[ErrorDetails], document: Document, path: FieldPath
) -> Iterator[Problem]:
    """Rename keys that match but for their case, and yield a warning for each."""
    for detail in details:
        if detail["type"] != "extra_forbidden":
            continue
        *parents, key = detail["loc"]
        holder = data
        for step in parents:
            holder = holder[step]
        owner = _model_at(model, tuple(parents))
        name = case_match(str(key), known_keys(owner)) if owner else None
        if name is not None and name not in holder:
            yield case_warning(document, (*path, *detail["loc"]), name)
            holder[name] = holder.pop(key)


def _model_at(model: type[BaseModel], loc: tuple[str | int, ...]) -> type[BaseModel] | None:
    """Return the model that describes the value at ``loc`` inside ``model``."""
    current: type[BaseModel] | None = model
    for step in loc:
        if isinstance(step, int) or current is None:
            continue
        field = fields_by_key(current).get(step)
        current = next(_models_in(field.annotation), None) if field else None
    return current


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _problem(
    model: type[BaseModel], detail: ErrorDetails, document: Document, path: FieldPath, reason: Reason
) -> Problem:
    loc = detail["loc"]
    full = (*path, *loc)
    unknown = detail["type"] == "extra_forbidden"
    if unknown:
        owner = _model_at(model, loc[:-1])
        known = known_keys(owner) if owner else ()
        key = str(loc[-1])
        twin = case_match(key, known)
        message = (
            f"also given as {twin!r}" if twin else renamed_key(key, known) or f"unknown key; {suggestion(key, known)}"
        )
    else:
        message = message_of(detail, document.written(full), _model_at(model, loc) if loc else model)
    origin = document.key_origin(full) if unknown else document.origin(full)
    return Problem(message=message, origin=origin, field=format_path(full), reason=reason)
