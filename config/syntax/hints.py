"""Says in plain words what is wrong with one value, and what to write instead.

``Written`` is how a value stands in a YAML file. A value may be a password, so it is never quoted; what is derived from
it for a number's field (an AS number in another notation) is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from config.models.base import fields_by_key

_QUOTED_NUMBER: Final = re.compile(r"[0-9]+")
_AS_NUMBER: Final = re.compile(r"(?i:as)[0-9.]+")
_ASDOT: Final = re.compile(r"([0-9]{1,5})\.([0-9]{1,5})")
_UNIT: Final = re.compile(r"([0-9]{1,9}) ?([a-z]{1,3})")
#: Seconds in a unit of time.
_UNITS: Final = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
_TYPOGRAPHIC: Final = re.compile("[\u2018\u2019\u201c\u201d\u00ab\u00bb]")
_PLAIN_DECIMAL: Final = "write it in plain decimal, without leading zeros, signs, underscores or colons"

#: Keys of OpenPERouter up to 0.2 and what takes their place (reference 2).
_RENAMED: Final = {
    "nics": "interfaces: [{type: NetworkDevice, networkDevice: {interfaceName: NAME}}]",
    "evpn": "tunnelEndpoint: {cidrs: [CIDR]}",
    "vtepCIDR": "tunnelEndpoint: {cidrs: [CIDR]}",
    "vrf": "routingDomain: {type: L3VNI, l3vni: {name: NAME}}",
    "autoCreate": "lifecycle: Managed for true, lifecycle: External for false",
    "ebgpMultiHop": "properties: [{type: ebgpMultiHop}]",
    "l2gatewayips": "gatewayIPs",
    "l2GatewayIPs": "gatewayIPs",
}
_RENAMED_FOLDED: Final = {name.lower(): written for name, written in _RENAMED.items()}


@dataclass(frozen=True, slots=True)
class Written:
    """A scalar as written: its text without quotes, and whether it was written without them."""

    text: str
    plain: bool


def message_of(detail: ErrorDetails, written: Written | None = None, model: type[BaseModel] | None = None) -> str:
    """Return what is wrong. ``model`` is the one that the value should have been an object of, if any."""
    context: Mapping[str, Any] = detail.get("ctx", {})
    kind = detail["type"]
    key = str(detail["loc"][-1]) if detail["loc"] else ""
    typographic = _TYPOGRAPHIC.search(written.text) if written and written.plain else None
    if typographic:
        return f"contains U+{ord(typographic.group()):04X} (typographic quote): use plain quotes"
    mapping = f"must be a mapping{_mapping_hint(detail, written, model)}"
    plain = {
        "missing": "required, but missing",
        "int_type": _not_a_number(written, key),
        "string_type": "must be a string" + ("; put it in quotes" if written else ""),
        "model_type": mapping,
        "model_attributes_type": mapping,
        "dict_type": mapping,
        "tuple_type": 'must be a list: each entry begins with "- "',
        "float_type": "must be a number",
        "float_parsing": (
            _in_seconds(written.text if written else "", "a number")
            if key.endswith("Seconds")
            else "must be a number, without a unit"
        ),
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


def renamed_key(key: str, known: tuple[str, ...]) -> str | None:
    """Return how to write a key of earlier versions where it is not known, or None."""
    wanted = _RENAMED_FOLDED.get(key.lower())
    first = wanted.split(":")[0] if wanted else None
    return f"not a key any more: write {wanted}" if first in (*known, "properties") else None


def _not_a_number(written: Written | None, key: str) -> str:
    text = written.text if written else ""
    is_asn = key.lower().endswith("asn")
    if key.endswith("Seconds") and _UNIT.fullmatch(text):
        return _in_seconds(text, "a whole number")
    if written is not None and not written.plain:
        return "must be a number: remove the quotes" if _QUOTED_NUMBER.fullmatch(text) else "must be a whole number"
    asdot = _ASDOT.fullmatch(text)
    if is_asn and _AS_NUMBER.fullmatch(text):
        return 'must be a number: write it without "AS"'
    if is_asn and asdot:
        return f"dotted AS numbers are not supported: write {(int(asdot[1]) << 16) + int(asdot[2])}"
    if _UNIT.fullmatch(text):
        return "must be a whole number, without a unit"
    looks_numeric = text[:1].isdigit() or text[:1] in ("+", "-")
    return f"must be a whole number; {_PLAIN_DECIMAL}" if looks_numeric else "must be a whole number"


def _in_seconds(text: str, number: str) -> str:
    """Return what to write instead of a duration with a unit, if it is one."""
    unit = _UNIT.fullmatch(text)
    seconds = int(unit[1]) * _UNITS.get(unit[2], 0) if unit else 0
    if seconds and (seconds == int(seconds) or number == "a number"):
        return f"must be {number} of seconds: write {int(seconds) if seconds == int(seconds) else round(seconds, 3)}"
    return f"must be {number} of seconds" + (", without a unit" if unit else "")


def _mapping_hint(detail: ErrorDetails, written: Written | None, model: type[BaseModel] | None) -> str:
    """Return the shortest legal object, where there is one: empty, or with the only required key and a word for it.

    The word is the one that begins as the value does, else the first.
    """
    if model is None:
        return " (key: value)"
    required = {key: info for key, info in fields_by_key(model).items() if info.is_required()}
    if not required and detail["loc"] and isinstance(detail["loc"][-1], str):
        return f": write `{detail['loc'][-1]}: {{}}` for the defaults"
    if len(required) == 1:
        ((key, info),) = required.items()
        if get_origin(info.annotation) is Literal:
            words, text = get_args(info.annotation), written.text if written else ""
            meant = next((word for word in words if text and word.startswith(text.lower())), words[0])
            is_entry = isinstance(detail["loc"][-1], int) if detail["loc"] else False
            return f": write `- {key}: {meant}`" if is_entry else f", such as `{key}: {meant}`"
    return " (key: value)"
