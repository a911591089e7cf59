"""From a model to a structural schema, the form that the API server wants: no references, no null, explicit list types.

Pydantic's JSON schema is the source, with what the models' marks added to it (:mod:`config.models.rules`). A keyword
that is not known here is an error, so that no rule of a model can get lost on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel

from config.models.rules import LIST_KEYS, LIST_TYPE, MAP_TYPE, VALIDATIONS

Schema = dict[str, Any]
Definitions = Mapping[str, Schema]

_ANY_KEYS: Final = "x-kubernetes-preserve-unknown-fields"
_KEPT: Final = frozenset(
    {
        "enum",
        "format",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "pattern",
        "required",
        "type",
        LIST_KEYS,
        LIST_TYPE,
        MAP_TYPE,
        VALIDATIONS,
        _ANY_KEYS,
    }
)
_DROPPED: Final = frozenset({"title", "$defs"})
_NULL: Final = {"type": "null"}


def structural(model: type[BaseModel]) -> Schema:
    """Return a model's schema. Raises ValueError for what a structural schema cannot express."""
    schema = model.model_json_schema(by_alias=True)
    return _convert(schema, schema.get("$defs", {}))


def _convert(written: Schema, definitions: Definitions) -> Schema:
    result: Schema = {}
    for key, value in _resolved(written, definitions).items():
        result |= _keyword(key, value, definitions)
    if result.get("type") == "array":
        result.setdefault(LIST_TYPE, "atomic")
    return result


def _keyword(key: str, value: Any, definitions: Definitions) -> Schema:
    """Return what one keyword becomes."""
    if key in _TRANSLATED:
        return _TRANSLATED[key](value, definitions)
    if key in _KEPT or key in _DROPPED:
        return {key: value} if key in _KEPT else {}
    raise ValueError(f"a structural schema cannot express {key}")


def _properties(value: Schema, definitions: Definitions) -> Schema:
    return {"properties": {name: _convert(one, definitions) for name, one in value.items()}}


def _items(value: Schema, definitions: Definitions) -> Schema:
    return {"items": _convert(value, definitions)}


def _other_keys(value: Schema | bool, definitions: Definitions) -> Schema:
    """Keys that are not named are pruned, or refused for a strict client: a structural schema does not mention them."""
    return {} if isinstance(value, bool) else {"additionalProperties": _convert(value, definitions)}


def _default(value: Any, _definitions: Definitions) -> Schema:
    """An empty list is what an absent one means; objects stay as small as users write them, as upstream's do."""
    return {} if value is None or value == [] else {"default": value}


def _one_value(value: Any, _definitions: Definitions) -> Schema:
    return {"enum": [value]}


def _description(value: str, _definitions: Definitions) -> Schema:
    return {"description": " ".join(value.replace("``", "`").split())}


_TRANSLATED: Final[Mapping[str, Callable[[Any, Definitions], Schema]]] = MappingProxyType(
    {
        "additionalProperties": _other_keys,
        "const": _one_value,
        "default": _default,
        "description": _description,
        "items": _items,
        "properties": _properties,
    }
)


def _resolved(schema: Schema, definitions: Definitions) -> Schema:
    """Replace a reference or an optional value by its schema; keywords beside it are kept."""
    if "$ref" in schema:
        inner = definitions[schema["$ref"].rpartition("/")[2]]
        return _resolved(_merged(inner, schema, "$ref"), definitions)
    if "anyOf" in schema:
        [inner] = [one for one in schema["anyOf"] if one != _NULL]
        return _resolved(_merged(inner, schema, "anyOf"), definitions)
    return schema


def _merged(inner: Schema, outer: Schema, replaced: str) -> Schema:
    rules = [*inner.get(VALIDATIONS, ()), *outer.get(VALIDATIONS, ())]
    beside = {key: value for key, value in outer.items() if key != replaced}
    return {**inner, **beside, **({VALIDATIONS: rules} if rules else {})}
