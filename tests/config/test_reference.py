"""Examples of values are valid where they are shown, and each key has one; the schema for editors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from config.node import NodeConfig
from config.reference import (
    EXAMPLES,
    FIRST_VERSION,
    SINCE,
    ReferenceEntry,
    editor_schema,
    entries,
    example_of,
    nested,
    since,
)
from config.settings import Settings
from config.sources.naming import RouterFile

MODELS: tuple[type[BaseModel], ...] = (RouterFile, NodeConfig, Settings)
LEAVES = [(model, entry) for model in MODELS for entry in entries(model) if "properties" not in entry.schema]


@pytest.mark.parametrize(("model", "entry"), LEAVES, ids=[entry.path for _, entry in LEAVES])
def test_each_key_has_an_example_that_is_accepted_there(model: type[BaseModel], entry: ReferenceEntry) -> None:
    value = example_of(entry.path, entry.schema)
    assert value is not None
    try:
        model.model_validate(nested(entry.path, value))
    except ValidationError as error:
        place = tuple(part.removesuffix("[]") for part in entry.path.split("."))
        for found in error.errors():
            keys = tuple(part for part in found["loc"] if isinstance(part, str))
            # What is missing beside it, or says more about several keys, is not this value's fault.
            assert keys != place, found


def test_each_example_belongs_to_a_key() -> None:
    paths = [entry.path for model in MODELS for entry in entries(model)]
    assert [end for end in EXAMPLES if not any(f".{path}".endswith(f".{end}") for path in paths)] == []


#: The keys of the first version that are still there, from its own models.
KEYS_OF_THE_FIRST = (Path(__file__).parent / "golden" / f"keys-{FIRST_VERSION}.txt").read_text().split()


def test_each_key_that_the_first_version_did_not_have_has_its_version() -> None:
    """For a new key: add it to ``SINCE``."""
    paths = {entry.path: since(entry.path) for model in MODELS for entry in entries(model)}
    assert sorted(path for path, version in paths.items() if version == FIRST_VERSION) == sorted(KEYS_OF_THE_FIRST)
    ends = [end for ends in SINCE.values() for end in ends]
    assert [end for end in ends if not any(f".{path}".endswith(f".{end}") for path in paths)] == []
    assert paths["l3vnis[].hostSession.probe.count"] == "0.2.0"


@pytest.mark.parametrize("model", MODELS)
def test_the_schema_has_each_key_and_nothing_that_an_editor_does_not_know(model: type[BaseModel]) -> None:
    schema = editor_schema(model)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(schema["properties"]) == {
        entry.path.removesuffix("[]") for entry in entries(model) if "." not in entry.path
    }
    assert schema["additionalProperties"] is False
    assert "x-kubernetes-validations" not in str(schema)
    for name in references(schema):
        assert name in schema["$defs"]


def references(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        own = [schema["$ref"].removeprefix("#/$defs/")] if isinstance(schema.get("$ref"), str) else []
        return own + [name for value in schema.values() for name in references(value)]
    return [name for value in schema for name in references(value)] if isinstance(schema, list) else []


def test_the_schema_says_what_is_required_and_where_the_limits_are() -> None:
    defined = editor_schema(RouterFile)["$defs"]
    assert defined["L3VniEntry"]["required"] == ["vni", "vrf"]
    assert defined["L3VniEntry"]["properties"]["vni"]["maximum"] == 16777215
    assert "index" in editor_schema(NodeConfig)["$defs"]["NodeIndex"]["properties"]
