"""Turns the differences between two reports into log lines: one for each change of state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from config.outcomes import HealthReport, SessionHealth
from supervisor.logs import message_ids

from .repair import GIVEN_UP
from .sessions import ESTABLISHED


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line for the log."""

    level: Literal["info", "warning"]
    message: str
    fields: dict[str, object] = field(default_factory=dict)
    #: Message ID of the kind of event, if it has one.
    event: str | None = field(default=None, compare=False)


def changes(old: HealthReport | None, new: HealthReport, *, answered: bool) -> Iterator[LogLine]:
    """Yield a line for each change. ``answered`` False means that FRR did not answer: then only that is logged.

    Single sessions and VNIs are not logged for the first report, nor if they change with a daemon: the start of
    hundreds is one event.
    """
    yield from _verification(old, new)
    if not answered:
        return
    if old is not None:
        yield from _daemons(old, new)
        if not old.unanswered and all(old.daemons.get(name) and new.daemons.get(name) for name in ("bgpd", "zebra")):
            yield from _sessions(old, new)
            yield from _vnis(old, new)
        yield from _repairs(old, new)
    yield from _failures(old, new)


def _verification(old: HealthReport | None, new: HealthReport) -> Iterator[LogLine]:
    was = old is not None and old.verified
    fields: dict[str, object] = {"generation": new.generation}
    if new.verified and (old is None or not was or old.generation != new.generation):
        yield LogLine("info", new.summary, fields)
    elif was and not new.verified and old is not None and old.generation == new.generation:
        yield LogLine("warning", f"no longer as configured: {new.summary}", fields, message_ids.DRIFT)
    elif not new.verified and new.problems and (old is None or old.problems != new.problems):
        yield LogLine("warning", new.summary, fields)


def _daemons(old: HealthReport, new: HealthReport) -> Iterator[LogLine]:
    for name, runs in new.daemons.items():
        if runs and old.daemons.get(name) is False:
            yield LogLine("info", f"{name} is running", {"daemon": name}, message_ids.DAEMON_UP)
    for name, ran in old.daemons.items():
        if ran and not new.daemons.get(name, False):
            yield LogLine("warning", f"{name} is not running", {"daemon": name}, message_ids.DAEMON_DOWN)


def _sessions(old: HealthReport, new: HealthReport) -> Iterator[LogLine]:
    before = {(session.vrf, session.peer): session for session in old.sessions}
    for session in new.sessions:
        known = before.get((session.vrf, session.peer))
        was_up = known is not None and known.state == ESTABLISHED
        if session.state == ESTABLISHED and not was_up:
            yield LogLine("info", "BGP session up", _session_fields(session), message_ids.SESSION_UP)
        elif was_up and session.state != ESTABLISHED:
            yield LogLine("warning", "BGP session down", _session_fields(session), message_ids.SESSION_DOWN)
        if session.detail and not (known and known.detail):
            yield LogLine("warning", session.detail, _session_fields(session), message_ids.BFD_UNANSWERED)


def _session_fields(session: SessionHealth) -> dict[str, object]:
    return {"peer": session.peer, "vrf": session.vrf, "state": session.state, "remote_as": session.remote_as or None}


def _vnis(old: HealthReport, new: HealthReport) -> Iterator[LogLine]:
    before = {vni.resource: vni for vni in old.vnis}
    for vni in new.vnis:
        known = before.get(vni.resource)
        if known is not None and known.ok != vni.ok:
            fields: dict[str, object] = {"resource": str(vni.resource), "vni": vni.vni, "origin": str(vni.origin)}
            if vni.ok:
                yield LogLine("info", "VNI works", fields, message_ids.VNI_WORKS)
            elif old.generation == new.generation:
                yield LogLine("warning", f"VNI does not work: {vni.detail}", fields, message_ids.VNI_FAILS)


def _repairs(old: HealthReport, new: HealthReport) -> Iterator[LogLine]:
    details = {vni.resource: vni.detail for vni in old.vnis}
    for vni in new.vnis:
        fields: dict[str, object] = {"resource": str(vni.resource), "vni": vni.vni}
        if vni.type == "L3" and any(request.vni == vni.vni for request in new.bounce - old.bounce):
            message = f"FRR removes this VNI and adds it again, because it does not work: {vni.detail}"
            yield LogLine("warning", message, fields, message_ids.VNI_BOUNCED)
        if vni.detail.endswith(GIVEN_UP) and not details.get(vni.resource, "").endswith(GIVEN_UP):
            message = f"nothing more is tried until the configuration changes or FRR restarts: {vni.detail}"
            yield LogLine("warning", message, fields, message_ids.VNI_GIVEN_UP)


def _failures(old: HealthReport | None, new: HealthReport) -> Iterator[LogLine]:
    """Yield new failures, except those of VNIs that :func:`_vnis` reports."""
    known = {failure.resource for failure in old.failures} if old else set()
    worked = {vni.resource for vni in old.vnis if vni.ok} if old and old.generation == new.generation else set()
    for failure in new.failures:
        if failure.resource not in known | worked:
            fields = {"resource": str(failure.resource), "reason": failure.reason, "origin": str(failure.origin)}
            yield LogLine("warning", f"not working: {failure.message}", dict(fields))
