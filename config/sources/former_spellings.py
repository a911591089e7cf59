"""What earlier versions of upstream (0.1 to 0.2.0) wrote in another way, and how it is written now.

    an entry's data -> rewrites, each of one key with its value -> the entry as it is written now

Reading carries them out with a warning each; ``openperouter migrate`` carries them out in the file's text. What has no
equivalent today (a created bridge with a name of its own, BFD's echo mode) is left alone, so that the models refuse it.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import yaml

from config.problems import Kind
from config.syntax.yaml_reader import FieldPath

_RELATIONS: Final = {"external": "External", "internal": "Internal"}
_LINUX_BRIDGE: Final = frozenset({"bridge", "linux-bridge", "LinuxBridge"})


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The key at ``place``, in the case in which it is written, becomes ``key: value``."""

    place: FieldPath
    key: str
    value: Any

    def below(self, path: FieldPath) -> Rewrite:
        """Return it for an entry at this path."""
        return replace(self, place=(*path, *self.place))


def rewrites(kind: Kind, data: Any, l3vnis: Mapping[str, str]) -> tuple[Rewrite, ...]:
    """Return what to write in another way in an entry, whatever else is wrong with it.

    ``l3vnis`` has the names of the file's L3VNIs by their VRFs (:func:`names_by_vrf`).
    """
    if not isinstance(data, dict):
        return ()
    if kind is Kind.UNDERLAY:
        return tuple(_of_underlay(data))
    return tuple(_of_l2vni(data, l3vnis)) if kind is Kind.L2VNI else ()


def names_by_vrf(entries: Iterable[Any]) -> dict[str, str]:
    """Return the name by which each L3VNI of a file is referred to, by its VRF."""
    found: dict[str, str] = {}
    for entry in entries:
        vrf, name = (_value(entry, key) for key in ("vrf", "name"))
        if isinstance(vrf, str):
            found.setdefault(vrf, str(name) if name else vrf)
    return found


def rewritten(data: Any, found: Iterable[Rewrite]) -> Any:
    """Return a copy of the data that is written as today. A key that is there already stays as it is."""
    result = copy.deepcopy(data)
    for one in found:
        *parents, old = one.place
        holder = result
        for step in parents:
            holder = holder[step]
        # In the old key's place, as an editor would.
        pairs = [(one.key, one.value) if key == old else (key, value) for key, value in holder.items()]
        holder.clear()
        holder.update(pairs)
    return result


def written(one: Rewrite) -> str:
    """Return the new key and value as one line of YAML."""
    text = yaml.safe_dump({one.key: one.value}, default_flow_style=True, sort_keys=False, width=sys.maxsize)
    return text.strip()[1:-1]


def _of_underlay(data: Mapping[str, Any]) -> Iterator[Rewrite]:
    nics = _value(data, "nics")
    if isinstance(nics, list) and all(isinstance(nic, str) for nic in nics):
        devices = [{"type": "NetworkDevice", "networkDevice": {"interfaceName": nic}} for nic in nics]
        yield from _renamed(data, "nics", "interfaces", devices)
    evpn = _value(data, "evpn")
    if isinstance(evpn, dict) and len(evpn) == 1 and isinstance(cidr := _value(evpn, "vtepCIDR"), str):
        yield from _renamed(data, "evpn", "tunnelEndpoint", {"cidrs": [cidr]})
    neighbors = _value(data, "neighbors")
    for index, neighbor in enumerate(neighbors if isinstance(neighbors, list) else ()):
        if isinstance(neighbor, dict):
            place = (_key(data, "neighbors") or "", index)
            yield from (one.below(place) for one in _of_neighbor(neighbor))


def _of_neighbor(data: Mapping[str, Any]) -> Iterator[Rewrite]:
    multihop = _value(data, "ebgpMultiHop")
    if isinstance(multihop, bool):
        yield from _renamed(data, "ebgpMultiHop", "properties", [{"type": "ebgpMultiHop"}] if multihop else [])
    relation = _value(data, "type")
    if relation in ("external", "internal"):
        yield Rewrite((_key(data, "type") or "",), "type", _RELATIONS[relation])
    bfd = _value(data, "bfd")
    if isinstance(bfd, dict) and isinstance(passive := _value(bfd, "passiveMode"), bool):
        found = _renamed(bfd, "passiveMode", "sessionMode", "Passive" if passive else "Active")
        yield from (one.below((_key(data, "bfd") or "",)) for one in found)


def _of_l2vni(data: Mapping[str, Any], l3vnis: Mapping[str, str]) -> Iterator[Rewrite]:
    vrf = _value(data, "vrf")
    if isinstance(vrf, str):
        domain = {"type": "L3VNI", "l3vni": {"name": l3vnis.get(vrf, vrf)}}
        yield from _renamed(data, "vrf", "routingDomain", domain)
    gateways, gateway = _value(data, "l2gatewayips"), _value(data, "l2gatewayip")
    if isinstance(gateways, list):
        yield from _renamed(data, "l2gatewayips", "gatewayIPs", gateways)
    elif isinstance(gateway, str):
        yield from _renamed(data, "l2gatewayip", "gatewayIPs", [gateway])
    master = _value(data, "hostMaster")
    bridge = _bridge(master) if isinstance(master, dict) else None
    if bridge is not None:
        yield Rewrite((_key(data, "hostMaster") or "",), "hostMaster", {"type": "LinuxBridge", "linuxBridge": bridge})


def _bridge(master: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return today's form of a Linux bridge that is written as formerly, None for anything else."""
    inner = _value(master, "linuxBridge")
    holder = inner if isinstance(inner, dict) else master
    if _value(master, "type") not in _LINUX_BRIDGE or _value(holder, "lifecycle") is not None:
        return None
    created, name = _value(holder, "autoCreate") is True, _value(holder, "name")
    if created == bool(name):
        return None
    return {"lifecycle": "Managed"} if created else {"lifecycle": "External", "name": name}


def _renamed(data: Mapping[str, Any], old: str, new: str, value: Any) -> Iterator[Rewrite]:
    """Yield the rewrite of a key, unless the one that takes its place is there too."""
    if _key(data, new) is None:
        yield Rewrite((_key(data, old) or "",), new, value)


def _key(data: Any, name: str) -> str | None:
    """Return a key as it is written: upstream's decoder ignores case."""
    keys = data if isinstance(data, dict) else {}
    return next((key for key in keys if key.lower() == name.lower()), None)


def _value(data: Any, name: str) -> Any:
    key = _key(data, name)
    return None if key is None else data[key]
