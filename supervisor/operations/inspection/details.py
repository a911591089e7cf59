"""All about one BGP session or VNI: the daemon's status, with addresses from the desired state. Pure.

    status, desired state, NAME -> the sessions or VNIs of that name -> text by the command line, or JSON

The status has the facts; the desired state, which may be newer or missing, only adds addresses where it matches.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from ipaddress import ip_address, ip_network
from typing import Any, Final

from config.desired import DesiredL2VNI, DesiredL3VNI, DesiredSession, DesiredState, EndpointKind, ResourceFailure
from config.outcomes import SessionHealth, VniHealth
from config.problems import Kind, Problem, ResourceId, Severity
from config.status import Status

from ..exit_codes import USAGE, CommandError

#: FRR's name for the VRF of the underlay's instance.
DEFAULT_VRF: Final = "default"
PASSTHROUGH: Final = "passthrough"
#: Number of names that an error lists when none resembles the given one.
_MOST_NAMES: Final = 8
VNI_KINDS: Final = frozenset({Kind.L3VNI, Kind.L2VNI})


@dataclass(frozen=True, slots=True)
class HostEnd:
    """Where a session or segment meets the host.

    ``bridge`` is what the device is a port of; addresses have a prefix length. Of a session ``host`` and ``router`` are
    its ends, of a segment ``router`` are the gateways. Empty: not known, or none.
    """

    device: str
    bridge: str = ""
    host: str = ""
    router: str = ""
    router_as: int = 0


@dataclass(frozen=True, slots=True)
class SessionDetails:
    """One session, the resource that it is configured by (empty: none that is known) and what is wrong with that."""

    session: SessionHealth
    owner: str = ""
    origin: str = ""
    host_end: HostEnd | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VniDetails:
    """One VNI. ``vni`` is None for a resource that is not in force at all: ``problems`` show why."""

    resource: ResourceId
    vni: VniHealth | None
    origin: str
    vtep: str = ""
    vxlan_port: int = 0
    host_end: HostEnd | None = None
    sessions: tuple[SessionDetails, ...] = ()
    problems: tuple[str, ...] = ()


def sessions_named(status: Status, desired: DesiredState | None, name: str) -> list[SessionDetails]:
    """Return the sessions with a peer, or those of an L3VNI (its VNI, VRF or name) or ``passthrough`` with the host.

    Raises :class:`CommandError` if there is none.
    """
    owners = {vni.vrf: vni for vni in status.vnis if vni.type == "L3"}
    known: dict[str, None] = {}
    found = []
    for session in status.sessions:
        names = [session.peer, *_owner_names(session, owners)]
        known |= dict.fromkeys(names)
        if name in names:
            found.append(_session_details(session, status, desired))
    if not found:
        raise _unknown("session", name, known)
    return found


def vnis_named(
    status: Status, desired: DesiredState | None, name: str, kinds: frozenset[Kind] = VNI_KINDS
) -> list[VniDetails]:
    """Return the VNIs of some kinds with a number or name; those of several kinds or namespaces may share a name.

    Raises :class:`CommandError` if there is none.
    """
    known: dict[str, None] = {}
    found = []
    for vni in status.vnis:
        if vni.resource.kind not in kinds:
            continue
        names = _names(vni.resource)
        known |= dict.fromkeys(names)
        if name in (str(vni.vni), *names):
            found.append(_vni_details(vni, status, desired))
    for resource, problem in left_out(status):
        if resource.kind not in kinds:
            continue
        names = _names(resource)
        known |= dict.fromkeys(names)
        if name in names and _key(resource) not in {_key(one.resource) for one in found}:
            found.append(VniDetails(resource, None, str(problem.origin), problems=_problems(resource, status)))
    if not found:
        raise _unknown("VNI" if kinds == VNI_KINDS else " or ".join(sorted(map(str, kinds))), name, known)
    return found


def left_out(status: Status) -> Iterator[tuple[ResourceId, Problem]]:
    """Yield the VNIs that are not in force at all, each with every error that it has."""
    in_force = {_key(vni.resource) for vni in status.vnis}
    for problem in status.problems:
        if (
            problem.severity is Severity.ERROR
            and problem.resource is not None
            and problem.resource.kind in VNI_KINDS
            and _key(problem.resource) not in in_force
        ):
            yield problem.resource, problem


def host_sessions(status: Status, vni: VniHealth) -> list[SessionHealth]:
    """Return an L3VNI's sessions with the host."""
    wanted = vni.type == "L3" and vni.vrf != DEFAULT_VRF
    return [one for one in status.sessions if wanted and one.role == "host" and one.vrf == vni.vrf]


def session_document(details: SessionDetails, status: Status) -> dict[str, Any]:
    """Return a session as in the status's JSON, with what is known beyond that."""
    stored = json.loads(status.to_json())["sessions"][status.sessions.index(details.session)]
    return {
        **stored,
        "owner": details.owner,
        "origin": details.origin,
        "host_end": asdict(details.host_end) if details.host_end else None,
        "problems": list(details.problems),
    }


def vni_document(details: VniDetails, status: Status) -> dict[str, Any]:
    """Return a VNI as in the status's JSON, if it is in force, with everything else that is known."""
    stored = {} if details.vni is None else json.loads(status.to_json())["vnis"][status.vnis.index(details.vni)]
    return {
        "kind": str(details.resource.kind),
        "namespace": "" if details.resource.label else details.resource.namespace,
        "name": details.resource.label or details.resource.name,
        "in_force": details.vni is not None,
        **stored,
        "origin": details.origin,
        "vtep": details.vtep,
        "vxlan_port": details.vxlan_port,
        "host_end": asdict(details.host_end) if details.host_end else None,
        "sessions": [session_document(session, status) for session in details.sessions],
        "problems": list(details.problems),
    }


def host_end_of(session: SessionHealth, vni: VniHealth | None, desired: DesiredState | None) -> HostEnd | None:
    """Return the host's end of a session with the host; addresses only where the desired state has that session."""
    if session.role != "host" or (vni is None and session.vrf != DEFAULT_VRF):
        return None
    device = f"host-e-{vni.vni}" if vni else "pt-host"
    configured = _configured_session(session, desired)
    for ends in configured.addresses if configured else ():
        if str(ends.host.ip) == session.peer and configured:
            return HostEnd(device, host=str(ends.host), router=str(ends.router), router_as=configured.asn)
    return HostEnd(device)


def segment_end(vni: VniHealth, desired: DesiredState | None) -> HostEnd | None:
    """Return the host's end of an L2VNI; its bridge and gateways only where the desired state has that VNI."""
    if vni.type != "L2":
        return None
    configured = _configured_vni(vni, desired)
    if not isinstance(configured, DesiredL2VNI):
        return HostEnd(f"host-e-{vni.vni}")
    return HostEnd(f"host-e-{vni.vni}", configured.bridge or "", router=", ".join(map(str, configured.gateways)))


def _session_details(session: SessionHealth, status: Status, desired: DesiredState | None) -> SessionDetails:
    vni = next((one for one in status.vnis if session in host_sessions(status, one)), None)
    end = host_end_of(session, vni, desired)
    if vni is not None:
        owner, origin, problems = str(vni.resource), str(vni.origin), _problems(vni.resource, status, vni.detail)
    elif session.role == "host":
        owner, origin, problems = _passthrough(session, status, desired)
    else:
        owner, origin, problems = _underlay(session, status, desired)
    return SessionDetails(session, owner, origin, end, tuple(filter(None, (session.detail, *problems))))


def _passthrough(
    session: SessionHealth, status: Status, desired: DesiredState | None
) -> tuple[str, str, tuple[str, ...]]:
    """Return the passthrough's name, origin and problems if the session is its own and it is known."""
    passthrough = desired.passthrough if desired else None
    if passthrough is None or session.vrf != DEFAULT_VRF:
        return "", "", ()
    return str(passthrough.resource), str(passthrough.origin), _problems(passthrough.resource, status)


def _underlay(session: SessionHealth, status: Status, desired: DesiredState | None) -> tuple[str, str, tuple[str, ...]]:
    """Return the underlay's name, origin and problems if the session is its own."""
    if status.underlay is None or not _is_of_the_underlay(session.peer, desired):
        return "", "", ()
    problems = (str(one) for one in _complaints(status) if one.resource and one.resource.kind is Kind.UNDERLAY)
    return f"{Kind.UNDERLAY} {status.underlay.name}", status.underlay.origin, tuple(dict.fromkeys(problems))


def _vni_details(vni: VniHealth, status: Status, desired: DesiredState | None) -> VniDetails:
    configured = _configured_vni(vni, desired)
    return VniDetails(
        resource=vni.resource,
        vni=vni,
        origin=str(vni.origin),
        vtep=str(configured.vtep) if configured else "",
        vxlan_port=configured.vxlan_port if configured else 0,
        host_end=segment_end(vni, desired),
        sessions=tuple(_session_details(session, status, desired) for session in host_sessions(status, vni)),
        problems=_problems(vni.resource, status, vni.detail),
    )


def _is_of_the_underlay(peer: str, desired: DesiredState | None) -> bool:
    """Whether a fabric session is a configured neighbour's or a listen range's, and not of a raw snippet."""
    if desired is None or desired.underlay is None:
        return True
    neighbors = desired.underlay.neighbors
    ranges = [one.endpoint for one in neighbors if one.endpoint_kind is EndpointKind.LISTEN_RANGE]
    if peer in [one.endpoint for one in neighbors]:
        return True
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    addresses = [one.endpoint for one in neighbors if one.endpoint_kind is EndpointKind.ADDRESS]
    return address in map(ip_address, addresses) or any(address in ip_network(one) for one in ranges)


def _configured_session(session: SessionHealth, desired: DesiredState | None) -> DesiredSession | None:
    if desired is None:
        return None
    if session.vrf == DEFAULT_VRF:
        return desired.passthrough.session if desired.passthrough else None
    return next((one.session for one in desired.l3vnis if one.vrf == session.vrf), None)


def _configured_vni(vni: VniHealth, desired: DesiredState | None) -> DesiredL3VNI | DesiredL2VNI | None:
    """Return the configured VNI of a status's VNI. Number and kind must match: another one may have the name now."""
    if desired is None:
        return None
    configured: tuple[DesiredL3VNI | DesiredL2VNI, ...] = (*desired.l3vnis, *desired.l2vnis)
    return next((one for one in configured if one.vni == vni.vni and one.resource.kind is vni.resource.kind), None)


def _owner_names(session: SessionHealth, owners: dict[str, VniHealth]) -> list[str]:
    if session.role != "host":
        return []
    if session.vrf == DEFAULT_VRF:
        return [PASSTHROUGH]
    owner = owners.get(session.vrf)
    return [session.vrf, *([str(owner.vni), *_names(owner.resource)] if owner else [])]


def _names(resource: ResourceId) -> list[str]:
    """Return what a user may call a resource: an object's name, with its namespace or without."""
    return list(dict.fromkeys((resource.display_name, resource.label or resource.name)))


def _key(resource: ResourceId) -> tuple[Kind, str]:
    """Return what identifies a resource in a status that was read from JSON, where a file's has no namespace."""
    return resource.kind, resource.display_name


def _complaints(status: Status) -> Iterator[Problem | ResourceFailure]:
    yield from status.failures
    yield from status.problems


def _problems(resource: ResourceId, status: Status, detail: str = "") -> tuple[str, ...]:
    """Return what is wrong with a resource: ``detail``, then the failures that say more, then the problems."""
    found = [detail] if detail else []
    for one in _complaints(status):
        if one.resource and _key(one.resource) == _key(resource) and one.message != detail:
            found.append(str(one))
    return tuple(dict.fromkeys(found))


def _unknown(what: str, name: str, known: Iterable[str]) -> CommandError:
    names = list(known)
    close = difflib.get_close_matches(name, names, 1)
    if close:
        return CommandError(f"there is no {what} {name}: did you mean {close[0]}?", USAGE)
    more = f" and {len(names) - _MOST_NAMES} more (see openperouter status -v)" if len(names) > _MOST_NAMES else ""
    return CommandError(f"there is no {what} {name}; known are {', '.join(names[:_MOST_NAMES]) or 'none'}{more}", USAGE)
