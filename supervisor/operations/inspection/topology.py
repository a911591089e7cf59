"""The node as a tree: NICs, fabric sessions, VRFs, VNIs, and each VNI's host and remote VTEPs. Pure.

    status, desired state -> Place (the root) -> lines of text, a Graphviz document, or JSON

A fabric session is below its NIC where that is known: an unnumbered neighbour, or a node with one NIC. The text
marks what is down, so that it is found without colour.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from config.desired import DesiredState
from config.outcomes import SessionHealth, VniHealth
from config.status import Status
from config.syntax.printable import printable

from .details import DEFAULT_VRF, host_end_of, left_out, segment_end

_DOWN: Final = "DOWN"


@dataclass(frozen=True, slots=True)
class Place:
    """One node of the tree. ``down``: it is configured and does not work; ``state`` has the details."""

    name: str
    state: str = ""
    down: bool = False
    children: tuple[Place, ...] = field(default=())

    def __str__(self) -> str:
        state = f"{_DOWN} ({self.state})" if self.down and self.state else _DOWN if self.down else self.state
        return f"{self.name}: {state}" if state else self.name


@dataclass(frozen=True, slots=True)
class _Node:
    """The content of the tree, with its sessions grouped."""

    status: Status
    desired: DesiredState | None
    fabric: list[SessionHealth]
    hosts: dict[str, list[SessionHealth]]


def topology(status: Status, desired: DesiredState | None) -> Place:
    """Return the tree; ``desired`` only adds addresses and bridges to what the status has."""
    hosts = defaultdict[str, list[SessionHealth]](list)
    for session in status.sessions:
        if session.role == "host":
            hosts[session.vrf].append(session)
    node = _Node(status, desired, [one for one in status.sessions if one.role != "host"], hosts)
    underlay = status.underlay
    words = [status.node or "this node"]
    if underlay:
        words += [f"AS {underlay.asn}", f"router ID {underlay.router_id}"]
        words += [f"VTEP {vtep}" for vtep in underlay.vteps]
    children = (*_fabric(node), *_vrfs(node), *_passthrough(node), *_left_out(status))
    return Place(", ".join(words), children=children)


def lines(root: Place) -> Iterator[tuple[str, Place]]:
    """Yield each place, in reading order, with the branch that leads to it."""
    yield "", root
    yield from _branches(root, "")


def to_dot(root: Place) -> str:
    """Return the tree as a document for Graphviz; what is down is red."""
    head = ("digraph openperouter {", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];')
    return "\n".join([*head, *_dot(root, None, count()), "}"])


def to_document(place: Place) -> dict[str, Any]:
    """Return the tree for JSON."""
    children = [to_document(child) for child in place.children]
    return {"name": place.name, "state": place.state, "down": place.down, "children": children}


def _branches(place: Place, indent: str) -> Iterator[tuple[str, Place]]:
    for position, child in enumerate(place.children, 1):
        is_last = position == len(place.children)
        yield indent + ("└─ " if is_last else "├─ "), child
        yield from _branches(child, indent + ("   " if is_last else "│  "))


def _dot(place: Place, parent: int | None, numbers: Iterator[int]) -> Iterator[str]:
    number = next(numbers)
    red = ", color=red, fontcolor=red" if place.down else ""
    yield f"  n{number} [label={_quoted(str(place))}{red}];"
    if parent is not None:
        yield f"  n{parent} -> n{number};"
    for child in place.children:
        yield from _dot(child, number, numbers)


def _quoted(text: str) -> str:
    r"""Return a DOT string: in labels a backslash begins an escape (``\N``), also before what needs none."""
    return '"' + printable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _fabric(node: _Node) -> Iterator[Place]:
    """Yield the NICs with their sessions, then the sessions whose NIC is not known."""
    interfaces = node.status.underlay.interfaces if node.status.underlay else ()
    names = {interface.name for interface in interfaces}
    below = defaultdict[str, list[Place]](list)
    for session in node.fabric:
        sole = interfaces[0].name if len(interfaces) == 1 else ""
        below[session.peer if session.peer in names else sole].append(_session(session, f"fabric {session.peer}"))
    for one in interfaces:
        mtu = f", MTU {one.mtu}" if one.mtu else ""
        # The detail of one that is up is of no interest.
        state = "" if one.up else one.detail or ("" if one.present else "missing")
        yield Place(f"NIC {one.name}{mtu}", state, not one.up, tuple(below[one.name]))
    yield from below[""]


def _vrfs(node: _Node) -> Iterator[Place]:
    vrfs: dict[str, list[VniHealth]] = {vrf: [] for vrf in node.hosts if vrf != DEFAULT_VRF}
    for vni in node.status.vnis:
        vrfs.setdefault(vni.vrf, []).append(vni)
    for vrf, vnis in sorted(vrfs.items()):
        ordered = sorted(vnis, key=lambda one: (one.type != "L3", one.vni))
        name = f"VRF {vrf}" if vrf else "segments without a VRF"
        # Those of raw snippets, and of an L3VNI that has gone.
        others = () if any(one.type == "L3" for one in vnis) else _host_sessions(node, vrf, None)
        yield Place(name, children=(*(_vni(one, node) for one in ordered), *others))


def _vni(vni: VniHealth, node: _Node) -> Place:
    children: list[Place] = []
    if vni.type == "L3":
        extent = f"{vni.routes} route{'' if vni.routes == 1 else 's'}"
        children += _host_sessions(node, vni.vrf, vni)
    else:
        extent = f"{vni.remote_vteps} remote VTEP{'' if vni.remote_vteps == 1 else 's'}"
        end = segment_end(vni, node.desired)
        if end:
            gateways = f", gateways {end.router}" if end.router else ""
            bridge = f", a port of {end.bridge}" if end.bridge else ""
            children.append(Place(f"host {end.device}{bridge}{gateways}"))
        children.append(Place(extent))
    return Place(
        f"{vni.resource}, VNI {vni.vni}" + (f", {extent}" if vni.type == "L3" else ""),
        "" if vni.ok else vni.detail,
        not vni.ok,
        tuple(children),
    )


def _host_sessions(node: _Node, vrf: str, vni: VniHealth | None) -> Iterator[Place]:
    for session in node.hosts.get(vrf, ()):
        end = host_end_of(session, vni, node.desired)
        where = f" on {end.device}" if end else ""
        yield _session(session, f"host {end.host if end and end.host else session.peer}{where}")


def _passthrough(node: _Node) -> Iterator[Place]:
    sessions = tuple(_host_sessions(node, DEFAULT_VRF, None))
    if sessions:
        yield Place("BGP passthrough", children=sessions)


def _session(session: SessionHealth, name: str) -> Place:
    named = f"{name}, AS {session.remote_as}" if session.remote_as else name
    state = "listen range" if session.is_range else session.state
    state += f", {session.detail}" if session.detail else ""
    return Place(named, state, not (session.up or session.is_range))


def _left_out(status: Status) -> Iterator[Place]:
    for resource, problem in left_out(status):
        field_name = f"{problem.field}: " if problem.field else ""
        yield Place(str(resource), f"not in force: {field_name}{problem.message}", down=True)
