"""The grammar of FRR configuration text: which lines open a context, and which close it.

FRR reads and prints the same language. Indentation means nothing in it: a line belongs to the innermost open context
that has such a command. :func:`scan` turns text into lines with their contexts. Only the lines that open a context are
known by name, in :data:`OPENERS`; every other line is a plain line of the context that is open.
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
    "router ": {"segment-routing srv6": {"node-msd": _NONE}, "address-family ": _NONE, "flex-algo ": _NONE},
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
    "pseudowire ": _NONE,
    "nexthop-group ": _NONE,
    "pbr-map ": _NONE,
    "rpki": _NONE,
    "line vty": _NONE,
}  # fmt: skip


def _first_words(openers: Openers) -> Iterator[str]:
    for key, inner in openers.items():
        yield key.split()[0]
        yield from _first_words(inner)


#: Most lines open nothing, and have none of these as their first word.
_OPENING_WORDS: Final = frozenset(_first_words(OPENERS))

#: Plain lines that begin like an opener. ``vni 100`` opens a context only inside an EVPN address family.
_NOT_OPENERS: Final = (
    "route-map optimization", "route-map delay-timer", "bfd profile ", "vrf netns", "rpki ", "segment-routing on",
    "segment-routing off", "segment-routing global-block", "segment-routing node-msd", "segment-routing prefix ",
)  # fmt: skip

#: Lines of the top level that may follow a context without ``exit``: FRR looks for a command that a context does not
#: have in the contexts around it.
_TOP_LEVEL: Final = (
    "hostname ", "log ", "debug ", "ip prefix-list ", "ipv6 prefix-list ", "bgp as-path access-list ",
    "bgp community-list ", "bgp extcommunity-list ", "bgp large-community-list ", "access-list ", "ipv6 access-list ",
)  # fmt: skip

#: What closes the innermost context.
CLOSERS: Final = ("exit", "exit-vrf", "exit-address-family", "exit-vni", "exit-vrf-policy", "exit-vnc", "exit-ldp-if")


@dataclass(frozen=True, slots=True)
class Line:
    """One significant line: ``text`` has single spaces. ``opens``: it is the opening of context ``path``."""

    path: Path
    text: str
    opens: bool

    @property
    def context(self) -> Path:
        """The context in which the line is a command: for an opening line the one around it."""
        return self.path[:-1] if self.opens else self.path


def scan(text: str | Iterable[str]) -> Iterator[Line]:
    """Yield each significant line with its context, without comments and closers."""
    return (line for _, line in walk(text) if line is not None)


def walk(text: str | Iterable[str]) -> Iterator[tuple[int, Line | None]]:
    """Yield for each line how many contexts are open after it, and the line unless it only closes one."""
    path: list[str] = []
    #: What opens a context inside each open context, from the top level inwards.
    inside: list[Openers] = [OPENERS]
    for raw in text.splitlines() if isinstance(text, str) else text:
        line = " ".join(raw.split())
        if not line or line[0] in "!#":
            continue
        if line == "end" or line in CLOSERS:
            depth = 0 if line == "end" else max(len(path) - 1, 0)
            del path[depth:], inside[depth + 1 :]
            yield depth, None
            continue
        depth, inner = _place(inside, line)
        del path[depth:], inside[depth + 1 :]
        if inner is not None:
            path.append(line)
            inside.append(inner)
        yield len(path), Line(tuple(path), line, inner is not None)


def _place(inside: list[Openers], line: str) -> tuple[int, Openers | None]:
    """Return the depth of the context that a line belongs to, and for an opening line what may open inside it."""
    if line.split(" ", 1)[0] in _OPENING_WORDS and not line.startswith(_NOT_OPENERS):
        for depth in range(len(inside) - 1, -1, -1):
            for key, inner in inside[depth].items():
                # A key that ends in a space wants an argument.
                if (key.endswith(" ") and line.startswith(key)) or line == key or line.startswith(f"{key} "):
                    return depth, inner
    return 0 if line.startswith(_TOP_LEVEL) else len(inside) - 1, None
