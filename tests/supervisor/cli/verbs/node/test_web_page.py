"""The page for browsers: what it has, read by an HTML parser; that nothing from outside becomes markup."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Final

import pytest

from config.outcomes import SessionHealth, VniHealth
from config.problems import Kind, Origin, Problem, ResourceId
from config.status import Status
from supervisor.cli.verbs.node.web.page import MOST_ROWS, POLICY, REFRESH_SECONDS, failure_page, status_page
from supervisor.operations.exit_codes import NOT_RUNNING
from supervisor.operations.inspection.current_status import CurrentStatus
from supervisor.operations.inspection.history import PastEvent
from tests.supervisor.cli.examples import DEGRADED, READY
from tests.supervisor.operations.inspection.example_node import STATUS

EVENTS: Final = (
    PastEvent(2, 1990.0, "session", "192.168.11.2", "Established", is_warning=False),
    PastEvent(1, 1980.0, "VNI", "L3VNI red", "L3VNI red does not work", is_warning=True),
)
VOID: Final = frozenset({"meta", "link", "br", "hr", "img", "input"})
HOSTILE: Final = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title></style></svg><svg onload=alert(1)>",
    "{{ 7*7 }} {% raw %}",
    "javascript:alert(1)",
    "--><!-- ]]>",
    "\x00\x1b[2J\u202egnp.exe\n",
)


class Parsed(HTMLParser):
    """Tags with their attributes, the text inside each id, and whether every tag is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._open: list[tuple[str, str | None]] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append((tag, dict(attrs).get("id")))

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost tag, which must be this one."""
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        """Note a text for everything that it is in."""
        for tag, name in self._open:
            for key in filter(None, (name, tag)):
                self.texts[key] = self.texts.get(key, "") + data


def page(status: Status = READY, **options: object) -> Parsed:
    return Parsed(status_page(CurrentStatus(status), EVENTS, 2000.0, **options))  # type: ignore[arg-type]


def test_it_has_the_sections_with_what_the_status_has() -> None:
    found = page()
    assert found.texts["summary"] == READY.summary
    assert "192.168.11.2default" in found.texts["sessions"]
    assert "Established1h2mIPv4 3, EVPN 8" in found.texts["sessions"]
    assert "L3VNI red100redok7openpe_vnis.yaml:2:5" in found.texts["vnis"]
    assert "fabric 192.168.11.2, AS 64512: Established" in found.texts["topology"]
    assert "192.168.11.2: Established" in found.texts["changes"]
    assert "bgpd" in found.texts["frr"]
    assert "problems" not in found.texts
    assert "banner" not in found.texts


def test_a_change_that_names_its_subject_has_it_once() -> None:
    assert "VNIL3VNI red does not work\n" in re.sub(r" UTC|\d{4}-[^V]*?(?=VNI)", "", page().texts["changes"])


def test_problems_are_first_errors_before_warnings() -> None:
    found = page(DEGRADED)
    order = [attributes.get("id") for _, attributes in found.tags if attributes.get("id")]
    assert order[:3] == ["summary", "problems", "topology"]
    problems = found.texts["problems"]
    for text in map(str, (*DEGRADED.problems, *DEGRADED.failures, *DEGRADED.notes, *DEGRADED.remarks)):
        assert text in problems
    assert problems.index("100 is taken") < problems.index("spelled vrf")
    assert problems.index("bgpd is not running") < problems.index("spelled vrf")


def test_without_the_daemon_it_says_so_above_the_last_status() -> None:
    found = Parsed(status_page(CurrentStatus(READY, "the daemon is not running", NOT_RUNNING), (), 2300.0))
    assert found.texts["banner"].startswith("the daemon is not running; this is its last status, 5m old.")
    assert "pid 42" not in found.texts["header"]
    assert found.texts["summary"] == READY.summary
    assert "none known" in found.texts["changes"]


def test_without_any_status_there_is_a_page_too() -> None:
    found = Parsed(failure_page("the daemon is not running, and left no status in /run/<b>"))
    assert found.texts["banner"].startswith("the daemon is not running, and left no status in /run/<b>. Forwarding")
    assert "b" not in [tag for tag, _ in found.tags]


def test_changes_that_are_missing_have_their_reason() -> None:
    found = Parsed(status_page(CurrentStatus(READY), (), 2000.0, missing="the daemon's changes cannot be read: x"))
    assert "the daemon's changes cannot be read: x" in found.texts["changes"]


def test_it_refreshes_itself_unless_it_is_held() -> None:
    refreshes = [attributes for _, attributes in page().tags if attributes.get("http-equiv") == "refresh"]
    assert [attributes["content"] for attributes in refreshes] == [str(REFRESH_SECONDS)]
    assert not [attributes for _, attributes in page(still=True).tags if "http-equiv" in attributes]


def test_it_loads_and_runs_nothing() -> None:
    found = page(STATUS)
    assert not {tag for tag, _ in found.tags} & {"script", "link", "img", "iframe", "form", "object", "embed", "use"}
    attributes = {name for _, given in found.tags for name in given}
    assert not [name for name in attributes if name.startswith("on") or name in {"src", "style", "xlink:href"}]
    assert {given["href"] for tag, given in found.tags if tag == "a"} == {"/?still"}
    assert "url(" not in found.texts["style"]
    assert "@import" not in found.texts["style"]


def test_the_policy_allows_this_style_sheet_and_nothing_else() -> None:
    digest = base64.b64encode(hashlib.sha256(page().texts["style"].encode()).digest()).decode()
    assert POLICY.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_comes_from_outside_stays_text(text: str) -> None:
    resource = ResourceId(Kind.L2VNI, text, text)
    hostile = replace(
        DEGRADED,
        node=text,
        version=text,
        summary=text,
        sessions=(SessionHealth(text, text, 1, text, role=text, bfd=text, detail=text),),
        vnis=(VniHealth(resource, 1, "L2", text, ok=False, detail=text, origin=Origin(text)),),
        problems=(Problem(text, Origin(text), text, resource=resource, in_force=text),),
        notes=(text,),
        remarks=(text,),
        daemons={text: False},
    )
    benign = replace(
        hostile,
        sessions=(SessionHealth("a", "a", 1, "a", role="a", bfd="a", detail="a"),),
        vnis=(VniHealth(ResourceId(Kind.L2VNI, "a", "a"), 1, "L2", "a", ok=False, detail="a"),),
        problems=(Problem("a", Origin("a"), "a", resource=ResourceId(Kind.L2VNI, "a", "a"), in_force="a"),),
        node="a",
        version="a",
        summary="a",
        notes=("a",),
        remarks=("a",),
        daemons={"a": False},
    )
    events = (PastEvent(1, 0.0, text, text, text, is_warning=True),)
    tame = (PastEvent(1, 0.0, "a", "a", "a", is_warning=True),)
    rendered = status_page(CurrentStatus(hostile, text, NOT_RUNNING), events, 2000.0, missing=text)
    found, wanted = (
        Parsed(rendered),
        Parsed(status_page(CurrentStatus(benign, "a", NOT_RUNNING), tame, 2000.0, missing="a")),
    )
    # The same tags with the same attributes, but for those that have a length.
    assert [(tag, sorted(given)) for tag, given in found.tags] == [(tag, sorted(given)) for tag, given in wanted.tags]
    shown = "".join(character if character.isprintable() else "?" for character in text)
    for section in ("title", "banner", "summary", "problems", "topology", "sessions", "vnis", "changes", "frr"):
        assert shown in found.texts[section], section
    assert not [character for character in rendered if not character.isprintable() and character != "\n"]


def test_a_table_without_end_is_cut_with_what_is_down_first() -> None:
    sessions = tuple(
        SessionHealth(f"p{number}", "default", 1, "Active" if number == MOST_ROWS + 50 else "Established")
        for number in range(MOST_ROWS + 100)
    )
    text = page(replace(READY, sessions=sessions)).texts["sessions"]
    assert "p1050default" in text
    assert "and 100 more, none of them in trouble" in text
