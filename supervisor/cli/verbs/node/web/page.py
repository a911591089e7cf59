"""The page as HTML: from a status and recent changes to text. Pure.

Everything that is shown comes from outside: names from resources that any tenant may write, messages that quote them.
The template escapes every value (``autoescape``), control and direction characters are replaced before that, and the
policy of the page lets a browser load and run nothing, so that a mistake here alone would not let a script run.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from config.outcomes import SessionHealth, VniHealth
from config.syntax.printable import printable
from supervisor.operations.inspection.current_status import CurrentStatus
from supervisor.operations.inspection.drawing import to_svg
from supervisor.operations.inspection.history import PastEvent
from supervisor.operations.inspection.topology import topology

from ....terminal import duration
from ..status_page import family_name, problem_lines

T = TypeVar("T")

_TEMPLATES: Final = Path(__file__).with_name("templates")
_STYLE: Final = (_TEMPLATES / "style.css").read_text(encoding="utf-8")
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
#: What a browser may do with the page (Content Security Policy 3): show it, with this style sheet.
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
REFRESH_SECONDS: Final = 5
#: Rows of a table, and problems; more would be no page any more.
MOST_ROWS: Final = 1000


def status_page(
    seen: CurrentStatus, events: Sequence[PastEvent], now: float, *, still: bool = False, missing: str = ""
) -> str:
    """Return the page; ``events`` are newest first, ``missing`` is why there are none.

    ``still``: it does not refresh itself. ``now`` in Unix seconds is for ages.
    """
    status = seen.status
    sessions, more_sessions = _limited(status.sessions, lambda one: one.up or one.is_range)
    vnis, more_vnis = _limited(status.vnis, lambda one: one.ok)
    problems, more_problems = _limited(problem_lines(status), lambda one: one[1] != "bad")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            _basics(still=still, now=now),
            seen=seen,
            status=status,
            age=duration(now - status.updated_at),
            up=duration(now - status.started_at),
            topology=Markup(to_svg(topology(status, None))),  # noqa: S704 - made of XML elements, which escape their texts
            problems=problems,
            more_problems=more_problems,
            sessions=list(map(_session, sessions)),
            more_sessions=more_sessions,
            vnis=list(map(_vni, vnis)),
            more_vnis=more_vnis,
            events=events,
            missing=missing,
        )
    )


def failure_page(why: str, *, still: bool = False) -> str:
    """Return the page for when there is not even a last status."""
    return _environment().get_template("failure.html.j2").render(_basics(still=still, now=time.time()), why=why)


def _basics(*, still: bool, now: float) -> dict[str, Any]:
    return {"style": Markup(_STYLE), "refresh": None if still else REFRESH_SECONDS, "now": now}  # noqa: S704 - a file of ours


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["clock"] = _clock
    return environment


def _printable(value: object) -> object:
    """Return text without control and direction characters, which could make a name look like another one."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return printable(value)


def _clock(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(moment))


def _limited(items: Iterable[T], good: Callable[[T], bool]) -> tuple[list[T], str]:
    """Return as many as fit, those in trouble first if there are more, and how many are left out."""
    every = list(items)
    if len(every) <= MOST_ROWS:
        return every, ""
    every.sort(key=good)
    bad = sum(not good(item) for item in every[MOST_ROWS:])
    return every[:MOST_ROWS], f"and {len(every) - MOST_ROWS} more, {bad or 'none'} of them in trouble"


def _session(session: SessionHealth) -> dict[str, str]:
    prefixes = ", ".join(f"{family_name(name)} {count}" for name, count in session.prefixes_received.items())
    return {
        "peer": session.peer,
        "vrf": session.vrf,
        "role": session.role,
        "asn": str(session.remote_as or ""),
        "state": session.state,
        "style": "good" if session.up else "" if session.is_range else "bad",
        "uptime": duration(session.uptime_seconds) if session.up else "",
        "prefixes": prefixes if session.up else "",
        "flaps": str(session.flaps or ""),
        "detail": "; ".join(filter(None, (f"BFD {session.bfd}" if session.bfd else "", session.detail))),
    }


def _vni(vni: VniHealth) -> dict[str, str]:
    return {
        "name": str(vni.resource),
        "vni": str(vni.vni),
        "vrf": vni.vrf,
        "style": "good" if vni.ok else "bad",
        "state": "ok" if vni.ok else vni.detail or "not ok",
        "vteps": str(vni.remote_vteps) if vni.type == "L2" else "",
        "routes": str(vni.routes) if vni.type == "L3" else "",
        "origin": str(vni.origin),
    }
