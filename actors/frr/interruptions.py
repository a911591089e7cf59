"""Which BGP sessions and segments a change of FRR's configuration interrupts, for ``openperouter plan``. Pure.

Inputs are the running configuration and its difference to the intended one; output is an :class:`Interruption` for each
session. bgpd resets a session when something changes that both ends negotiate when it opens (``peer_flag_action_list``
and ``peer_notify_config_change`` in bgpd/bgpd.c): these are :data:`RESETS`. Filters, limits and timers do not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from config.outcomes import Interruption
from config.syntax.frr_grammar import Path

from .diff.difference import Difference, Entry

#: Words after ``neighbor PEER`` that reset its session, and what a user calls them.
RESETS: Final = {
    "remote-as": "remote AS",
    "password": "password",
    "ebgp-multihop": "eBGP multihop",
    "ttl-security": "TTL security",
    "disable-connected-check": "connected check",
    "capability": "capabilities",
    "activate": "address families",
    "port": "port",
    "update-source": "update source",
    "local-as": "local AS",
    "passive": "passive",
}
#: Lines of a segment, and the effect of changing one.
SEGMENT_ROUTES: Final = {
    "rd ": "its routes are announced again (other route distinguisher)",
    "route-target export ": "its routes are announced again (other route targets)",
    "route-target import ": "it imports other nodes' routes again (other route targets)",
}
_INSTANCE: Final = re.compile(r"router bgp (\d+)(?: vrf (\S+))?$")
_NEIGHBOR: Final = re.compile(r"neighbor (\S+) (?:interface )?(\S+)")
_ROUTER_ID: Final = "bgp router-id "

#: One session: the VRF of its instance, and FRR's name of the peer or of the listen range.
Session = tuple[str, str]


def interrupted_sessions(running: Iterable[Entry], difference: Difference) -> Iterator[Interruption]:
    """Yield each session of FRR that would be reset or removed."""
    before, removed = dict(_sessions(running)), dict(_sessions(difference.extra))
    added = dict(_sessions(difference.missing))
    renamed = set(_instances(difference.extra))
    reasons = _reasons(difference)
    for session, instance in sorted(before.items()):
        if instance in renamed:
            again = session in added
            effect = "is reset (other AS of its instance)" if again else "is removed"
        elif session in removed and session not in added:
            effect = "is removed"
        elif changed := reasons.get(session, set()) | reasons.get((session[0], ""), set()):
            effect = f"is reset (other {', '.join(sorted(changed))})"
        else:
            continue
        yield Interruption("session", f"session {session[1]} in VRF {session[0]}", effect)


def interrupted_segments(difference: Difference, live: Collection[int]) -> Iterator[Interruption]:
    """Yield each segment, of those that are ``live`` and stay, whose routes bgpd withdraws or imports again."""
    changes: dict[int, set[str]] = {}
    for path, text in (*difference.missing, *difference.extra):
        if _is_segment(path):
            for words, what in SEGMENT_ROUTES.items():
                if text.startswith(words):
                    changes.setdefault(int(path[-1].split()[1]), set()).add(what)
    for vni in sorted(changes.keys() & set(live)):
        yield Interruption("vni", f"VNI {vni}", " and ".join(sorted(changes[vni])))


def _is_segment(path: Path) -> bool:
    return len(path) == 3 and path[-1].startswith("vni ")


def _instances(entries: Iterable[Entry]) -> Iterator[str]:
    return (text for path, text in entries if path == (text,) and _INSTANCE.match(text))


def _sessions(entries: Iterable[Entry]) -> Iterator[tuple[Session, str]]:
    """Yield each session that these lines define, with the instance that it is in."""
    for path, text in entries:
        instance, neighbor = _INSTANCE.match(path[0] if path else ""), _NEIGHBOR.match(text)
        if instance and neighbor and neighbor[2] == "remote-as":
            yield (instance[2] or "default", neighbor[1]), path[0]


def _reasons(difference: Difference) -> dict[Session, set[str]]:
    """Return the changes that reset sessions; the peer is empty for a whole instance."""
    found: dict[Session, set[str]] = {}
    for path, text in (*difference.missing, *difference.extra):
        instance = _INSTANCE.match(path[0] if path else "")
        if instance is None:
            continue
        neighbor = _NEIGHBOR.match(text)
        if neighbor and neighbor[2] in RESETS:
            found.setdefault((instance[2] or "default", neighbor[1]), set()).add(RESETS[neighbor[2]])
        elif text.startswith(_ROUTER_ID):
            found.setdefault((instance[2] or "default", ""), set()).add("router ID")
    return found
