"""The status as a page: summary, problems with the place to fix them, underlay, API, sessions, VNIs, actors, FRR."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from config.outcomes import SessionHealth, VniHealth
from config.problems import Severity
from config.status import ActorStatus, ApiStatus, Status

from ...terminal import Cell, Painter, Style, duration

T = TypeVar("T")

#: Rows of a table, and problems, so that a page fits on a screen.
MOST_ROWS: Final = 15
_GOOD_STATES: Final = frozenset({"running", "finished"})
_PHASE_STYLE: dict[str, Style] = {
    "running": "good",
    "reloading": "warn",
    "starting": "warn",
    "degraded": "bad",
    "stopping": "warn",
}


def render(status: Status, painter: Painter, now: float, *, everything: bool = False) -> str:
    """Return the page; ``now`` in Unix seconds is for ages.

    Without ``everything`` long lists are cut, what is down first, and actors are listed only if one is in trouble.
    """
    return "\n".join(_lines(status, painter, now, everything=everything))


def _lines(status: Status, painter: Painter, now: float, *, everything: bool) -> Iterator[str]:
    paint = painter.paint
    index = "" if status.node_index is None else f", index {status.node_index}"
    age = duration(now - status.started_at)
    version = status.version or "(version unknown)"
    yield paint(f"openperouter {version} on {status.node or 'this node'}{index}, pid {status.pid}, up {age}", "dim")
    style = "warn" if status.phase == "running" and _isolated(status) else _PHASE_STYLE.get(status.phase, "warn")
    yield f"{paint('●', style)} {paint(status.summary, 'bold')}"
    most = len(status.sessions) + len(status.vnis) + len(status.problems) if everything else MOST_ROWS
    yield from _problems(status, painter, None if everything else MOST_ROWS)
    yield from _underlay(status, painter)
    yield from _api(status, painter, now)
    actors = [one for one in status.actors if everything or one.state not in _GOOD_STATES]
    sections: tuple[tuple[str, tuple[str, ...], Iterable[tuple[Cell, ...]], str], ...] = (
        (
            "Sessions",
            ("PEER", "VRF", "ROLE", "AS", "STATE", "UPTIME", "PREFIXES", "BFD"),
            *_cut(status.sessions, lambda one: one.up or one.is_range, _session, most),
        ),
        (
            "VNIs",
            ("NAME", "KIND", "VNI", "VRF", "STATE", "VTEPS", "ROUTES", "EVPN IN", "EVPN OUT", "CONFIGURED IN"),
            *_cut(status.vnis, lambda one: one.ok, _vni, most),
        ),
        ("Actors", ("NAME", "STATE", "RESTARTS", "DOING", "LAST ERROR"), map(_actor, actors), ""),
    )
    for title, head, rows, rest in sections:
        yield from _section(painter, title, painter.table(head, rows))
        if rest:
            yield f"  {painter.paint(rest, 'dim')}"
    yield from _section(painter, "FRR", [_daemons(status, painter)] if status.daemons else [])
    reached = status.generations
    yield ""
    yield paint(
        f"generation {reached.desired}: FRR {reached.frr}, kernel {reached.kernel}, verified {reached.verified}", "dim"
    )


def _cut(
    items: Sequence[T], good: Callable[[T], bool], row: Callable[[T], tuple[Cell, ...]], most: int
) -> tuple[list[tuple[Cell, ...]], str]:
    """Return the rows of a table and what is said of those that it leaves out: of too many, the bad ones come first."""
    if len(items) <= most:
        return [row(item) for item in items], ""
    ordered = sorted(items, key=good)
    down = sum(not good(item) for item in ordered[most:])
    rest = f"and {len(items) - most} more, {f'{down} of them down' if down else 'none of them down'} (-v lists them)"
    return [row(item) for item in ordered[:most]], rest


def _isolated(status: Status) -> bool:
    """Whether the router has sessions to the fabric and none of them is up: it is configured, but cannot forward."""
    fabric = [session.up for session in status.sessions if session.role == "fabric"]
    return bool(fabric) and not any(fabric)


def _section(painter: Painter, title: str, lines: list[str]) -> Iterator[str]:
    """Yield a titled block, or nothing when a table has no more than its head."""
    if len(lines) > 1 or (lines and title == "FRR"):
        yield ""
        yield painter.paint(title, "bold")
        yield from lines


def _underlay(status: Status, painter: Painter) -> Iterator[str]:
    underlay = status.underlay
    yield ""
    if underlay is None:
        known = status.generations.desired > 0
        yield painter.paint("Underlay: none configured" if known else "Underlay: not known yet", "warn")
        return
    vteps = ", ".join(underlay.vteps) or "none"
    yield painter.paint("Underlay", "bold") + painter.paint(
        f" AS {underlay.asn}, router id {underlay.router_id}, VTEP {vteps}  {underlay.origin}", "plain"
    )
    for interface in underlay.interfaces:
        state: Cell = ("up", "good") if interface.up else (interface.detail or "down", "bad")
        mtu = f"  mtu {interface.mtu}" if interface.mtu else ""
        yield f"  {painter.paint(interface.name, 'plain')}  {painter.paint(*state)}{mtu}"


def _api(status: Status, painter: Painter, now: float) -> Iterator[str]:
    """Yield one line on the API, none before the first probe."""
    api = status.api
    if not api.reach and api.source == "none":
        return
    style: Style = "plain" if api.live or (api.reach == "unconfigured" and api.source == "none") else "warn"
    yield f"{painter.paint('API:', 'bold')} {painter.paint('; '.join(_api_parts(api, now, status.updated_at)), style)}"


def _api_parts(api: ApiStatus, now: float, updated_at: float) -> Iterator[str]:
    objects = f"{api.objects} object{'' if api.objects == 1 else 's'}"
    if api.live:
        yield f"{objects} of {api.server}, live"
        return
    why = f" ({api.detail})" if api.detail else ""
    match api.reach:
        case "reachable":
            yield f"{api.server} answers"
        case "unconfigured":
            yield f"no credentials yet{why}"
        case "refused":
            yield f"credentials refused for {duration(now - api.since)}{why}"
        case "":
            yield "not probed yet"
        case _:
            yield f"unreachable for {duration(now - api.since)}{why}"
    if api.source != "none":
        yield f"{objects}, as of {duration(api.snapshot_age_seconds + now - updated_at)} ago"
    elif api.reach == "reachable":
        yield "its objects are not known yet"


def _session(session: SessionHealth) -> tuple[Cell, ...]:
    state: Style = "good" if session.up else "dim" if session.is_range else "bad"
    prefixes = " ".join(f"{family_name(name)} {count}" for name, count in session.prefixes_received.items())
    return (
        (session.peer, "plain"),
        (session.vrf, "plain"),
        (session.role, "plain"),
        (str(session.remote_as or ""), "plain"),
        (session.state, state),
        (duration(session.uptime_seconds) if session.up else "", "plain"),
        (prefixes if session.up else "", "plain"),
        (
            f"{session.bfd}: {session.detail}" if session.detail else session.bfd,
            "good" if session.bfd == "up" else "bad",
        ),
    )


def family_name(name: str) -> str:
    """Return the usual name of an address family, from FRR's."""
    return {"ipv4Unicast": "IPv4", "ipv6Unicast": "IPv6", "l2VpnEvpn": "EVPN"}.get(name, name)


def _vni(vni: VniHealth) -> tuple[Cell, ...]:
    return (
        (vni.resource.name, "plain"),
        (vni.resource.kind, "plain"),
        (str(vni.vni), "plain"),
        (vni.vrf, "plain"),
        ("ok", "good") if vni.ok else (vni.detail or "not ok", "bad"),
        (str(vni.remote_vteps) if vni.type == "L2" else "", "plain"),
        (str(vni.routes) if vni.type == "L3" else "", "plain"),
        (evpn_routes(vni.evpn_received), "plain"),
        (evpn_routes(vni.evpn_advertised), "plain"),
        (str(vni.origin), "dim"),
    )


def evpn_routes(counts: Mapping[str, int]) -> str:
    """Return numbers of EVPN routes by type; nothing while they are unknown."""
    return " ".join(f"type-{kind} {number}" for kind, number in sorted(counts.items()))


def _actor(actor: ActorStatus) -> tuple[Cell, ...]:
    good = actor.state in _GOOD_STATES
    return (
        (actor.name, "plain"),
        (actor.state, "good" if good else "warn" if actor.state in {"starting", "stopping"} else "bad"),
        (str(actor.restarts), "warn" if actor.restarts else "dim"),
        (actor.activity, "dim"),
        (actor.last_error, "bad"),
    )


def problem_lines(status: Status) -> list[Cell]:
    """Return what is wrong or worth knowing, a line each; what is bad comes first."""
    lines: list[Cell] = [(str(one), "bad" if one.severity is Severity.ERROR else "warn") for one in status.problems]
    lines += [(str(failure), "bad") for failure in status.failures]
    lines += [(note, "bad") for note in status.notes]
    lines += [(remark, "warn") for remark in status.remarks]
    return sorted(lines, key=lambda line: line[1] != "bad")


def _problems(status: Status, painter: Painter, most: int | None) -> Iterator[str]:
    lines = problem_lines(status)
    if lines:
        yield ""
        yield painter.paint("Problems", "bold")
    for text, style in lines[:most]:
        yield f"  {painter.paint(text, style)}"
    if most is not None and len(lines) > most:
        yield f"  {painter.paint(f'and {len(lines) - most} more (-v lists them)', 'dim')}"


def _daemons(status: Status, painter: Painter) -> str:
    words = (
        painter.paint(name, "good") if runs else painter.paint(f"{name} (not running)", "bad")
        for name, runs in status.daemons.items()
    )
    return "  " + " ".join(words)
