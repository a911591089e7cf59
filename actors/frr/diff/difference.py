"""Compares the configuration that FRR should run with the one that it shows, line by line and context by context.

Both texts are parsed by :mod:`config.syntax.frr_grammar` and brought into the form in which FRR shows its running
configuration, so that FRR's own rewriting is not a difference. :func:`intended` turns a rendered configuration into an
:class:`Intent`, :func:`parse` a text into entries, and :func:`difference` compares the two. An intent knows the section
that each line comes from, for :mod:`actors.frr.refusals`.

FRR runs a line if one of its daemons shows it, except for policies: bgpd and mgmtd each have a copy of these. If a load
of the configuration ends halfway, mgmtd may have a route-map that bgpd lacks, and that bgpd then applies as "deny all".
:func:`lacking` finds such lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from config.syntax.frr_grammar import Line, Path, walk
from config.syntax.frr_secrets import redact

from ..render.render import RenderedConfig, Section

#: A line after the context that it is in; an opening line is in its own context, so that empty contexts count.
Entry = tuple[Path, str]

#: What FRR prints around the configuration, and what reports the kernel's state or FRR's build and is not configured.
#: ``ip forwarding`` follows the sysctl, which FRR does not set here.
_DROPPED: Final = re.compile(
    r"Building configuration\.\.\.|Current configuration:|configure terminal"
    # vtysh shows the machine's own name, whatever was configured.
    r"|hostname .*"
    r"|frr version .*|frr defaults .*|(no )?service integrated-vtysh-config|(no )?ip(v6)? forwarding"
    # FRR's defaults since 10, shown by none of its versions or only by some.
    r"|ip(v6)? nht resolve-via-default"
)

#: A line that may close a context of the top level: FRR does so in the first column, and leads its lines in by a space.
_CLOSER: Final = re.compile(r"^(?:exit|end).*(?:\n|\Z)", re.MULTILINE)

#: Contexts that have no effect when empty: FRR leaves them behind, or does not show them. ``vrf X`` stays until its
#: device is gone and nothing refers to it (FRR #21245).
_EMPTY_IS_NOTHING: Final = ("vrf ", "interface ", "address-family ", "bfd", "line vty", "segment-routing", "rpki")

#: How FRR rewrites single lines: (pattern, replacement).
_REWRITES: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(neighbor \S+ ebgp-multihop) 255", r"\1"),
        (r"(neighbor \S+ allowas-in) 3", r"\1"),
        (r"(log syslog) debugging", r"\1"),
    )
)

#: What those lines begin with.
_REWRITTEN: Final = ("neighbor ", "log ")

_INTERFACE_IN_VRF: Final = re.compile(r"^(interface \S+) vrf \S+$")

#: The words that name what a line sets, before its value.
_SUBJECT: Final = re.compile(
    r"rd |ip(?:v6)? prefix-list \S+|(?:neighbor \S+|bgp (?:graceful-restart|listen))(?: \S+)?|\S+(?: \S+)?"
)

#: Lines of which FRR keeps several on one subject. The groups are the words that another line has in common with one of
#: them if it takes its place.
_ONE_OF_SEVERAL: Final = re.compile(
    r"(neighbor \S+ route-map )\S+( in| out)"
    r"|(neighbor \S+ (?:timers|bfd|capability)(?: [a-z]\S*)?).*"
    r"|((?:route-target|bgp listen range) .*)"
    r"|(ip(?:v6)? prefix-list \S+ seq \d+).*"
    r"|(bgp default \S+).*"
    r"|(match ip(?:v6)? \S+(?: prefix-l(?:ist|en))?).*"
)

#: What precedes a daemon's part of the running configuration.
_PART: Final = re.compile(r"^! part of (\w+)\n", re.MULTILINE)
_POLICY: Final = r"(?:route-map|ip(?:v6)? prefix-list|(?:ipv6 )?access-list) .*"
#: The policies in such a part, without what closes them.
_POLICIES: Final = re.compile(rf"^{_POLICY}(?:\n .*)*", re.MULTILINE)
#: The daemons whose policies take effect; mgmtd hands its copy to zebra.
_COPIES: Final = ("bgpd", "mgmtd")
#: The lines of policies that both take, in FRR 10.3. Most others in a route-map are for one of them alone.
_OF_BOTH: Final = re.compile(
    rf"{_POLICY}"
    r"|match (?:ip(?:v6)? address (?!prefix-len ).*|(?:interface|metric|tag) .*)"
    r"|set (?:metric|tag) \d+|(?:description|call|on-match) .*"
)

#: What FRR adds to an interface by itself for a BGP neighbour on it.
_INTERFACE_NEIGHBOR_EXTRAS: Final = re.compile(r"ipv6 nd ra-interval 10|no ipv6 nd suppress-ra")


@dataclass(frozen=True, slots=True)
class Intent:
    """What FRR should show. ``optional`` lines may be shown or not: raw snippets override or negate them.

    ``sections`` maps each line to what it comes from: the first generated section that has it, else the last raw
    snippet. ``foreign`` are the top level contexts that only raw snippets write to, where FRR may add lines;
    ``negations`` are the snippets' lines that begin with ``no``, which FRR shows only where they differ from its
    defaults.
    """

    required: frozenset[Entry] = field(repr=False)
    optional: frozenset[Entry] = field(repr=False, default=frozenset())
    sections: dict[Entry, Section] = field(repr=False, default_factory=dict)
    foreign: frozenset[str] = frozenset()
    negations: frozenset[Entry] = frozenset()


@dataclass(frozen=True, slots=True)
class Difference:
    """Lines that FRR should show and does not, and lines that it shows and should not. False if there are none."""

    missing: tuple[Entry, ...] = field(repr=False, default=())
    extra: tuple[Entry, ...] = field(repr=False, default=())

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra)

    def __str__(self) -> str:
        """One line per entry, ``+`` for missing and ``-`` for extra, without secrets."""
        lines = [f"+ {show(entry)}" for entry in self.missing] + [f"- {show(entry)}" for entry in self.extra]
        return "\n".join(lines)

    def summary(self, most: int = 3) -> str:
        """Return the first few entries on one line, without secrets."""
        lines = str(self).splitlines()
        more = f" and {len(lines) - most} more" if len(lines) > most else ""
        return "; ".join(lines[:most]) + more


def parse(text: str) -> frozenset[Entry]:
    """Return the significant lines of FRR text in the form in which FRR shows them.

    Each VNI is a few blocks of its own, and of most of them the last text is still known (:data:`KNOWN_BLOCKS`).
    """
    blocks: list[frozenset[Entry]] = []
    start = 0
    for closer in _CLOSER.finditer(text):
        found, closed = KNOWN_BLOCKS.read(text[start : closer.end()])
        if closed:
            blocks.append(found)
            start = closer.end()
    return frozenset().union(*blocks, _parse_block(text[start:])[0])


def part(daemon: str, text: str) -> str:
    """Return what a daemon shows as one part of the running configuration."""
    return f"! part of {daemon}\n{text}\nend\n"


def lacking(text: str) -> frozenset[Entry]:
    """Return the lines of policies that one daemon shows and another lacks; none where the text has no such parts."""
    _, *names_and_texts = _PART.split(text)
    parts = dict(zip(names_and_texts[::2], names_and_texts[1::2], strict=True))
    if not parts.keys() >= set(_COPIES):
        return frozenset()
    one, other = (parse("\n".join(_POLICIES.findall(parts[daemon]))) for daemon in _COPIES)
    return frozenset(
        (path, line) for path, line in one ^ other if _OF_BOTH.fullmatch(line) or (path, path[-1]) not in one & other
    )


def _parse_block(text: str) -> tuple[frozenset[Entry], bool]:
    """Return the lines of a text that begins at the top level, and whether it ends there too."""
    entries: set[Entry] = set()
    depth = 0
    for depth, line in walk(text):  # noqa: B007
        entry = None if line is None else entry_of(line)
        if entry is not None:
            entries.add(entry)
    return frozenset(entries), depth == 0


def entry_of(line: Line) -> Entry | None:
    """Return a line in the form in which FRR shows it, or None for one that has no effect or is not configuration."""
    shown = _shown(line.context, line.text)
    if shown is None:
        return None
    entry = (_normal_path(line.path), shown)
    return None if _opens_in_vain(entry) else entry


class _KnownBlocks:
    """The blocks of the texts that were parsed since the last turn, and of the turn before."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[frozenset[Entry], bool]] = {}
        self._now: dict[str, tuple[frozenset[Entry], bool]] = {}

    def turn(self) -> None:
        """Forget the blocks that were in none of the texts since the last turn, if any text was read."""
        if self._now:
            self._before, self._now = self._now, {}

    def read(self, text: str) -> tuple[frozenset[Entry], bool]:
        """Return what :func:`_parse_block` does."""
        found = self._now.get(text) or self._before.get(text) or _parse_block(text)
        self._now[text] = found
        return found


KNOWN_BLOCKS: Final = _KnownBlocks()


def intended(rendered: RenderedConfig) -> Intent:
    """Return what FRR should show once it runs a rendered configuration."""
    sections: dict[Entry, Section] = {}
    written: dict[Entry, Section] = {}
    # Sets and dictionaries made of sets do not hash thousands of lines again.
    for section in reversed(rendered.sections):
        if not section.raw:
            sections.update(dict.fromkeys(parse(section.text), section))
    generated = frozenset(sections)
    for section in rendered.sections:
        if section.raw:
            written.update(dict.fromkeys(parse(section.text) - generated, section))
    if not written:
        return Intent(generated, sections=sections)
    negations = {(path, text) for path, text in written if text.startswith("no ")}
    # A later snippet may restore what an earlier one negates.
    negated = {(path, text.removeprefix("no ")) for path, text in negations} - set(written)
    replaced = {(path, _slot(text)) for path, text in written}
    # Without a value, a negation may remove all lines on its subject.
    ended = {(path, text.removeprefix("no ")) for path, text in negations}
    overridden = {
        (path, text) for path, text in generated if (path, _slot(text)) in replaced or (path, subject(text)) in ended
    }
    everything = generated | set(written)
    optional = (negations | overridden) - negated
    foreign = {path[0] for path, _ in written if path} - {path[0] for path, _ in generated if path}
    required = everything - optional - negated
    return Intent(required, frozenset(optional), sections | written, frozenset(foreign), frozenset(negations))


def difference(intent: Intent, running: frozenset[Entry], incomplete: frozenset[Entry] = frozenset()) -> Difference:
    """Return what separates the parsed running configuration from the intent.

    ``incomplete`` are the running lines that not every daemon has that should (:func:`lacking`).
    """
    missing = intent.required - (running - incomplete)
    extra = running - intent.required - intent.optional
    expected: set[Entry] = set()
    if any(path and path[0].startswith("interface ") for path, _ in extra):
        interfaces = {text.split()[1] for path, text in intent.required if _is_interface_neighbor(path, text)}
        expected = {entry for entry in extra if _comes_with_neighbor(entry, interfaces)}
    return Difference(tuple(sorted(missing)), tuple(sorted(extra - expected)))


def show(entry: Entry) -> str:
    """Return an entry with its contexts on one line, without secrets."""
    path, text = entry
    return redact(" / ".join(path if path and path[-1] == text else (*path, text)))


def _normal_path(path: Path) -> Path:
    return tuple(map(_without_vrf, path))


def _without_vrf(text: str) -> str:
    """Return an interface's opening line without the VRF that FRR shows with it, and any other line as it is."""
    return _INTERFACE_IN_VRF.sub(r"\1", text) if text.startswith("interface ") else text


def _shown(path: Path, text: str) -> str | None:
    """Return a line as FRR shows it, or None if it is not configuration."""
    if not path and _DROPPED.fullmatch(text):
        return None
    for pattern, replacement in _REWRITES if text.startswith(_REWRITTEN) else ():
        match = pattern.fullmatch(text)
        if match:
            return match.expand(replacement)
    return _without_vrf(text)


def _opens_in_vain(entry: Entry) -> bool:
    path, text = entry
    return bool(path) and path[-1] == text and text.startswith(_EMPTY_IS_NOTHING)


def subject(text: str) -> str:
    """Return the words that name what a line sets: for a neighbour's line one property of that neighbour."""
    match = _SUBJECT.match(text.removeprefix("no "))
    return match[0] if match else ""


def _slot(text: str) -> str:
    """Return the words that a line shares with those whose place it takes: its subject, or more of it."""
    match = _ONE_OF_SEVERAL.fullmatch(text.removeprefix("no "))
    return "".join(filter(None, match.groups())) if match else subject(text)


def _is_interface_neighbor(path: Path, text: str) -> bool:
    return bool(path) and path[-1].startswith("router bgp") and re.match(r"neighbor \S+ interface ", text) is not None


def _comes_with_neighbor(entry: Entry, interfaces: set[str]) -> bool:
    path, text = entry
    if len(path) != 1 or path[0] not in {f"interface {name}" for name in interfaces}:
        return False
    return _INTERFACE_NEIGHBOR_EXTRAS.fullmatch(text) is not None
