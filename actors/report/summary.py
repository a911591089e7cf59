"""The one line that says what the router is doing: ``systemctl status`` and ``openperouter status`` show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from config.status import Status

#: systemd takes more, but a line that a terminal wraps thrice is none.
LONGEST: Final = 240


def summarize(status: Status, configs_dir: str, *, health: str) -> Status:
    """Return the status with its summary. ``health`` is what a report on this very generation says of itself."""
    line = " ".join(_line(status, configs_dir, health).split())
    return replace(status, summary=line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…")


def _line(status: Status, configs_dir: str, health: str) -> str:
    match status.phase:
        case "stopping":
            return "stopping; forwarding goes on"
        case "degraded":
            return f"degraded: {complaint(status)}; {_doing(status, health)}"
        case "running" if status.ready and is_empty(status):
            return f"no configuration in {configs_dir}: idle"
        case "running" if status.ready:
            return f"ready: {_counts(status)}"
        case phase:
            return f"{phase}: {_doing(status, health)}"


def is_empty(status: Status) -> bool:
    """Whether nothing is configured at all."""
    return status.underlay is None and not status.vnis and not status.sessions


def complaint(status: Status) -> str:
    """Return the first reason for being degraded, and how many more there are."""
    errors = [problem for problem in status.problems if problem.severity == "error"]
    reasons = [_problem(one.kind, one.name, one.message, one.origin) for one in errors]
    reasons += [f"{one.kind} {one.name}: {one.message}" for one in status.failures]
    reasons += status.notes
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{reasons[0]}{more}" if reasons else "no reason known"


def _problem(kind: str, name: str, message: str, origin: str) -> str:
    return f"{kind} {name}: {message}" if kind else f"{origin}: {message}"


def _doing(status: Status, health: str) -> str:
    """Say how far the newest configuration has come."""
    reached, wanted = status.generations, status.generations.desired
    if status.ready:
        return f"everything else in force: {_counts(status)}"
    if status.notes and status.phase != "degraded":
        return f"waiting: {status.notes[0]}"
    if not wanted:
        return "resolving the configuration" if status.node else "reading the configuration"
    if reached.frr < wanted:
        return f"applying generation {wanted} to FRR"
    if reached.kernel < wanted:
        return f"applying generation {wanted} to the kernel"
    return health or f"verifying generation {wanted}"


def _counts(status: Status) -> str:
    sessions = [session for session in status.sessions if session.state != "Listening"]
    up = sum(session.up for session in sessions)
    down = f" ({len(sessions) - up} down)" if up < len(sessions) else ""
    working = sum(vni.ok for vni in status.vnis)
    of_all = f" of {len(status.vnis)}" if working < len(status.vnis) else ""
    vnis = f"{working}{of_all} {'VNI' if len(status.vnis) == 1 else 'VNIs'}"
    return f"{up} {'session' if up == 1 else 'sessions'} up{down}, {vnis}, generation {status.generations.desired}"
