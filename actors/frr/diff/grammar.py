"""The grammar of FRR configuration text: which lines open a context, which close it, and what lives where.

FRR prints and reads the same language. Indentation means nothing in it: a line belongs to the innermost open context
whose command it is. Only the openers below are known by name; every other line is a plain line of its context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

#: Path of a context: its opening lines from the outside in; the top level is ().
Path = tuple[str, ...]

Openers = Mapping[str, "Openers"]

_NONE: Final[Openers] = {}

#: What opens a context, by prefix, and what opens one inside it. Longer prefixes that open nothing are in _NOT_OPENERS.
OPENERS: Final[Openers] = {
    "router bgp": {
        "address-family ": {"vni ": _NONE},
        "vrf-policy ": _NONE,
        "vnc ": _NONE,
        "bmp targets ": _NONE,
        "segment-routing srv6": _NONE,
    },
    "router ": {"segment-routing srv6": {"node-msd": _NONE}, "address-family ": _NONE},
    "vrf ": {"rpki": _NONE},
    "interface ": {"link-params": _NONE},
    "bfd": {"profile ": _NONE, "peer ": _NONE},
    "route-map ": _NONE,
    "key chain ": {"key ": _NONE},
    "segment-routing": {
        "traffic-eng": {
            "segment-list ": _NONE,
            "policy ": {"candidate-path ": _NONE},
            "pcep": {"pcc": _NONE, "pce ": _NONE, "pce-config ": _NONE},
        },
        "srv6": {
            "locators": {"locator ": _NONE},
            "static-sids": _NONE,
            "encapsulation": _NONE,
            "formats": {"format ": _NONE},
        },
    },
    "mpls ldp": {"address-family ": {"interface ": _NONE}},
    "l2vpn ": {"member pseudowire ": _NONE},
    "nexthop-group ": _NONE,
    "pbr-map ": _NONE,
    "rpki": _NONE,
    "line vty": _NONE,
}  # fmt: skip

#: Plain lines that begin like an opener. ``vni 100`` opens a context only inside an EVPN address family.
_NOT_OPENERS: Final = ("route-map optimization", "route-map delay-timer", "bfd profile ", "vrf netns", "rpki ")

#: Lines of the top level that a context without ``exit`` may be followed by: FRR looks for a command that a context
#: does not have in the contexts around it.
_TOP_LEVEL: Final = (
    "hostname ", "log ", "debug ", "ip prefix-list ", "ipv6 prefix-list ", "bgp as-path access-list ",
    "bgp community-list ", "bgp extcommunity-list ", "bgp large-community-list ", "access-list ", "ipv6 access-list ",
)  # fmt: skip

_CLOSERS: Final = ("exit", "exit-vrf", "exit-address-family", "exit-vni", "exit-vrf-policy", "exit-vnc", "exit-ldp-if")


@dataclass(frozen=True, slots=True)
class Line:
    """One significant line: ``text`` has single spaces. ``opens`` says that it is the opening of context ``path``."""

    path: Path
    text: str
    opens: bool


def scan(text: str | Iterable[str]) -> Iterator[Line]:
    """Yield each significant line with its context: no comments, no closers, nothing that FRR says around the text."""
    path: Path = ()
    for raw in text.splitlines() if isinstance(text, str) else text:
        line = " ".join(raw.split())
        if not line or line[0] in "!#":
            continue
        path, opened = _step(path, line)
        if opened is not None:
            yield Line(path, line, opened)


def open_depth(text: str | Iterable[str]) -> int:
    """Return how many contexts are still open at the end."""
    path: Path = ()
    for raw in text.splitlines() if isinstance(text, str) else text:
        line = " ".join(raw.split())
        if line and line[0] not in "!#":
            path, _ = _step(path, line)
    return len(path)


def _step(path: Path, line: str) -> tuple[Path, bool | None]:
    """Return the context after a line, and whether the line opens it; None for a line that only closes."""
    if line == "end":
        return (), None
    if line in _CLOSERS:
        return path[:-1], None
    for depth in range(len(path), -1, -1):
        if _opens(path[:depth], line):
            return (*path[:depth], line), True
    return (() if line.startswith(_TOP_LEVEL) else path), False


def _opens(path: Path, line: str) -> bool:
    """Whether a line opens a context inside another."""
    if line.startswith(_NOT_OPENERS):
        return False
    inside = _inside(path)
    return inside is not None and _match(inside, line) is not None


def _inside(path: Path) -> Openers | None:
    openers: Openers | None = OPENERS
    for opening in path:
        key = _match(openers, opening) if openers is not None else None
        openers = openers[key] if openers is not None and key is not None else None
    return openers


def _match(openers: Openers, line: str) -> str | None:
    """Return the opener that a line is an instance of. A key that ends in a space wants an argument."""
    for key in openers:
        if (key.endswith(" ") and line.startswith(key)) or line == key or line.startswith(f"{key} "):
            return key
    return None
