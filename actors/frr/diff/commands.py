"""Turns a difference into FRR commands: ordered removals, corrections, additions.

FRR refuses some removals while others are outstanding, and gets some in-place changes wrong. So :func:`passes` come
first, each verified before the next; :func:`corrections` then take out single lines, and :func:`additions` send what is
missing. The order of the passes:

1. ``no vni`` in a VRF whose VNI changes (FRR #21758: changed in place, the old one stays until FRR restarts) or whose
   BGP instance goes ("Please unconfigure l3vni");
2. BGP instances of VRFs;
3. the default BGP instance, which must be last of all instances.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from config.syntax.frr_grammar import Path, scan

from .difference import Difference, Entry, Intent, entry_of, parse, subject

_VRF_INSTANCE: Final = re.compile(r"router bgp (\d+) vrf (\S+)")
_DEFAULT_INSTANCE: Final = re.compile(r"router bgp (\d+)")
_VRF: Final = re.compile(r"^vrf .*", re.MULTILINE)
_PASSWORD: Final = re.compile(r"(neighbor \S+ password) \S.*")
_TARGET: Final = re.compile(r"(route-target (?:import|export)) (\S+)")

#: Lines of which FRR keeps several on one subject: another one does not replace them.
_SEVERAL: Final = re.compile(r"route-target .*|bgp listen range .*|neighbor \S+ (route-map|timers|bfd) .*")

#: A route distinguisher and a route target that FRR never derives.
_NEVER_DERIVED: Final = "0:0"


@dataclass(frozen=True, slots=True)
class Pass:
    """Commands to send together, and the entries that must be gone from the running configuration afterwards."""

    commands: str = field(repr=False)
    gone: frozenset[Entry] = field(repr=False)


def passes(found: Difference, running: frozenset[Entry]) -> list[Pass]:
    """Return the passes for a difference, without empty ones."""
    if not found.extra:
        return []
    doomed = _doomed_instances(found, running)
    vrfs = {match[2] for text in doomed if (match := _VRF_INSTANCE.fullmatch(text))}
    vnis = {
        (path, text)
        for path, text in running
        if text.startswith("vni ") and len(path) == 1 and path[0].startswith("vrf ")
        and ((path, text) in found.extra or path[0].removeprefix("vrf ") in vrfs)
    }  # fmt: skip
    in_vrfs = {text for text in doomed if _VRF_INSTANCE.fullmatch(text)}
    wanted = [
        _password_pass(found),
        Pass("".join(f"{path[0]}\nno {text}\nexit-vrf\n" for path, text in sorted(vnis)), frozenset(vnis)),
        _instance_pass(in_vrfs),
        _instance_pass(doomed - in_vrfs),
    ]
    return [step for step in wanted if step.commands]


def corrections(found: Difference, *, thorough: bool) -> str:
    """Return commands that remove what FRR shows and should not.

    A line whose subject has another line in the new text is left for that one to replace, unless ``thorough``: removing
    a neighbour's AS number, for instance, removes the whole neighbour.
    """
    replaced = set() if thorough else {(path, subject(text)) for path, text in found.missing}
    openings = {path for path, text in found.extra if path and path[-1] == text}
    commands = []
    for path, text in sorted(found.extra, key=lambda entry: (-len(entry[0]), entry)):
        inside = path[:-1] if path in openings and path[-1] == text else path
        goes_anyway = any(inside[:depth] in openings for depth in range(1, len(inside) + 1))
        if goes_anyway or ((path, subject(text)) in replaced and not _SEVERAL.fullmatch(text)):
            continue
        commands.append(_in_context(inside, [text.removeprefix("no ") if text.startswith("no ") else f"no {text}"]))
    return "".join(commands)


def additions(text: str, missing: Iterable[Entry], wanted: Iterable[Entry] = ()) -> str:
    """Return the lines of a text that FRR does not show yet, in the text's order and in their contexts.

    ``wanted`` are all lines that FRR is to show, where the text is not all of the configuration.
    """
    pending = set(missing)
    # Only targets depend on other lines, and all lines are thousands.
    shown = {*parse(text), *wanted} - pending if _TARGET.search(text) else set()
    derived = _derived_targets(shown | pending)
    commands = []
    for line in scan(text):
        entry = entry_of(line)
        if entry is not None and entry in pending:
            lines = _configuring(line.context, line.text, shown, derived)
            commands.append(_in_context(line.context, lines, opens=line.opens))
            pending.remove(entry)
            shown.add(entry)
    return "".join(commands)


def _derived_targets(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the route target that FRR derives in each VRF's BGP instance: 16 bits of its AS number, and the VNI.

    That of a segment follows from its context alone (:func:`_derived_target`).
    """
    texts = [(path[0], text) for path, text in entries if len(path) == 1]
    vnis = {opening: text.split()[1] for opening, text in texts if text.startswith("vni ")}
    instances = (_VRF_INSTANCE.fullmatch(text) for opening, text in texts if opening == text)
    return {one[0]: f"{int(one[1]) & 0xFFFF}:{vnis.get(f'vrf {one[2]}')}" for one in instances if one}


def _configuring(path: Path, text: str, shown: set[Entry], derived: dict[str, str]) -> list[str]:
    """Return the commands after which FRR 10.3 counts a line as configured, beside those that it shows already.

    It ignores a route distinguisher or target that equals the derived one in force; another one first replaces that.
    And adding a target drops the derived one, even where that is configured, so it is added again.
    """
    if text.startswith("rd "):
        return [f"rd {_NEVER_DERIVED}", text]
    target = _TARGET.fullmatch(text)
    if target is None:
        return [text]
    own, other = f"{target[1]} {_derived_target(path, derived)}", f"{target[1]} {_NEVER_DERIVED}"
    if text != own:
        return [text, own] if (path, own) in shown else [text]
    return [other, text] if (path, other) in shown else [other, text, f"no {other}"]


def _derived_target(path: Path, derived: dict[str, str]) -> str | None:
    """Return the route target that FRR derives in a context: of a VRF's instance, or of a segment (``vni``)."""
    instance = _DEFAULT_INSTANCE.fullmatch(path[0])
    if instance is None or not path[-1].startswith("vni "):
        return derived.get(path[0])
    return f"{int(instance[1]) & 0xFFFF}:{path[-1].removeprefix('vni ')}"


def _in_context(path: Path, lines: list[str], *, opens: bool = False) -> str:
    return "".join(f"{line}\n" for line in [*path, *lines, *["exit"] * (len(path) + opens)])


def residue(text: str, found: Difference, intent: Intent) -> list[str]:
    """Return the VRFs that are empty in a running configuration, which differs so from the intent, and absent from it.

    FRR leaves them behind (FRR #21245).
    """
    mentioned = {" ".join(line.split()) for line in _VRF.findall(text)}
    # What FRR shows is wanted, may be there, or is extra.
    lines = (*intent.sections, *found.extra) if mentioned else ()
    return sorted(
        opening.removeprefix("vrf ") for opening in mentioned.difference(path[0] for path, _ in lines if path)
    )


def _doomed_instances(found: Difference, running: frozenset[Entry]) -> set[str]:
    """Return the openings of the BGP instances to remove: all of them if the default one is among them."""
    instances = {text for path, text in running if path == (text,) and text.startswith("router bgp ")}
    doomed = {text for path, text in found.extra if path == (text,)} & instances
    return instances if any(_DEFAULT_INSTANCE.fullmatch(text) for text in doomed) else doomed


def _instance_pass(openings: set[str]) -> Pass:
    commands = "".join(f"no {opening}\n" for opening in sorted(openings))
    return Pass(commands, frozenset(((opening,), opening) for opening in openings))


def _password_pass(found: Difference) -> Pass:
    """Replace changed passwords and remove unwanted ones, where the neighbour stays."""
    new = {(path, match[1]): text for path, text in found.missing if (match := _PASSWORD.fullmatch(text))}
    commands, gone = "", set()
    for path, text in found.extra:
        match = _PASSWORD.fullmatch(text)
        if match and len(path) == 1 and (path, path[0]) not in found.extra:
            commands += f"{path[0]}\n{new.get((path, match[1]), f'no {match[1]}')}\nexit\n"
            gone.add((path, text))
    return Pass(commands, frozenset(gone))
