"""The switch at the other end of each NIC, by LLDP (IEEE 802.1AB), from lldpd if it runs.

    lldpcli -f json0 show neighbors -> LldpNeighbor for each NIC

``json0`` is lldpd's form in which every member is a list, however many there are (lldpcli(8)), so that one neighbour
has the same form as two. Names and ports are those that the other end announces.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

COMMAND: Final = ("lldpcli", "-f", "json0", "show", "neighbors")
#: lldpd answers from memory.
SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class LldpNeighbor:
    """The other end of a NIC: system name, port, and addresses except link-local ones; empty if not announced."""

    interface: str
    system: str = ""
    port: str = ""
    addresses: tuple[str, ...] = ()

    def __str__(self) -> str:
        port = f" port {self.port}" if self.port else ""
        addresses = f", {', '.join(self.addresses)}" if self.addresses else ""
        return f"{self.system or 'unnamed'}{port}{addresses}"


def neighbors() -> list[LldpNeighbor]:
    """Return lldpd's neighbours; none where it is not installed, does not run, or gives an unknown answer."""
    try:
        done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=SECONDS, check=False)
        return parse(done.stdout) if done.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return []


def parse(text: str) -> list[LldpNeighbor]:
    """Return the neighbours in lldpcli's answer, the first for each NIC; none for an unknown answer."""
    try:
        document = json.loads(text)
    except ValueError:
        return []
    found: dict[str, LldpNeighbor] = {}
    for interface in _members(document, "lldp", "interface"):
        name = interface.get("name")
        if isinstance(name, str) and name:
            found.setdefault(name, _neighbor(name, interface))
    return list(found.values())


def _neighbor(name: str, interface: dict[str, Any]) -> LldpNeighbor:
    system = next(_values(interface, "chassis", "name"), "")
    # What people call the port is its description; its identity is often a MAC.
    port = next(_values(interface, "port", "descr"), "") or next(_values(interface, "port", "id"), "")
    addresses = (one for one in _values(interface, "chassis", "mgmt-ip") if _is_reachable(one))
    return LldpNeighbor(name, system, port, tuple(dict.fromkeys(addresses)))


def _is_reachable(address: str) -> bool:
    try:
        return not ip_address(address).is_link_local
    except ValueError:
        return False


def _values(holder: dict[str, Any], *keys: str) -> Iterator[str]:
    for member in _members(holder, *keys):
        value = member.get("value")
        if isinstance(value, str) and value.isprintable():
            yield value


def _members(holder: Any, *keys: str) -> Iterator[dict[str, Any]]:
    """Yield the objects at a path of keys, below each of which is a list of objects."""
    if not isinstance(holder, dict):
        return
    if not keys:
        yield holder
        return
    below = holder.get(keys[0])
    for one in below if isinstance(below, list) else ():
        yield from _members(one, *keys[1:])
