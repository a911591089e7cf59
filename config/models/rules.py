"""Rules for the API server: the CEL form of what validators check in Python.

A range or a length that pydantic knows reaches the custom resource definitions by itself. A validator does not: it is
marked here, where it stands, with its other form in CEL (Kubernetes' expression language), so that both are written,
read and changed together. That they agree is tested against a real API server (``tests/cluster/test_crds_agree.py``).

Marks are :class:`Cel` and :class:`Text` in ``Annotated``, and :func:`cel` on a validator. They change no validation,
only the JSON schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

#: Kubernetes' extensions of JSON schema.
VALIDATIONS: Final = "x-kubernetes-validations"
LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_KEYS: Final = "x-kubernetes-list-map-keys"
MAP_TYPE: Final = "x-kubernetes-map-type"
_MARK: Final = "_openperouter_cel"

#: Said of parts of upstream's schema.
NOT_YET: Final = "not supported yet in this version"

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Cel:
    """A rule that is true of a legal value, which it calls ``self`` (and ``oldSelf`` before a change)."""

    rule: str
    message: str

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        self.add_to(schema)
        return schema

    def add_to(self, schema: JsonSchemaValue) -> None:
        """Add the rule to a schema."""
        schema.setdefault(VALIDATIONS, []).append({"message": self.message, "rule": self.rule})


@dataclass(frozen=True, slots=True)
class Text:
    """Lengths in characters and a pattern of a string that a validator checks by itself."""

    pattern: str | None = None
    min_length: int | None = None
    max_length: int | None = None

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        keys = {"pattern": self.pattern, "minLength": self.min_length, "maxLength": self.max_length}
        return schema | {key: value for key, value in keys.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Default:
    """The value of an absent object; what is inside it has defaults of its own."""

    value: Any

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(core_schema) | {"default": self.value}


@dataclass(frozen=True, slots=True)
class OneEach:
    """A list in which no two objects have the same value of ``key``."""

    key: str

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(core_schema) | {LIST_TYPE: "map", LIST_KEYS: [self.key]}


def cel(rule: str, message: str, *, field: str | None = None) -> Callable[[F], F]:
    """Mark a validator, below pydantic's own decorator, with what it checks.

    ``self`` is the model's object, or the value of ``field`` (its key as users write it).
    """

    def mark(function: F) -> F:
        setattr(function, _MARK, ((field, Cel(rule, message)), *getattr(function, _MARK, ())))
        return function

    return mark


def check(rule: str, message: str) -> Callable[[Callable[[Any], bool]], Any]:
    """Make a validator of a model from a method that says whether the object is legal, with its form in CEL."""

    def validator(holds: Callable[[Any], bool]) -> Any:
        def validate(self: M) -> M:
            if not holds(self):
                raise ValueError(message)
            return self

        return model_validator(mode="after")(cel(rule, message)(validate))

    return validator


def unsupported(type_: str, key: str, what: str) -> Any:
    """Make a validator that refuses a ``type``, and its ``key``, of which a later version will know more."""

    def validate(cls: type, data: Any) -> Any:
        if isinstance(data, dict) and (data.get("type") == type_ or data.get(key) is not None):
            raise ValueError(f"{what} are {NOT_YET}")
        return data

    return model_validator(mode="before")(validate)


def marked(model: type) -> Iterator[tuple[str | None, Cel]]:
    """Yield the rules of a model's validators with their fields, in the order in which they are written."""
    for owner in reversed(model.__mro__):
        # What pydantic adds to a class is no rule, and may be made only when it is looked at.
        members = [member for name, member in vars(owner).items() if not name.startswith("__pydantic_")]
        for member in members:
            yield from getattr(getattr(member, "__func__", member), _MARK, ())
