"""One session, VNI or route as text: a title, what is known, each with its name, and what has changed of it.

What is not known is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from supervisor.operations.inspection.details import HostEnd, SessionDetails, VniDetails
from supervisor.operations.inspection.history import History, PastEvent
from supervisor.operations.inspection.routes import BgpPath, FoundRoute, ZebraHop, ZebraRoute

from ...terminal import Cell, Painter, Style, duration, moment
from .status_page import evpn_routes, family_name

#: The name of a value, and the value.
Row = tuple[str, Cell]


def session_page(details: SessionDetails, painter: Painter, history: History | None = None) -> str:
    """Return the page of one session; ``history`` is None if it is not known."""
    session = details.session
    side = "host" if session.role == "host" else "fabric"
    rows = chain(_session(details), _history(history, "session"))
    return _page(f"session {session.peer} in VRF {session.vrf}, with the {side}", rows, painter)


def vni_page(details: VniDetails, painter: Painter, history: History | None = None) -> str:
    """Return the page of one VNI; ``history`` is None if it is not known."""
    return _page(str(details.resource), chain(_vni(details), _history(history, "VNI")), painter)


def route_page(route: FoundRoute, painter: Painter) -> str:
    """Return the page of one prefix in one VRF, or of an EVPN route that is in none."""
    if route.not_imported:
        return _page(f"EVPN route {route.prefix}, not imported", _evpn_route(route), painter)
    vni = f", VNI {route.vni}" if route.vni else ""
    return _page(f"route {route.prefix} in VRF {route.vrf}{vni}", _route(route), painter)


def _page(title: str, rows: Iterator[Row], painter: Painter) -> str:
    kept = [(name, cell) for name, cell in rows if cell[0]]
    width = max(len(name) for name, _ in kept)
    lines = (f"  {painter.paint(name.ljust(width), 'dim')}  {painter.paint(*cell)}" for name, cell in kept)
    return "\n".join([painter.paint(title, "bold"), *lines])


def _session(details: SessionDetails) -> Iterator[Row]:
    session = details.session
    yield "state", session_state(details)
    yield "peer's AS", (str(session.remote_as or ""), "plain")
    yield "flaps", ("" if session.is_range else f"{session.flaps} since bgpd's start", "plain")
    prefixes = ", ".join(f"{family_name(name)} {count}" for name, count in session.prefixes_received.items())
    yield "prefixes", (prefixes if session.up else "", "plain")
    yield "BFD", (session.bfd, "good" if session.bfd == "up" else "bad")
    yield from _host_end(details.host_end)
    yield "configured in", (", ".join(filter(None, (details.owner, details.origin))), "plain")
    for problem in details.problems:
        yield "problem", (problem, "bad")


def session_state(details: SessionDetails) -> Cell:
    """Return a session's state in words, with how long it has been up."""
    session = details.session
    if session.is_range:
        return "listen range", "plain"
    if session.up:
        return f"{session.state} for {duration(session.uptime_seconds)}", "good"
    return f"DOWN ({session.state})", "bad"


def _vni(details: VniDetails) -> Iterator[Row]:
    vni = details.vni
    if vni is None:
        yield "state", ("not in force", "bad")
    else:
        yield "VNI", (str(vni.vni), "plain")
        yield "VRF", (vni.vrf or "none", "plain")
        style: Style = "good" if vni.ok else "bad"
        yield "state", ("ok" if vni.ok else "DOWN", style)
        yield "routes", (str(vni.routes) if vni.type == "L3" else "", "plain")
        yield "remote VTEPs", (str(vni.remote_vteps) if vni.type == "L2" else "", "plain")
        yield "EVPN in", (evpn_routes(vni.evpn_received), "plain")
        yield "EVPN out", (evpn_routes(vni.evpn_advertised), "plain")
    port = f", port {details.vxlan_port}" if details.vxlan_port else ""
    yield "own VTEP", (f"{details.vtep}{port}" if details.vtep else "", "plain")
    yield from _host_end(details.host_end)
    for one in details.sessions:
        text, style = session_state(one)
        yield "host session", (f"{one.session.peer}: {text}", style)
        yield from _host_end(one.host_end)
    yield "configured in", (details.origin, "plain")
    for problem in details.problems:
        yield "problem", (problem, "bad")


def _history(history: History | None, topic: str) -> Iterator[Row]:
    """Yield the newest fault, which may be over, and the newest changes; those of ``topic`` without their subject."""
    if history is None:
        return

    def line(event: PastEvent) -> str:
        return f"{moment(event.at)} {event.message if event.topic == topic else event.text}"

    yield "last error", (line(history.last_error) if history.last_error else "", "warn")
    yield "history", (f"{history.older} older changes (openperouter events)" if history.older else "", "dim")
    for event in history.changes:
        yield "history", (line(event), "warn" if event.is_warning else "plain")


def _route(route: FoundRoute) -> Iterator[Row]:
    endpoints = {path.next_hop for path in route.paths if path.rd}
    for one in route.zebra:
        yield "zebra", _zebra_state(one)
        for hop in one.hops:
            yield "next hop", _hop(hop, one, endpoints)
    if not route.zebra:
        yield "zebra", ("has no route to it", "bad")
    for path in route.paths:
        yield "BGP path", _path(path)


def _evpn_route(route: FoundRoute) -> Iterator[Row]:
    yield "why", (route.not_imported, "bad")
    for path in route.paths:
        yield "BGP path", (_path(path)[0], "plain")


def _zebra_state(route: ZebraRoute) -> Cell:
    source = f"{route.protocol}, distance {route.distance}, metric {route.metric}, for {route.uptime}"
    if not route.selected:
        return f"{source}: not selected, another route is better", "dim"
    if not route.installed:
        return f"{source}: selected, {'refused by the kernel' if route.failed else 'not installed'}", "bad"
    return f"{source}: selected and installed", "good"


def _hop(hop: ZebraHop, route: ZebraRoute, endpoints: set[str]) -> Cell:
    if hop.unreachable:
        return "none: packets are rejected", "plain"
    address = f"tunnel endpoint {hop.address}" if hop.address in endpoints else hop.address or "directly connected"
    text = address + (f" on {hop.device}" if hop.device else "") + (f" in VRF {hop.vrf}" if hop.vrf else "")
    if route.installed and not hop.in_kernel:
        # The kernel has a next hop that two sessions bring once, and zebra may name the wrong one (FRR #21709).
        return f"{text}: not in the kernel", "dim" if any(one.in_kernel for one in route.hops) else "bad"
    return text, "plain"


def _path(path: BgpPath) -> Cell:
    origin = f"from {path.peer}, AS path {path.as_path or 'empty'}" if path.peer else "the router's own"
    if path.rd:
        origin += f", tunnel endpoint {path.next_hop}, VNI {path.vni or 'unknown'} of EVPN route {path.rd}"
    elif path.peer:
        origin += f", next hop {path.next_hop}"
    if not path.valid:
        why = "the next hop is not reachable" if not path.reachable else "not valid"
        return f"{origin}: not used, {why}", "bad"
    if not path.best:
        return f"{origin}: not used, another path is better", "dim"
    return f"{origin}: the best" + (f" ({path.reason})" if path.reason else ""), "good"


def _host_end(end: HostEnd | None) -> Iterator[Row]:
    if end is None:
        return
    bridge = f", a port of {end.bridge}" if end.bridge else ""
    yield "host's end", (f"{end.device}{bridge}" + (f", {end.host}" if end.host else ""), "plain")
    autonomous = f", AS {end.router_as}" if end.router_as else ""
    # A segment has gateways there, and no session.
    yield ("router's end" if end.host else "gateways"), (f"{end.router}{autonomous}" if end.router else "", "plain")
