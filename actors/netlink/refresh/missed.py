"""Finds hosts that the router's bridges have and zebra does not have, so that no other node knows where they are.

The kernel reports a MAC once, when a bridge learns it. FRR 10.3's zebra reads links in one thread and MACs in another,
and drops a MAC whose port it does not know yet, as that of a host that sends while its segment is being created. All
other nodes then flood what is for this host until it has been silent for so long that the bridge forgets it (300 s). So
the bridge is made to forget it at once: the host's next frame is reported as a new MAC.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from actors.lib.frr.daemon_socket import DaemonSockets
from config.settings import Settings

from .hosts import MOST_HOSTS, Host, Look

#: How long zebra has for a host before it is asked whether it has it, seconds.
PATIENCE: Final = 5.0
#: How often a host is forgotten; zebra does not take one that is still missing for a reason of its own.
MOST_TRIES: Final = 3
#: How long the number of a host's tries is kept after the last one, seconds: twice a bridge's ageing time.
KEPT_SECONDS: Final = 600.0
#: Deadline of each of the two sessions with zebra, seconds: well within that of a poll.
SECONDS: Final = 5.0
_VNIS: Final = "show evpn vni json"

#: The MACs that zebra has as local, by VNI; without segments that it does not have, or that have too many to be read.
LocalMacs = Mapping[int, Collection[bytes]]


class MissedHosts:
    """Which hosts zebra has to be asked about, from poll to poll."""

    def __init__(self) -> None:
        self._ports: Mapping[int, int] = {}
        #: Hosts that zebra has, or does not take.
        self._settled: set[Host] = set()
        #: The others, and since when each is there.
        self._since: dict[Host, float] = {}
        #: How often each was forgotten, and when last.
        self._tries: dict[Host, tuple[int, float]] = {}

    def suspects(self, look: Look, now: float) -> list[Host]:
        """Return the hosts of a poll that zebra has to be asked about."""
        # A port that was replaced is one that zebra may not have known in time either.
        same = {vni for vni, port in look.ports.items() if self._ports.get(vni) == port}
        self._ports = look.ports
        self._settled = {host for host in self._settled if host in look.silent and host.vni in same}
        self._since = {
            host: self._since.get(host, now) if host.vni in same else now
            for host in look.silent
            if host not in self._settled
        }
        self._tries = {host: tries for host, tries in self._tries.items() if now - tries[1] < KEPT_SECONDS}
        return [host for host, since in self._since.items() if now - since >= PATIENCE]

    def missed(self, suspects: Collection[Host], local: LocalMacs, now: float) -> list[Host]:
        """Return the suspects that the bridge should forget, given what zebra has; each counts as forgotten."""
        found = []
        for host in suspects:
            tries, _ = self._tries.get(host, (0, now))
            if host.vni not in local:
                continue
            if host.mac in local[host.vni] or tries >= MOST_TRIES:
                self._settled.add(host)
            else:
                self._tries[host] = tries + 1, now
                self._since[host] = now
                found.append(host)
        return found


async def local_macs(settings: Settings, vnis: Collection[int]) -> LocalMacs:
    """Ask zebra about segments; DependencyFault when it does not answer."""
    zebra = DaemonSockets.of(settings, seconds=SECONDS)
    [known] = await zebra.json(_VNIS, daemon="zebra")
    counts = {vni: _mapping(_mapping(known).get(str(vni))).get("numMacs") for vni in vnis}
    readable = [vni for vni, count in counts.items() if isinstance(count, int) and count <= MOST_HOSTS]
    tables = await zebra.json(*(f"show evpn mac vni {vni} json" for vni in readable), daemon="zebra")
    return {vni: frozenset(_local(table)) for vni, table in zip(readable, tables, strict=True)}


def _local(table: object) -> Iterator[bytes]:
    for mac, entry in _mapping(_mapping(table).get("macs")).items():
        if _mapping(entry).get("type") == "local":
            yield bytes.fromhex(mac.replace(":", ""))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
