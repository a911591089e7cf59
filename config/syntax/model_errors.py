"""Checks parsed YAML against a model and turns every complaint into a :class:`Problem` with a position.

Keys that differ from the schema's only in upper and lower case are accepted with a warning, since upstream's decoder
ignores case. Unknown keys are errors that name the closest known key. Values are never quoted.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from config.problems import Problem, Reason, Severity

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
    """Leave out that a list is too short when entries of it are refused: pydantic reports both."""
    places = [detail["loc"] for detail in details]
    for detail in details:
        loc = detail["loc"]
        inside = any(len(place) > len(loc) and place[: len(loc)] == loc for place in places)
        if not (inside and detail["type"] == "too_short"):
            yield detail


def known_keys(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the keys a model accepts, as users write them."""
    return tuple(info.alias or name for name, info in model.model_fields.items())


def suggestion(key: str, known: tuple[str, ...]) -> str:
    """Return a hint at the known key that was probably meant, or what keys there are."""
    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(key.lower(), folded, n=1, cutoff=_SIMILARITY)
    return f"did you mean {folded[close[0]]!r}?" if close else f"known keys: {', '.join(sorted(known))}"


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
        annotation = next(
            (info.annotation for name, info in current.model_fields.items() if step == (info.alias or name)), None
        )
        current = next(_models_in(annotation), None)
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
        twin = case_match(str(loc[-1]), known)
        message = f"also given as {twin!r}" if twin else f"unknown key; {suggestion(str(loc[-1]), known)}"
    else:
        message = message_of(detail, document.plain_text(full))
    origin = document.key_origin(full) if unknown else document.origin(full)
    return Problem(message=message, origin=origin, field=format_path(full), reason=reason)


def message_of(detail: ErrorDetails, written: str | None = None) -> str:
    """Return what is wrong in plain words; ``written`` is the unquoted YAML text, which is never quoted."""
    context: Mapping[str, Any] = detail.get("ctx", {})
    kind = detail["type"]
    plain = {
        "missing": "required, but missing",
        "int_type": "must be a whole number" + _number_hint(written),
        "string_type": "must be a string" + ("; put it in quotes" if written else ""),
        "model_type": "must be a mapping (key: value)",
        "model_attributes_type": "must be a mapping (key: value)",
        "dict_type": "must be a mapping (key: value)",
        "tuple_type": "must be a list",
        "literal_error": f"must be {context.get('expected')}",
        "string_pattern_mismatch": "has characters that are not allowed here",
        "greater_than_equal": f"must be at least {context.get('ge')}",
        "less_than_equal": f"must be at most {context.get('le')}",
        "string_too_short": "must not be empty",
        "string_too_long": f"must have at most {context.get('max_length')} characters",
        "too_short": f"needs at least {context.get('min_length')} entry",
        "too_long": f"must have at most {context.get('max_length')} entries",
    }
    return plain.get(kind) or detail["msg"].removeprefix("Value error, ")


def _number_hint(written: str | None) -> str:
    if written is None:
        return ""
    looks_numeric = written[:1].isdigit() or written[:1] in "+-"
    return "; write it in plain decimal, without leading zeros, signs, underscores or colons" if looks_numeric else ""
