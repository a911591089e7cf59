"""What all models share: immutability, camelCase keys, refusal of unknown keys, and null meaning "not given".

The models describe the API's ``spec`` objects. They know nothing of files, so that the same rules serve the custom
resources.
"""

from __future__ import annotations

import threading
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from .rules import marked

#: Held while validators are made: of the threads that want the first one, each would make them.
_MAKING: Final = threading.RLock()
#: Deepest accepted nesting of an object's spec. The schemas need less than ten levels, CNI configurations a few more;
#: hundreds would exhaust the stack of whatever walks through them.
MAX_DEPTH: Final = 32
_TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"


def camel(name: str) -> str:
    """Return a field's key as users write it: ``node_index`` is ``nodeIndex``; digits do not begin a new word."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def fields_by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return a model's fields by the keys that users write. A field has its alias only once the validator is made."""
    return {info.alias or camel(name): info for name, info in model.model_fields.items()}


def without_nulls(data: Any) -> Any:
    """Drop keys without a value, as the API server prunes nulls in every mapping: ``hostSession:`` is not a session."""
    return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


class Model(BaseModel):
    """Base of everything that users write. Construct it with ``model_validate`` from camelCase keys.

    Input values never show up in error messages, since one of them may be a password. A model's validator is made when
    it is first used: most are only parts of others, whose validators contain them, and many are for a cluster.
    """

    model_config = ConfigDict(
        defer_build=True,
        frozen=True,
        extra="forbid",
        alias_generator=camel,
        populate_by_name=False,
        coerce_numbers_to_str=True,
        hide_input_in_errors=True,
        validate_default=False,
        arbitrary_types_allowed=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        return without_nulls(data)

    @classmethod
    def from_api(cls, data: Any) -> Self:
        """Validate JSON data as the API server does: a number is no text there, though it may be one in YAML.

        Raises pydantic's ValidationError.
        """
        try:
            tuples = _with_tuples(data)
        except _TooDeepError:
            fields = data.items() if isinstance(data, dict) else ()
            place = tuple(key for key, value in fields if cut(value, MAX_DEPTH - 1) != value)[:1]
            refusal = InitErrorDetails(type=PydanticCustomError("too_deep", _TOO_DEEP), loc=place, input=None)
            raise ValidationError.from_exception_data(cls.__name__, [refusal], hide_input=True) from None
        return cls.model_validate(tuples, strict=True)

    @classmethod
    def model_rebuild(cls, **options: Any) -> bool | None:
        """Make the validator, in one thread; pydantic does so when it is first used.

        Annotations mean what they do in their module, whatever the names of the caller's variables are.
        """
        with _MAKING:
            return super().model_rebuild(**options | {"_types_namespace": {}})

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema with the validators' rules in it (:mod:`.rules`)."""
        schema = handler(core_schema)
        described = handler.resolve_ref_schema(schema)
        for field, rule in marked(cls):
            rule.add_to(described if field is None else described["properties"][field])
        return schema


def cut(data: Any, levels: int = MAX_DEPTH + 1) -> Any:
    """Return JSON data with null for what is nested deeper. By default enough is left for it to be refused."""
    if not levels:
        return None if isinstance(data, dict | list) else data
    if isinstance(data, dict):
        return {key: cut(value, levels - 1) for key, value in data.items()}
    return [cut(value, levels - 1) for value in data] if isinstance(data, list) else data


def _with_tuples(data: Any, levels: int = MAX_DEPTH) -> Any:
    """Return JSON data with tuples for lists, as strict validation wants them."""
    if not isinstance(data, dict | list):
        return data
    if not levels:
        raise _TooDeepError
    if isinstance(data, dict):
        return {key: _with_tuples(value, levels - 1) for key, value in data.items()}
    return tuple([_with_tuples(value, levels - 1) for value in data])


class _TooDeepError(Exception):
    """JSON data is nested deeper than any spec."""
