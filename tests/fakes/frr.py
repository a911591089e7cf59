"""An FRR in memory that takes configuration as FRR does, and that a test can make misbehave.

It shares no code with ``actors/frr``: commands are looked up in nodes, from the innermost open one outwards, and the
running configuration is printed with FRR's indentation. ``frr_contract.py`` holds it to what real FRR does.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

import trio

from actors.lib.frr.daemon_socket import DaemonTooSlow
from supervisor.runtime.faults import DependencyFault


class Node(NamedTuple):
    """One of FRR's command nodes: the lines that it has, and what opens which node inside it."""

    lines: str = r"(?!)"
    inner: Mapping[str, str] = MappingProxyType({})
    closing: str = "exit"


NODES: Final = {
    "config": Node(
        r"(hostname|log|debug|bgp route-map|ipv?6? nht|ip prefix-list|ipv6 prefix-list|ip route|ipv6 route|frr) .+",
        {
            r"router bgp \d+( vrf \S+)?": "bgp",
            r"vrf \S+": "vrf",
            r"interface \S+": "interface",
            r"bfd": "bfd",
            r"route-map \S+ (permit|deny) \d+": "route-map",
        },
    ),
    "bgp": Node(
        r"(bgp|neighbor|timers) .+",
        {r"address-family ipv[46] unicast": "unicast", r"address-family l2vpn evpn": "evpn"},
    ),
    "unicast": Node(
        r"(network|redistribute) .+"
        r"|neighbor \S+ (activate|allowas-in|next-hop-self|route-map|prefix-list|maximum-prefix)( .+)?",
        closing="exit-address-family",
    ),
    "evpn": Node(
        r"(rd|route-target|advertise) .+|advertise-all-vni|advertise-default-gw"
        r"|neighbor \S+ (activate|allowas-in|maximum-prefix)( .+)?",
        closing="exit-address-family",
    ),
    "vrf": Node(r"(vni|ip route|ipv6 route) .+", closing="exit-vrf"),
    "interface": Node(r"(description|ip|ipv6) .+"),
    "bfd": Node(inner={r"profile \S+": "profile", r"peer \S+": "peer"}),
    "profile": Node(r"(receive-interval|transmit-interval|detect-multiplier|minimum-ttl) \d+|passive-mode"),
    "peer": Node(r"profile .+"),
    "route-map": Node(r"(match|set) .+"),
}

#: What is on unless it is negated: only the negation is shown.
ON_BY_DEFAULT: Final = re.compile(
    r"bgp (ebgp-requires-policy|default ipv4-unicast|network import-check)|ipv?6? nht resolve-via-default"
)
#: Lines of which a context has one: another takes its place.
SINGLE: Final = re.compile(
    r"neighbor \S+ ((interface )?remote-as|password|port|description|ebgp-multihop|bfd profile|timers (connect|(?=\d)))"
    r"|neighbor \S+ (ttl-security|maximum-prefix|prefix-list)"
    r"|bgp (router-id|listen limit|graceful-restart (restart-time|stalepath-time))|vni|rd|hostname|log syslog"
    r"|bgp route-map delay-timer"
    r"|log timestamp precision|receive-interval|transmit-interval|detect-multiplier|minimum-ttl"
)
#: What bgpd and mgmtd each have a copy of.
POLICY: Final = re.compile(r"(route-map|ip prefix-list|ipv6 prefix-list) .+")
DEFAULT_INSTANCE: Final = re.compile(r"router bgp (\d+)")
UNKNOWN: Final = "% Unknown command"
REFUSED: Final = "% Configuration failed."
LOCKED: Final = "% Can't enter config; running datastore locked by another session"
HEADER: Final = """\
Building configuration...

Current configuration:
!
frr version 10.3
frr defaults traditional
!
"""


@dataclass(frozen=True)
class Command:
    """One line of a configuration, with the contexts that it is in; ``node`` is what it opens, if anything."""

    number: int
    contexts: tuple[str, ...]
    text: str
    node: str = ""
    known: bool = True

    @property
    def subject(self) -> str:
        return self.text.removeprefix("no ")

    @property
    def needs_lock(self) -> bool:
        return not re.match(r"(no )?(router bgp |bfd$)", self.contexts[0] if self.contexts else self.text)

    @property
    def of_mgmtd(self) -> bool:
        return bool(self.contexts) and self.contexts[0].startswith("vrf ")

    @property
    def negated(self) -> bool:
        return self.text.startswith("no ")


@functools.lru_cache(maxsize=256)
def commands(text: str) -> tuple[Command, ...]:
    """Parse a configuration: indentation means nothing, closers close, a line belongs to the innermost node it fits."""
    parsed: list[Command] = []
    open_contexts: list[tuple[str, str]] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = " ".join(raw.split())
        if not line or line.startswith(("!", "#")):
            continue
        if line == "end":
            open_contexts.clear()
        elif line == "exit" or line.startswith("exit-"):
            del open_contexts[-1:]
        else:
            command = _looked_up(number, line, open_contexts)
            if command.known:
                del open_contexts[len(command.contexts) :]
            if command.node and not command.negated:
                open_contexts.append((line, command.node))
            parsed.append(command)
    return tuple(parsed)


def _looked_up(number: int, line: str, open_contexts: list[tuple[str, str]]) -> Command:
    found = _found(line, tuple(open_contexts))
    return Command(number, found.contexts, found.text, found.node, found.known)


@functools.lru_cache(maxsize=4096)
def _found(line: str, open_contexts: tuple[tuple[str, str], ...]) -> Command:
    subject = line.removeprefix("no ")
    for depth in range(len(open_contexts), -1, -1):
        node = NODES[open_contexts[depth - 1][1] if depth else "config"]
        contexts = tuple(context for context, _ in open_contexts[:depth])
        for opening, inner in node.inner.items():
            if re.fullmatch(opening, subject):
                return Command(0, contexts, line, inner)
        if re.fullmatch(node.lines, subject):
            return Command(0, contexts, line)
    return Command(0, tuple(context for context, _ in open_contexts), line, known=False)


@functools.lru_cache(maxsize=256)
def _printed(lines: tuple[tuple[str, ...], ...]) -> str:
    """Return lines, each after its contexts, as FRR shows them."""
    inside: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for line in lines:
        inside.setdefault(line[:-1], []).append(line)
    return "".join(_shown(inside, (), "config"))


def _shown(
    inside: Mapping[tuple[str, ...], list[tuple[str, ...]]], contexts: tuple[str, ...], node: str
) -> Iterator[str]:
    indent = " " * len(contexts)
    for line in inside.get(contexts, ()):
        text = line[-1]
        inner = next((kind for form, kind in NODES[node].inner.items() if re.fullmatch(form, text)), "")
        body = list(_shown(inside, line, inner)) if inner else []
        if inner in ("unicast", "evpn") and not body:
            continue
        yield f"{indent}{text}\n"
        if inner:
            yield from body
            yield f"{indent}{NODES[inner].closing}\n{indent}!\n"


def _of_bgpd(line: tuple[str, ...]) -> bool:
    return line[0].startswith(("router bgp ", "bgp ")) or POLICY.match(line[0]) is not None


@dataclass
class FakeFrr:
    """Implements ``FrrDriver``. The first group of fields misbehaves on a test's behalf, the second one records."""

    rewrites: dict[str, str] = field(default_factory=dict)
    """How it shows lines, where it is not in their own words."""
    refuses: set[str] = field(default_factory=set)
    """Lines that its daemons refuse, in whatever context."""
    dry_refusals: set[str] = field(default_factory=set)
    """Words that its dry run refuses, besides unknown commands."""
    locked: bool = False
    """Another session has mgmtd's lock, without which only bgpd and bfdd take lines."""
    unreachable: str = ""
    silent: bool = False
    """A daemon does not answer in time."""
    release: str = "10.3"
    hangs: bool = False
    ignores_commands: bool = False
    vrf_devices: set[str] = field(default_factory=set)
    """VRFs that have a device in the kernel."""

    calls: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    needed: frozenset[str] = frozenset()
    writers: int = 0
    most_writers: int = 0
    lacking: set[tuple[str, ...]] = field(default_factory=set)
    """The lines of policies that mgmtd has and bgpd lacks, each after its contexts."""
    _lines: dict[tuple[str, ...], None] = field(default_factory=dict)
    """Each line after its contexts, contexts among them."""
    _text: str = ""
    """What they print, empty until someone asks."""

    @property
    def text(self) -> str:
        """The running configuration, as FRR prints it."""
        self._text = self._text or self._print()
        return self._text

    @text.setter
    def text(self, text: str) -> None:
        self._lines.clear()
        self.lacking.clear()
        self.edit(text)

    def _print(self) -> str:
        if not self.lacking:
            return HEADER + _printed(tuple(self._lines)) + "end\n"
        shown = {
            "bgpd": [line for line in self._lines if _of_bgpd(line) and line not in self.lacking],
            "mgmtd": [line for line in self._lines if POLICY.match(line[0]) or not _of_bgpd(line)],
        }
        return "".join(f"! part of {daemon}\n{HEADER}{_printed(tuple(lines))}end\n" for daemon, lines in shown.items())

    def cut_short(self, share: float) -> None:
        """Take from bgpd what follows a share of the configuration: its load was ended there."""
        self._text = ""
        for line in list(self._lines)[int(share * len(self._lines)) :]:
            if POLICY.match(line[0]):
                self.lacking.add(line)
            elif _of_bgpd(line):
                del self._lines[line]

    def edit(self, text: str) -> str:
        """Run configuration commands, as an operator would; return what FRR complains about."""
        self._text, complaints = "", []
        # mgmtd commits all of its lines at once, and refuses them all for one.
        breaks = any(command.text in self.refuses and command.of_mgmtd for command in commands(text))
        for command in commands(text):
            if self.locked and command.needs_lock:
                complaint = LOCKED
            else:
                complaint = REFUSED if breaks and command.of_mgmtd else self._run(command)
            if complaint:
                complaints.append(f"line {command.number}: {complaint}: {command.text}")
        self.lacking.intersection_update(self._lines)
        return "\n".join(complaints)

    def _run(self, command: Command) -> str:
        if not command.known:
            return UNKNOWN
        if command.text in self.refuses:
            return REFUSED
        # Contexts open with their first line, too: FRR is sent the whole path.
        if any(command.contexts[:depth] not in self._lines for depth in range(1, len(command.contexts) + 1)):
            return "% The context does not exist"
        line = (*command.contexts, command.subject)
        self.lacking.difference_update(line[:depth] for depth in range(1, len(line) + 1))
        if command.negated:
            return self._negate(command, line)
        return self._add(command, line)

    def _add(self, command: Command, line: tuple[str, ...]) -> str:
        text = command.text
        if DEFAULT_INSTANCE.fullmatch(text):
            others = [other for other in self._default_instances() if other != text]
            if others:
                return f"BGP is already running; AS is {others[0].split()[-1]}"
        defines = r"neighbor \S+ (interface .*|remote-as .*|peer-group)"
        if text.startswith("neighbor ") and not re.fullmatch(defines, text) and not self._defined(command):
            return "% Specify remote-as or peer-group commands first"
        single = SINGLE.match(text)
        if single:
            for other in [other for other in self._lines if other[:-1] == command.contexts]:
                match = SINGLE.match(other[-1])
                if match and match[0] == single[0]:
                    del self._lines[other]
        if ON_BY_DEFAULT.fullmatch(text):
            self._lines.pop((*command.contexts, f"no {text}"), None)
        else:
            self._lines[(*line[:-1], self.rewrites.get(text, self._numbered(text)))] = None
        return ""

    def _negate(self, command: Command, line: tuple[str, ...]) -> str:
        subject = command.subject
        if DEFAULT_INSTANCE.fullmatch(subject) and any(" vrf " in other[0] for other in self._bgp()):
            return "% Cannot delete default BGP instance. Dependent VRF instances exist"
        if ON_BY_DEFAULT.fullmatch(subject):
            self._lines[*command.contexts, command.text] = None
            return ""
        whole_neighbor = re.fullmatch(r"(neighbor \S+)( (interface )?remote-as .+| peer-group)?", subject)
        for other in list(self._lines):
            inside = other[: len(command.contexts)] == command.contexts
            same = other[: len(line)] == line
            longer = not command.node and other[:-1] == command.contexts and other[-1].startswith(f"{subject} ")
            of_neighbor = whole_neighbor and inside and f"{other[-1]} ".startswith(f"{whole_neighbor[1]} ")
            if same or longer or of_neighbor:
                del self._lines[other]
        return ""

    def _bgp(self) -> Iterator[tuple[str, ...]]:
        return (line for line in self._lines if line[0].startswith("router bgp "))

    def _default_instances(self) -> list[str]:
        return [line[0] for line in self._bgp() if len(line) == 1 and DEFAULT_INSTANCE.fullmatch(line[0])]

    def _defined(self, command: Command) -> bool:
        name = command.text.split()[1]
        forms = tuple(f"neighbor {name} {form}" for form in ("remote-as ", "interface ", "peer-group"))
        instance = command.contexts[:1]
        return any(line[:-1] == instance and line[-1].startswith(forms) for line in self._lines)

    def _numbered(self, text: str) -> str:
        """Give an entry of a prefix list the next sequence number, if it has none."""
        match = re.fullmatch(r"(ip(?:v6)? prefix-list \S+) ((?:permit|deny) .+)", text)
        if match is None:
            return text
        numbers = [int(line[0].split()[4]) for line in self._lines if line[0].startswith(f"{match[1]} seq ")]
        return f"{match[1]} seq {max(numbers, default=0) + 5} {match[2]}"

    @property
    def writes(self) -> int:
        return self.calls.count("send")

    async def wait_ready(self, needed: frozenset[str]) -> None:
        self.calls.append("wait_ready")
        self.needed = needed
        if self.hangs:
            await trio.sleep_forever()
        if self.unreachable:
            raise DependencyFault(self.unreachable)

    async def running(self) -> str:
        self.calls.append("running")
        await trio.lowlevel.checkpoint()
        if self.silent:
            raise DaemonTooSlow("zebra did not answer within 20 s")
        return self.text

    async def version(self) -> str:
        self.calls.append("version")
        return self.release

    async def inactive_vrfs(self) -> frozenset[str]:
        await trio.lowlevel.checkpoint()
        vrfs = {line[0].removeprefix("vrf ") for line in self._lines if len(line) == 1 and line[0].startswith("vrf ")}
        return frozenset(vrfs - self.vrf_devices)

    async def refusal(self, text: str) -> str:
        self.calls.append("refusal")
        self.checked.append(text)
        await trio.lowlevel.checkpoint()
        refused = (
            one for one in commands(text) if not one.known or any(word in one.text for word in self.dry_refusals)
        )
        return "\n".join(f"line {one.number}: {UNKNOWN}" for one in refused)

    async def send(self, commands: str) -> str:
        self.calls.append("send")
        self.sent.append(commands)
        return await self._write(commands)

    async def _write(self, text: str) -> str:
        self.writers += 1
        self.most_writers = max(self.most_writers, self.writers)
        await trio.sleep(0.1)
        complaints = ""
        if not self.ignores_commands:
            complaints = self.edit(text)
        self.writers -= 1
        return complaints
