"""Which BGP sessions are configured, and the state of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address

from config.desired import DesiredSession, DesiredState, EndpointKind, FabricNeighbor
from config.outcomes import SessionHealth
from config.problems import Origin, ResourceId

from .frr_json import DEFAULT_VRF, Observation, Peer

ESTABLISHED = "Established"
#: Our state of a listen range that bgpd serves: it has no session of its own.
LISTENING = "Listening"
#: Our state of a session that is configured and that bgpd does not have.
MISSING = "Missing"
#: Our state of every session while bgpd does not run.
UNKNOWN = "Unknown"
#: Why a session that uses BFD does not come up: FRR 10.3 keeps it in Idle as long as BFD is down.
NO_BFD = "the peer sends no BFD packets: configure BFD on the peer, or remove bfd from this neighbour"


@dataclass(frozen=True, slots=True)
class ExpectedSession:
    """One configured session."""

    vrf: str
    peer: str
    role: str
    owner: ResourceId
    origin: Origin
    listens: bool = False


def sessions_of(state: DesiredState, refused: frozenset[ResourceId], seen: Observation) -> tuple[SessionHealth, ...]:
    """Return the configured sessions, then the others that bgpd has: dynamic ones and those of raw snippets."""
    expected = {(one.vrf, one.peer): _session(one, seen) for one in expected_of(state, refused)}
    others = (
        _session_health(vrf, peer, "fabric" if vrf == DEFAULT_VRF else "host", seen.peers[vrf, peer], seen)
        for vrf, peer in sorted(seen.peers.keys() - expected.keys())
    )
    return (*expected.values(), *others)


def expected_of(state: DesiredState, refused: frozenset[ResourceId]) -> Iterator[ExpectedSession]:
    """Yield the sessions of everything that has not been refused."""
    underlay = state.underlay
    if underlay is not None:
        for neighbor in underlay.neighbors:
            peer, listens = _peer_name(neighbor), neighbor.endpoint_kind is EndpointKind.LISTEN_RANGE
            yield ExpectedSession(DEFAULT_VRF, peer, "fabric", underlay.resource, underlay.origin, listens)
    for vni in state.l3vnis:
        if vni.session is not None and vni.resource not in refused:
            yield from _host_sessions(vni.vrf, vni.session, vni.resource, vni.origin)
    passthrough = state.passthrough
    if passthrough is not None and passthrough.resource not in refused:
        yield from _host_sessions(DEFAULT_VRF, passthrough.session, passthrough.resource, passthrough.origin)


def _host_sessions(vrf: str, session: DesiredSession, owner: ResourceId, origin: Origin) -> Iterator[ExpectedSession]:
    for addresses in session.addresses:
        yield ExpectedSession(vrf, str(addresses.host.ip), "host", owner, origin)


def _peer_name(neighbor: FabricNeighbor) -> str:
    """Return the neighbour as FRR spells it: addresses in their shortest form."""
    if neighbor.endpoint_kind is EndpointKind.ADDRESS:
        return str(ip_address(neighbor.endpoint))
    return neighbor.endpoint


def _session(expected: ExpectedSession, seen: Observation) -> SessionHealth:
    absent = Peer(state=MISSING if "bgpd" in seen.daemons else UNKNOWN)
    if expected.listens:
        facts = Peer(state=LISTENING) if expected.peer in seen.listen_ranges else absent
    else:
        facts = seen.peers.get((expected.vrf, expected.peer), absent)
    return _session_health(expected.vrf, expected.peer, expected.role, facts, seen)


def _session_health(vrf: str, peer: str, role: str, facts: Peer, seen: Observation) -> SessionHealth:
    return SessionHealth(
        peer=peer,
        vrf=vrf,
        remote_as=facts.remote_as,
        state=facts.state,
        uptime_seconds=facts.uptime_seconds,
        prefixes_received=facts.prefixes,
        role=role,
        bfd=seen.bfd.get((vrf, peer), ""),
        detail=NO_BFD if (vrf, peer) in seen.bfd_unanswered else "",
        flaps=facts.flaps,
    )


def described(session: SessionHealth) -> str:
    """Return a session in words, for messages."""
    return f"{session.role} session {session.peer} in VRF {session.vrf}"
