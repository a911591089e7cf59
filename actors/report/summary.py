"""The summary, one line on what the router is doing, for ``systemctl status`` and ``openperouter status``."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from config.problems import errors
from config.status import Status

#: systemd takes more, but a longer line wraps more than twice in a terminal.
LONGEST: Final = 240


def summarize(status: Status, configs_dir: str, *, health: str) -> Status:
    """Return the status with its summary. ``health`` is the summary of a health report on this very generation."""
    # A file's name need not be UTF-8, but systemd's protocol is.
    text = _line(status, configs_dir, health).encode("utf-8", "replace").decode("utf-8")
    line = " ".join(text.split())
    return replace(status, summary=line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…")


def _line(status: Status, configs_dir: str, health: str) -> str:
    match status.phase:
        case "stopping":
            return "stopping; forwarding continues"
        case "degraded":
            return f"degraded: {first_reason(status)}; {_doing(status, health)}"
        case "running" if status.ready and is_empty(status):
            return f"no configuration in {configs_dir}: idle"
        case "running" if status.ready:
            return f"ready: {_counts(status)}"
        case phase:
            return f"{phase}: {_doing(status, health)}"


def is_empty(status: Status) -> bool:
    """Whether nothing is configured at all."""
    return status.underlay is None and not status.vnis and not status.sessions


def first_reason(status: Status) -> str:
    """Return the first reason for being degraded, and how many more there are."""
    reasons = [
        f"{f'{one.kind} {one.name}' if one.kind else one.origin}: {one.message}" for one in errors(status.problems)
    ]
    reasons += [f"{one.resource}: {one.message}" for one in status.failures]
    reasons += status.notes
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{reasons[0]}{more}" if reasons else "no reason known"


def _doing(status: Status, health: str) -> str:
    """Return how far the newest configuration has come."""
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
    sessions = [session for session in status.sessions if not session.is_range]
    up = sum(session.up for session in sessions)
    down = f" ({len(sessions) - up} down)" if up < len(sessions) else ""
    working = sum(vni.ok for vni in status.vnis)
    of_all = f" of {len(status.vnis)}" if working < len(status.vnis) else ""
    vnis = f"{working}{of_all} {'VNI' if len(status.vnis) == 1 else 'VNIs'}"
    return f"{up} {'session' if up == 1 else 'sessions'} up{down}, {vnis}, generation {status.generations.desired}"
