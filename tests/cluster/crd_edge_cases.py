"""Strategies for specs that are right, or wrong by a hair, derived from good ones and from the schema.

A good spec gets parts of other good ones, then is damaged in up to three places: a key goes, becomes null, changes its
type, gets a value at the edge of what the schema allows, is repeated; a key is added that the schema knows, or not.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

Schema = dict[str, Any]

#: No number that is whole but written with a point: see the exceptions in test_crds_agree.
STRANGE: Final = st.sampled_from(
    [True, False, 0, 1, -1, 1.5, 2**31, 2**32, 2**63, 10**20, "", "1", "x", "true", [], {}, [None], [[]], {"a": "b"}]
).map(copy.deepcopy)
UNKNOWN: Final = st.sampled_from(["unknown", "Vni", "ASN", "", "spec", "name", "isis", "srv6", "vrf ", "ünïcode"])
_MANY: Final = 3


@dataclass(frozen=True, slots=True)
class Place:
    """A value inside a spec, and what the schema says of it; ``whole``: it is the spec itself."""

    holder: Any
    key: Any
    schema: Schema = field(repr=False)
    whole: bool = False

    @property
    def value(self) -> Any:
        """Return what is there."""
        return self.holder[self.key]

    def put(self, value: Any) -> None:
        """Put something else there."""
        self.holder[self.key] = value


def places(value: Any, schema: Schema) -> Iterator[Place]:
    """Yield every place inside a value that the schema knows."""
    inner: list[tuple[Any, Schema | None]] = []
    if isinstance(value, dict):
        inner = [(key, schema.get("properties", {}).get(key, schema.get("additionalProperties"))) for key in value]
    elif isinstance(value, list):
        inner = [(index, schema.get("items")) for index in range(len(value))]
    for key, described in inner:
        if described is not None:
            yield Place(value, key, described)
            yield from places(value[key], described)


@st.composite
def near_misses(draw: DrawFn, seeds: list[Any], schema: Schema) -> Any:
    """Draw one of the good specs, with parts of others in it and with up to three faults."""
    spec = copy.deepcopy(draw(st.sampled_from(seeds)))
    changes = _Changes(draw, _donations(seeds, schema))
    for _ in range(draw(st.integers(0, 4))):
        changes.repair(draw(st.sampled_from([Place([spec], 0, schema, whole=True), *places(spec, schema)])))
    for _ in range(draw(st.sampled_from([1, 0, 1, 2, 0, 3]))):
        changes.damage(draw(st.sampled_from([Place([spec], 0, schema, whole=True), *places(spec, schema)])))
    return spec


def _donations(seeds: list[Any], schema: Schema) -> dict[int, list[Any]]:
    """Return the values that good specs have, by (the identity of) what the schema says of their place."""
    found: dict[int, list[Any]] = {}
    for seed in seeds:
        for place in places(seed, schema):
            found.setdefault(id(place.schema), []).append(place.value)
    return found


@dataclass(frozen=True, slots=True)
class _Changes:
    """What can be done to a place."""

    draw: DrawFn
    donations: dict[int, list[Any]]

    def repair(self, place: Place) -> None:
        """Put something good there: as a rule the spec stays a good one."""
        if isinstance(place.value, dict) and place.schema.get("properties"):
            key = self.draw(st.sampled_from(sorted(place.schema["properties"])))
            place = Place(place.value, key, place.schema["properties"][key])
        if id(place.schema) in self.donations:
            place.put(copy.deepcopy(self.draw(st.sampled_from(self.donations[id(place.schema)]))))

    def damage(self, place: Place) -> None:
        """Do one of the things that tend to be wrong."""
        kinds = [self._take_away, self._set_null, self._set_strange, self._set_value]
        if place.whole:
            kinds = []
        if isinstance(place.value, dict):
            kinds = [self._add_known, self._add_known, self._add_unknown, *kinds]
        elif isinstance(place.value, list):
            kinds = [self._repeat, self._add_item, *kinds]
        else:
            kinds += [self._set_value, self._set_value]
        self.draw(st.sampled_from(kinds))(place)

    def _take_away(self, place: Place) -> None:
        del place.holder[place.key]

    def _set_null(self, place: Place) -> None:
        place.put(None)

    def _set_strange(self, place: Place) -> None:
        place.put(self.draw(STRANGE))

    def _set_value(self, place: Place) -> None:
        place.put(self.draw(values(place.schema)))

    def _add_known(self, place: Place) -> None:
        known = place.schema.get("properties", {})
        if known:
            key = self.draw(st.sampled_from(sorted(known)))
            place.value[key] = self.draw(values(known[key]))
        elif "additionalProperties" in place.schema:
            place.value[self.draw(st.text(max_size=4))] = self.draw(values(place.schema["additionalProperties"]))

    def _add_unknown(self, place: Place) -> None:
        if "additionalProperties" not in place.schema:
            place.value[self.draw(UNKNOWN)] = self.draw(STRANGE)

    def _repeat(self, place: Place) -> None:
        """Repeat an entry, once or up to the limit and one further."""
        if place.value:
            entry = self.draw(st.sampled_from(place.value))
            room = place.schema.get("maxItems", 1) - len(place.value)
            times = self.draw(st.sampled_from([1, max(0, room), max(1, room + 1)]))
            place.value.extend(copy.deepcopy(entry) for _ in range(times))

    def _add_item(self, place: Place) -> None:
        if "items" in place.schema:
            place.value.append(self.draw(values(place.schema["items"])))


def values(schema: Schema) -> SearchStrategy[Any]:
    """Return values of a schema's type, at its edges, inside and just outside."""
    return _choices(schema) if "enum" in schema else _BY_TYPE[schema["type"]](schema)


def _choices(schema: Schema) -> SearchStrategy[str]:
    choices = schema["enum"]
    return st.sampled_from([*choices, *(choice.swapcase() for choice in choices), choices[0] + " ", ""])


def _arrays(schema: Schema) -> SearchStrategy[list[Any]]:
    return st.lists(values(schema["items"]), max_size=_MANY)


def _integers(schema: Schema) -> SearchStrategy[int]:
    low, high = schema["minimum"], schema.get("maximum", 2**63 - 1)
    return st.one_of(
        st.sampled_from([low - 1, low, low + 1, high - 1, high, high + 1]), st.integers(low, high), st.integers()
    )


def _objects(schema: Schema) -> SearchStrategy[dict[str, Any]]:
    if "properties" not in schema:
        return st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)
    known = {key: values(inner) for key, inner in schema["properties"].items()}
    required = set(schema.get("required", ()))
    return st.fixed_dictionaries(
        {key: one for key, one in known.items() if key in required},
        optional={key: one for key, one in known.items() if key not in required},
    )


def texts(schema: Schema) -> SearchStrategy[str]:
    """Return texts of a schema's grammar, texts with one wrong character, texts of the longest length and longer."""
    rules = json.dumps(schema.get("x-kubernetes-validations", ()))
    ways: list[SearchStrategy[str]] = [st.text(max_size=20)]
    if "isCIDR" in rules:
        ways.insert(0, networks())
    elif "isIP(self)" in rules:
        ways.insert(0, addresses())
    elif "pattern" in schema:
        grammar = st.from_regex(re.compile(schema["pattern"]), fullmatch=True)
        ways = [grammar, mistyped(grammar), words(), *ways]
    limit = schema.get("maxLength")
    if limit is not None:
        ways.append(st.sampled_from(["a" * limit, "a" * (limit + 1), "1" * limit, "é" * limit]))
    return st.one_of(ways)


def words() -> SearchStrategy[str]:
    """Return names that mean something, and route targets at their limits."""
    numbers = st.sampled_from([0, 1, 65535, 65536, 2**32 - 1, 2**32, "00", "01", "192.0.2.1", "192.0.2.256", "a", ""])
    return st.one_of(
        st.sampled_from(["lo", "all", "default", "pt-host", "pt-ns", "pt-nsx", "eth0", "eth0.100", "red", "br0", "LO"]),
        st.builds(
            "{}{}".format,
            st.sampled_from(["br-pe-", "br-hs-", "vni", "host-e-", "pe-e-", "host-s-", "pe-s-", "br-"]),
            st.sampled_from(["", "1", "100", "1a", "x", "4294967"]),
        ),
        st.builds("{}:{}".format, numbers, numbers),
    )


def addresses() -> SearchStrategy[str]:
    """Return addresses in all spellings, with and without a wrong character."""
    right = st.one_of(
        st.ip_addresses(v=4).map(str),
        st.ip_addresses(v=6).map(str),
        st.ip_addresses(v=6).map(_long),
        st.lists(st.sampled_from([0, 1, 255, 256, "01", ""]), min_size=3, max_size=5).map(
            lambda parts: ".".join(map(str, parts))
        ),
        st.lists(st.sampled_from(["0", "1", "ffff", "FfFf", "0000", "10000", ""]), min_size=6, max_size=9).map(
            ":".join
        ),
        st.builds(
            "{}{}".format, st.sampled_from(["::", "::ffff:", "64:ff9b::", "1::", "0:0:0:0:0:0:"]), st.ip_addresses(v=4)
        ),
        st.sampled_from(["::", "::1", "fe80::1", "fe80::1%eth0", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1.1.1.1 "]),
    )
    return st.one_of(right, mistyped(right))


def _long(address: IPv4Address | IPv6Address) -> str:
    return address.exploded.upper()


def networks() -> SearchStrategy[str]:
    """Return networks, with and without a wrong character."""
    lengths = st.one_of(
        st.integers(0, 33).map(str), st.sampled_from(["64", "127", "128", "129", "08", "00", "+8", "", "24/24", "٣"])
    )
    # About where a range becomes too short, or is one in which no address of a router can be.
    usable = st.builds(
        "{}/{}".format,
        st.sampled_from(["10.0.0.0", "FD00::1", "2001:db8::"]),
        st.sampled_from([8, 15, 16, 32, 63, 64, 65]),
    )
    borders = [
        "127.255.0.0/16",
        "128.0.0.0/16",
        "223.255.255.255/32",
        "224.0.0.0/32",
        "::1:0:0/96",
        "::/95",
        "FEC0::/64",
    ]
    right = st.builds("{}/{}".format, addresses(), lengths)
    return st.one_of(usable, st.sampled_from(borders), right, mistyped(right))


@st.composite
def mistyped(draw: DrawFn, right: SearchStrategy[str]) -> str:
    """Draw a text with one character more, less, or another."""
    text = draw(right)
    place = draw(st.integers(0, len(text)))
    length = draw(st.integers(0, 1))
    return (
        text[:place]
        + draw(st.sampled_from(["", "\n", " ", "0", ":", ".", "-", "_", "%", "A", "é", "\x00"]))
        + text[place + length :]
    )


_BY_TYPE: Final[dict[str, Callable[[Schema], SearchStrategy[Any]]]] = {
    "array": _arrays,
    "boolean": lambda _schema: st.booleans(),
    "integer": _integers,
    "object": _objects,
    "string": texts,
}
