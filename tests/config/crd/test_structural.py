"""Models become schemas that an API server takes: nothing is lost, and what cannot be said is an error."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, field_validator, model_validator

from config.crd.structural import structural
from config.models.base import Model
from config.models.rules import Cel, Default, OneEach, Text, cel


class Inner(Model):
    """The inside,
    with ``code`` in two lines."""

    number: int = Field(default=7, ge=1, le=9)


class Sample(Model):
    """Everything that a model may have."""

    word: Literal["a", "b"]
    single: Literal["only"] = "only"
    text: Annotated[str, Text(pattern="^x$", max_length=3), Cel("self != 'y'", "not y")] | None = None
    inner: Annotated[Inner, Cel("self == oldSelf", "stays")] = Field(description="Outside.")
    always: Annotated[Inner, Default({})] = Field(default_factory=Inner)
    many: tuple[Inner, ...] = Field(default=(), min_length=1, max_length=4)
    keyed: Annotated[tuple[Inner, ...], OneEach("number")] = ()
    labels: dict[str, str] = Field(default_factory=dict)

    @field_validator("many")
    @classmethod
    @cel("self.size() != 2", "not two", field="many")
    def _not_two(cls, value: Any) -> Any:
        return value

    @model_validator(mode="after")
    @cel("has(self.text)", "first")
    @cel("!has(self.text)", "second")
    def _contradiction(self) -> Sample:
        return self


def at(*path: str) -> Any:
    found: Any = structural(Sample)
    for step in path:
        found = found[step]
    return found


def test_scalars_keep_their_bounds_and_defaults() -> None:
    assert at("properties", "word") == {"type": "string", "enum": ["a", "b"]}
    assert at("properties", "single") == {"type": "string", "enum": ["only"], "default": "only"}
    assert at("properties", "text") == {
        "type": "string",
        "pattern": "^x$",
        "maxLength": 3,
        "x-kubernetes-validations": [{"rule": "self != 'y'", "message": "not y"}],
    }


def test_references_are_put_in_place_with_what_is_said_beside_them() -> None:
    number = {"type": "integer", "minimum": 1, "maximum": 9, "default": 7}
    assert at("properties", "inner") == {
        "type": "object",
        "description": "Outside.",
        "properties": {"number": number},
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "stays"}],
    }
    assert at("properties", "always", "default") == {}
    assert at("properties", "many", "items", "description") == "The inside, with `code` in two lines."


def test_lists_say_how_they_are_merged() -> None:
    assert at("properties", "many", "x-kubernetes-list-type") == "atomic"
    assert at("properties", "keyed", "x-kubernetes-list-type") == "map"
    assert at("properties", "keyed", "x-kubernetes-list-map-keys") == ["number"]
    assert "default" not in at("properties", "many")
    assert (at("properties", "many", "minItems"), at("properties", "many", "maxItems")) == (1, 4)


def test_mappings_say_what_their_values_are() -> None:
    assert at("properties", "labels") == {"type": "object", "additionalProperties": {"type": "string"}}


def test_validators_rules_stand_where_they_belong_in_the_order_of_writing() -> None:
    assert at("properties", "many", "x-kubernetes-validations") == [{"rule": "self.size() != 2", "message": "not two"}]
    assert [rule["message"] for rule in at("x-kubernetes-validations")] == ["first", "second"]
    assert at("required") == ["word", "inner"]


def test_nothing_of_pydantic_s_own_is_left() -> None:
    text = str(structural(Sample))
    for word in ("$ref", "$defs", "anyOf", "title", "null", "const", "'additionalProperties': False"):
        assert word not in text


def test_what_a_structural_schema_cannot_say_is_an_error() -> None:
    class Strange(Model):
        half: float = Field(multiple_of=0.5)

    with pytest.raises(ValueError, match="multipleOf"):
        structural(Strange)


def test_a_choice_of_types_is_an_error() -> None:
    class Choice(Model):
        either: int | str

    with pytest.raises(ValueError):
        structural(Choice)
