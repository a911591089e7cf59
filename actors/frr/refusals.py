"""The lines that FRR refuses, and the resource that each of them belongs to.

Every line of a rendered configuration comes from a section with a source (:class:`.render.render.Section`). What
vtysh's dry run refuses is cut out before anything is sent. Lines that an attempt has left different are held: they fail
their resource and are neither sent nor removed until their next attempt is due, and everything else continues. The
pauses between attempts double, to half a minute at the most while another session has mgmtd's lock; FRR's restart and
an operator's reload end them. A raw snippet is left out whole, since part of a policy may permit everything; of a
generated section the other lines stay in force.

Only the lines of :func:`vital` concern the whole node: the kernel is not touched before they are right.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import trio

from config.desired import ResourceFailure
from config.problems import Reason
from config.syntax.frr_grammar import scan

from .diff.difference import Difference, Entry, Intent, parse, show, subject
from .render.render import RenderedConfig, Section, Source

#: Pauses between the attempts at refused lines, in seconds.
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 300.0
#: The same after an attempt that found mgmtd locked: the operator who has the lock may give it back at any time.
LONGEST_PAUSE_LOCKED: Final = 30.0
#: More than lead to any longest pause; no float is large enough for a thousand.
MOST_DOUBLINGS: Final = 10
#: Attempts after which a snippet is left out of FRR's boot file too: few transient faults last that long.
CERTAIN_ATTEMPTS: Final = 3

#: What names a policy of the top level, which may consist of several lines and contexts.
_POLICY: Final = re.compile(r"(?:route-map|ip(?:v6)? prefix-list|(?:ipv6 )?access-list) \S+")

#: Longest quotation of FRR in a message, in characters.
_QUOTATION: Final = 300

_REFUSED_LINE: Final = re.compile(r"line (\d+):")
_INSTANCE: Final = re.compile(r"router bgp \d+( vrf \S+)?")
_DEFAULT_INSTANCE: Final = re.compile(r"router bgp \d+")
_VERSION: Final = re.compile(r"^frr version (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RunningConfiguration:
    """A running configuration, its lines, and what separates them from an intent; ``pending`` is what is not held."""

    text: str = field(repr=False)
    lines: frozenset[Entry] = field(repr=False)
    intent: Intent
    difference: Difference
    pending: Difference

    @property
    def frr(self) -> str:
        """FRR and its version."""
        version = _VERSION.search(self.text)
        return f"FRR {version[1]}" if version else "FRR"


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an attempt has led to. ``stubborn`` are extra lines that were there all along.

    ``locked``: mgmtd refused some of it because another session had its lock, which says nothing about the lines.
    """

    seen: RunningConfiguration
    answers: Mapping[Entry, str] = field(default_factory=dict)
    stubborn: frozenset[Entry] = frozenset()
    locked: bool = False

    def own_words(self) -> dict[Entry, frozenset[Entry]]:
        """Return the missing lines that FRR shows in its own words, with these, and the other way round.

        A stubborn line is an old one that FRR keeps.
        """
        found = self.seen.pending
        missing, new = _by_place(found.missing), _by_place(set(found.extra) - self.stubborn)
        both = [(missing[place], new[place]) for place in missing.keys() & new.keys()]
        return {one: others for lost, shown in both for one, others in [
            *((entry, frozenset(shown)) for entry in lost), *((entry, frozenset(lost)) for entry in shown)
        ]}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Held:
    """Why something is held. ``due`` is the time of the next attempt; infinite if only another FRR may help.

    ``counterparts`` are the missing line in FRR's own words, or the lines that these words stand for. ``raw``: they
    are a snippet's, or FRR has added the line to a snippet's context.
    """

    attempts: int
    due: float
    message: str
    counterparts: frozenset[Entry] = frozenset()
    raw: bool = False
    locked: bool = False

    @property
    def is_certain(self) -> bool:
        """Whether so many attempts at a snippet have failed that FRR may boot without it."""
        return self.attempts >= CERTAIN_ATTEMPTS and not self.locked


class Refusals:
    """The lines that one FRR refuses."""

    def __init__(self) -> None:
        self._lines: dict[Entry, _Held] = {}
        #: Raw snippets that are left out, by their text.
        self._snippets: dict[str, _Held] = {}
        #: The remaining lines of generated sections, and why, by their whole text.
        self._cuts: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._now = 0.0

    def begin(self, rendered: RenderedConfig) -> None:
        """Begin a pass: what is due now stays due until its end, and what is about other texts is forgotten."""
        self._now = trio.current_time()
        texts = {section.text for section in rendered.sections}
        self._cuts = {text: cut for text, cut in self._cuts.items() if text in texts}
        self._snippets = {text: held for text, held in self._snippets.items() if text in texts}

    def forget(self, *, restarted: bool = False) -> None:
        """Retry everything: FRR was ``restarted`` and may be another version, or an operator requests it.

        Only another version may find other words for a snippet's lines, and an attempt removes the lines for a moment.
        """
        self._lines = {entry: held for entry, held in self._lines.items() if held.raw and not restarted}
        self._snippets.clear()
        self._cuts.clear()

    def acceptable(self, rendered: RenderedConfig) -> RenderedConfig:
        """Return a configuration without what the dry run refused and without snippets that wait for an attempt."""
        sections = ((one, self._cut(one)[0]) for one in rendered.sections if not self._waits(one))
        return RenderedConfig(tuple(one if text == one.text else replace(one, text=text) for one, text in sections))

    def part(self, rendered: RenderedConfig, entries: Iterable[Entry], intent: Intent) -> RenderedConfig:
        """Return the sections that these lines of what is :meth:`acceptable` come from."""
        texts = {intent.sections[entry].text for entry in entries}
        waits, cut = self._waits, self._cut
        return RenderedConfig(tuple(one for one in rendered.sections if cut(one)[0] in texts and not waits(one)))

    def cut(self, rendered: RenderedConfig, answer: str) -> bool:
        """Leave out the first line that a dry run of what is :meth:`acceptable` refused.

        Later complaints may only follow from the first. False if it names none, or a line that the node needs.
        """
        named = _REFUSED_LINE.search(answer)
        number = int(named[1]) if named else 0
        for section in rendered.sections:
            left, messages = ("", ()) if self._waits(section) else self._cut(section)
            lines = left.splitlines(keepends=True)
            if 0 < number <= len(lines):
                line = " ".join(lines.pop(number - 1).split())
                message = f"FRR refuses {show(((), line))!r}: {quotation(answer.splitlines()[0])}"
                if section.raw:
                    self._snippets[section.text] = _Held(CERTAIN_ATTEMPTS, math.inf, message)
                    return True
                opens = any(one.opens and one.text == line for one in scan(left))
                kept = "" if opens else "".join(lines)
                self._cuts[section.text] = (kept, (*messages, message))
                return not any(map(_makes_evpn, parse(left) - parse(kept)))
            number -= len(lines)
        return False

    def pending(self, found: Difference) -> Difference:
        """Return the part of a difference to apply now."""
        waiting = {entry for entry, held in self._lines.items() if held.due > self._now}
        return Difference(*(tuple(one for one in side if one not in waiting) for side in (found.missing, found.extra)))

    def review(self, seen: RunningConfiguration, *, verified: bool) -> None:
        """Drop held lines that a pass's first reading no longer shows as different.

        ``verified``: an earlier process has verified the same text, and this one has not changed anything yet. Then
        hold snippets' lines that FRR shows in other words.
        """
        missing, extra = seen.difference.missing, seen.difference.extra
        different = {*missing, *extra}
        self._lines = {
            entry: held
            for entry, held in self._lines.items()
            if entry in different and (not held.counterparts or held.counterparts & different)
        }
        sections = seen.intent.sections
        taken = {one.text for one in sections.values() if one.raw} - {sections[entry].text for entry in missing}
        self._snippets = {text: held for text, held in self._snippets.items() if text not in taken}
        own_words = Attempt(seen).own_words()
        explained = all(entry in own_words and sections[entry].raw for entry in missing)
        if verified and explained and all(entry in own_words or _is_foreign(entry, seen.intent) for entry in extra):
            self.hold_lines(Attempt(seen))

    def hold_snippets(self, done: Attempt) -> bool:
        """Leave out the snippets with lines that an attempt has not brought about; return whether there are any."""
        lost: dict[str, list[Entry]] = {}
        own_words = done.own_words()
        for entry in done.seen.pending.missing:
            section = done.seen.intent.sections[entry]
            if section.raw and entry not in own_words:
                lost.setdefault(section.text, []).append(entry)
        for text, entries in lost.items():
            answers = (done.answers.get(entry, "") for entry in entries)
            message = f"{done.seen.frr} does not run {_listed(entries)}{_answered(answers)}"
            self._snippets[text] = _next(self._snippets.get(text), message, locked=done.locked)
        return bool(lost)

    def hold_lines(self, done: Attempt) -> None:
        """Hold the lines that an attempt has left different.

        What has come into a snippet's context with the snippet is FRR's own. What was there before may have to go.
        """
        found, own_words = done.seen.pending, done.own_words()
        new = frozenset() if done.locked else frozenset(found.extra) - done.stubborn
        final = {*own_words, *(entry for entry in new if _is_foreign(entry, done.seen.intent))}
        for entry in (*found.missing, *found.extra):
            held = _next(self._lines.get(entry), done.answers.get(entry, ""), locked=done.locked)
            if entry in final:
                counterparts = own_words.get(entry, frozenset())
                sections = (done.seen.intent.sections.get(one) for one in (entry, *counterparts))
                raw = not counterparts or any(one.raw for one in sections if one)
                held = replace(held, due=math.inf, counterparts=counterparts, raw=raw)
            self._lines[entry] = held

    def certain(self, rendered: RenderedConfig, seen: RunningConfiguration) -> bool:
        """Whether FRR may boot with what is left: without snippets only if nothing else could be to blame.

        What the dry run refuses, no state of the daemons is to blame for: only vtysh reads it.
        """
        held = (self._snippets[section.text] for section in rendered.sections if self._waits(section))
        lost = [one for one in held if one.due < math.inf]
        faultless = all(
            seen.intent.sections[entry].raw or self._in_own_words(entry) for entry in seen.difference.missing
        )
        return not lost or (faultless and all(one.is_certain for one in lost))

    def seconds_to_attempt(self) -> float:
        """Return the time until something is due for another attempt; infinite if nothing is."""
        # What was due when the last pass began was tried in it, and is due again only if it was held again.
        dues = (held.due for held in (*self._lines.values(), *self._snippets.values()) if held.due > self._now)
        return max(0.0, min(dues, default=math.inf) - trio.current_time())

    def failures(self, rendered: RenderedConfig, seen: RunningConfiguration) -> tuple[ResourceFailure, ...]:
        """Return the failures of resources, one for each resource."""
        messages: dict[Source, list[str]] = {}
        for source, message in self._messages(rendered, seen):
            if source is not None:
                messages.setdefault(source, []).append(message)
        return tuple(
            ResourceFailure(source.resource, Reason.FRR_CONFIGURATION_FAILED, "; ".join(texts), source.origin)
            for source, texts in messages.items()
        )

    def unattributed(self, rendered: RenderedConfig, seen: RunningConfiguration) -> str:
        """Return the lines that belong to no resource."""
        return "; ".join(message for source, message in self._messages(rendered, seen) if source is None)

    def _messages(self, rendered: RenderedConfig, seen: RunningConfiguration) -> Iterator[tuple[Source | None, str]]:
        for section in rendered.sections:
            if self._waits(section):
                yield section.source, f"ignored: {self._snippets[section.text].message}"
            for message in self._cut(section)[1]:
                yield section.source, f"{message}; its other lines are in force"
        missing: dict[Source | None, list[Entry]] = {}
        for entry in seen.difference.missing:
            missing.setdefault(seen.intent.sections[entry].source, []).append(entry)
        lost = {_place(entry) for entry in seen.difference.missing}
        for source, entries in missing.items():
            places = {_place(entry) for entry in entries}
            instead = [entry for entry in seen.difference.extra if _place(entry) in places]
            shown = f", it shows {_listed(instead)}" if instead else ""
            answers = (self._lines[entry].message for entry in entries if entry in self._lines)
            yield source, f"{seen.frr} does not show {_listed(entries)}{shown}{_answered(answers)}"
        extra = [one for one in seen.difference.extra if _place(one) not in lost and not _is_foreign(one, seen.intent)]
        for source, entries in _by_owner(extra, seen.intent.sections).items():
            yield source, f"{seen.frr} keeps {_listed(entries)}"

    def _waits(self, section: Section) -> bool:
        return section.text in self._snippets and self._snippets[section.text].due > self._now

    def _cut(self, section: Section) -> tuple[str, tuple[str, ...]]:
        return self._cuts.get(section.text, (section.text, ()))

    def _in_own_words(self, entry: Entry) -> bool:
        return entry in self._lines and self._lines[entry].due == math.inf


def vital(seen: RunningConfiguration) -> Difference:
    """Return the part of a difference with which the kernel must not be touched.

    A VXLAN device that appears while bgpd has no EVPN instance crashes bgpd, and FRR must be without an instance or VNI
    before their devices go (reference RLD-5).
    """
    sections = seen.intent.sections
    missing = (one for one in seen.difference.missing if _makes_evpn(one) and not sections[one].raw)
    extra = (
        (path, text)
        for path, text in seen.difference.extra
        if _INSTANCE.fullmatch(text) or (text.startswith("vni ") and path and path[0].startswith("vrf "))
    )
    return Difference(tuple(missing), tuple(extra))


def _makes_evpn(entry: Entry) -> bool:
    _, text = entry
    return bool(_DEFAULT_INSTANCE.fullmatch(text)) or text == "advertise-all-vni"


def refused(text: str, answer: str) -> str:
    """Return the message about a text that the node needs and a dry run refuses, with the first line that it names."""
    named = _REFUSED_LINE.search(answer)
    line = "".join(text.splitlines()[int(named[1]) - 1 : int(named[1])]) if named else ""
    what = f"{show(((), ' '.join(line.split())))!r} in the configuration" if line else "the configuration"
    return f"FRR refuses {what}: {quotation(answer)}"


def quotation(text: str) -> str:
    """Return a text on one line of bounded length."""
    line = "; ".join(part.strip() for part in text.splitlines() if part.strip())
    return line if len(line) <= _QUOTATION else f"{line[: _QUOTATION - 1]}…"


def _next(held: _Held | None, message: str, *, locked: bool) -> _Held:
    attempts = held.attempts + 1 if held else 1
    longest = LONGEST_PAUSE_LOCKED if locked else LONGEST_PAUSE
    pause = min(FIRST_PAUSE * 2 ** min(attempts - 1, MOST_DOUBLINGS), longest)
    return _Held(attempts, trio.current_time() + pause, message, locked=locked)


def _place(entry: Entry) -> tuple[object, ...]:
    path, text = entry
    return (path, subject(text))


def _by_owner(extra: list[Entry], sections: dict[Entry, Section]) -> dict[Source | None, list[Entry]]:
    """Group extra lines by the source of what they are in; None is that of no context or policy that is wanted."""
    # A pass may have thousands of extra lines, and the sections have thousands as well.
    wholes = {_whole(entry): one.source for entry, one in reversed(sections.items())} if extra else {}
    owners: dict[Source | None, list[Entry]] = {}
    for path, text in extra:
        openings = (sections.get((path[:depth], path[depth - 1])) for depth in range(len(path), 0, -1))
        innermost = next(filter(None, openings), None)
        owner = innermost.source if innermost else wholes.get(_whole((path, text)))
        owners.setdefault(owner, []).append((path, text))
    return owners


def _whole(entry: Entry) -> str:
    """Return what names the policy or the context of the top level that a line belongs to."""
    path, text = entry
    opening = path[0] if path else text
    policy = _POLICY.match(opening)
    return policy[0] if policy else opening


def _by_place(entries: Iterable[Entry]) -> dict[tuple[object, ...], list[Entry]]:
    places: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        places.setdefault(_place(entry), []).append(entry)
    return places


def _is_foreign(entry: Entry, intent: Intent) -> bool:
    path, _ = entry
    return bool(path) and path[0] in intent.foreign


def _listed(entries: Iterable[Entry]) -> str:
    return quotation("; ".join(f"{show(entry)!r}" for entry in entries))


def _answered(answers: Iterable[str]) -> str:
    answer = "\n".join(dict.fromkeys(filter(None, answers)))
    return f"; FRR's answer: {quotation(answer)}" if answer else ""
