"""Entries of the router configuration files, and the names of the resources that come from them.

Upstream's names are kept (``static-<node>-<name>``) wherever they are valid and unique: users see them in the API.
Where they are not (nameless entries, upper case, the same index in two files) the name comes from the content or the
file, so that it stays the same from one reading to the next.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from pydantic import Field

from config.models import L2Vni, L3Passthrough, L3Vni, Model, RawFrrConfig, Underlay
from config.problems import Kind, Problem, ResourceId, Severity
from config.resources import Resource

#: A DNS label's length; with the node's name (at most 63 as a rule) the whole stays below the API's 253.
_MAX_NAME: Final = 63
_NAME_PATTERN: Final = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
#: The longest name of an API object (RFC 1123 subdomain).
_MAX_RESOURCE_NAME: Final = 253
_DIGEST: Final = 10


class L3VniEntry(L3Vni):
    """One entry of ``l3vnis``."""

    name: str | None = Field(
        default=None,
        pattern=_NAME_PATTERN,
        max_length=_MAX_NAME,
        description="Name of the resource; absent: the VRF's.",
    )


class L2VniEntry(L2Vni):
    """One entry of ``l2vnis``."""

    name: str | None = Field(
        default=None, pattern=_NAME_PATTERN, max_length=_MAX_NAME, description="Name of the resource; absent: its VNI."
    )


class RouterFile(Model):
    """What ``openpe_*.yaml`` may hold. Files are read entry by entry; this model describes them as a whole."""

    underlays: tuple[Underlay, ...] = Field(default=(), description="The fabric side; at most one in all files.")
    l3vnis: tuple[L3VniEntry, ...] = Field(default=(), description="Routed tenant networks.")
    l2vnis: tuple[L2VniEntry, ...] = Field(default=(), description="Stretched segments.")
    bgppassthrough: L3Passthrough | None = Field(default=None, description="Plain BGP between host and fabric.")
    rawfrrconfigs: tuple[RawFrrConfig, ...] = Field(default=(), description="Pieces of FRR configuration.")


@dataclass(frozen=True, slots=True)
class ListSection:
    """One list of a file: the kind of its entries, the model that checks them, the model that becomes the spec."""

    kind: Kind
    entry: type[Model]
    spec: type[Model]


SECTIONS: Final[Mapping[str, ListSection]] = MappingProxyType(
    {
        "underlays": ListSection(Kind.UNDERLAY, Underlay, Underlay),
        "l3vnis": ListSection(Kind.L3VNI, L3VniEntry, L3Vni),
        "l2vnis": ListSection(Kind.L2VNI, L2VniEntry, L2Vni),
        "rawfrrconfigs": ListSection(Kind.RAW_FRR_CONFIG, RawFrrConfig, RawFrrConfig),
    }
)
PASSTHROUGH: Final = ListSection(Kind.L3PASSTHROUGH, L3Passthrough, L3Passthrough)
#: The model of each kind's spec.
SPECS: Final[Mapping[Kind, type[Model]]] = MappingProxyType(
    {section.kind: section.spec for section in (*SECTIONS.values(), PASSTHROUGH)}
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One resource of a file with its problems. ``named``: the user chose its name."""

    resource: Resource
    problems: tuple[Problem, ...] = ()
    named: bool = False

    def renamed(self, name: str, label: str) -> Entry:
        """Return the entry under another name, with a warning where a user chose the old one."""
        old, resource = self.resource, replace(self.resource, name=name, label=label)
        problems = [replace(problem, resource=resource.id) for problem in self.problems]
        if self.named:
            message = f"duplicate name; this one is named {label}, references to {old.label} mean the first"
            warning = Problem(message, old.origin, "name", severity=Severity.WARNING, resource=resource.id)
            problems.append(warning)
        return replace(self, resource=resource, problems=tuple(problems))


def spec_of(entry: Model, spec: type[Model]) -> Model:
    """Return the API's part of a validated entry, without a node selector: a node's own file is for that node."""
    values = {name: getattr(entry, name) for name in spec.model_fields} | {"node_selector": None}
    return spec.model_construct(_fields_set=entry.model_fields_set & set(values), **values)


def dns_name(text: str) -> str:
    """Return ``text`` as an RFC 1123 subdomain: lower case, ``-`` for all but letters, digits and ``.``.

    Between dots there is something, and it neither begins nor ends with ``-``.
    """
    parts = (part.strip("-") for part in re.sub(r"[^a-z0-9.-]", "-", text.lower()).split("."))
    return ".".join(part for part in parts if part) or "x"


def resource_name(node_name: str, suffix: str) -> str:
    """Return the name of a resource from a file of this node."""
    return _fitting(f"static-{dns_name(node_name)}-{dns_name(suffix)}")


def _fitting(name: str) -> str:
    """Return ``name``, or where it is too long its beginning and a digest of the whole, so that it stays unique."""
    if len(name) <= _MAX_RESOURCE_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: _MAX_RESOURCE_NAME - _DIGEST - 1].rstrip('-.')}-{digest}"


def entry_suffix(kind: Kind, data: Any, index: int) -> tuple[str, bool]:
    """Return an entry's own name among those of its kind, and whether the user chose it. Works on invalid entries."""
    match kind:
        case Kind.UNDERLAY:
            return f"underlay-{index}", False
        case Kind.RAW_FRR_CONFIG:
            return f"rawfrrconfig-{index}", False
        case Kind.L3PASSTHROUGH:
            return "l3passthrough", False
    given = data if isinstance(data, dict) else {}
    for key in ("name", "vrf") if kind is Kind.L3VNI else ("name",):
        value = given.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and re.fullmatch(_NAME_PATTERN, str(value)):
            return str(value)[:_MAX_NAME], key == "name"
    vni = given.get("vni")
    return (f"vni-{vni}", False) if isinstance(vni, int) else (f"{kind.value.lower()}-{index}", False)


def unique_names(files: Iterable[tuple[str, Iterable[Entry]]]) -> list[list[Entry]]:
    """Give every resource of all files a name of its own. The first keeps its name, in the order of files and entries.

    ``files`` are pairs of a word that distinguishes the file and its entries. A name that a user gave twice is
    accepted, as upstream does, with a warning.
    """
    taken: set[ResourceId] = set()
    counts: Counter[ResourceId] = Counter()
    result = []
    for word, entries in files:
        renamed = [_with_free_name(entry, word, taken, counts) for entry in entries]
        result.append(renamed)
    return result


def _with_free_name(entry: Entry, word: str, taken: set[ResourceId], counts: Counter[ResourceId]) -> Entry:
    resource = entry.resource
    if resource.id not in taken:
        taken.add(resource.id)
        return entry
    base = replace(resource.id, name=_fitting(f"{resource.name}-{dns_name(word)}"), label=f"{resource.label}-{word}")
    free = base
    while free in taken:
        counts[base] += 1
        number = counts[base] + 1
        free = replace(base, name=_fitting(f"{base.name}-{number}"), label=f"{base.label}-{number}")
    taken.add(free)
    return entry.renamed(free.name, free.label)
