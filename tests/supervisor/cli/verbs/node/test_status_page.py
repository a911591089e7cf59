"""The status page, as a whole and at its edges."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from config.outcomes import SessionHealth
from config.status import ApiStatus, Status
from supervisor.cli.terminal import Painter
from supervisor.cli.verbs.node.status_page import render
from tests.supervisor.cli.examples import DEGRADED, READY

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.mark.parametrize(
    ("name", "status"), [("ready", READY), ("degraded", DEGRADED), ("starting", Status(started_at=1000.0, pid=42))]
)
def test_the_page_is_as_in_the_golden_file(name: str, status: Status) -> None:
    page = render(status, Painter(colour=False), now=4725.0)
    assert page + "\n" == (GOLDEN / f"{name}.txt").read_text()


def test_colour_adds_nothing_but_colour() -> None:
    plain = render(DEGRADED, Painter(colour=False), 4725.0)
    coloured = render(DEGRADED, Painter(colour=True), 4725.0)
    assert coloured != plain
    assert re.sub("\033\\[[0-9]+m|\033\\[0m", "", coloured) == plain


def test_good_is_green_and_bad_is_red() -> None:
    assert "\033[32mEstablished\033[0m" in render(READY, Painter(colour=True), 2000.0)
    assert "\033[31mdown: vni100 is down\033[0m" in render(DEGRADED, Painter(colour=True), 2000.0)


def test_a_ready_router_without_any_fabric_session_is_not_green() -> None:
    down = replace(READY, sessions=tuple(replace(session, state="Active") for session in READY.sessions))
    assert "\033[32m●" in render(READY, Painter(colour=True), 2000.0)
    assert "\033[33m●" in render(down, Painter(colour=True), 2000.0)


def test_control_characters_do_not_reach_the_terminal() -> None:
    hostile = SessionHealth("evil\033[2J\r\n", "red\x07", 0, "Idle")
    page = render(replace(READY, sessions=(hostile,)), Painter(colour=False), 2000.0)
    assert "\033" not in page
    assert "\x07" not in page
    assert "evil?[2J" in page


def test_every_line_of_a_table_lines_up() -> None:
    page = render(READY, Painter(colour=False), 4725.0).splitlines()
    head = next(line for line in page if "PEER" in line)
    rows = page[page.index(head) + 1 : page.index(head) + 4]
    assert {row.find("default") for row in (rows[0], rows[2])} == {head.find("VRF")}
    assert {row.find("fabric") for row in (rows[0], rows[2])} == {head.find("ROLE")}


@pytest.mark.parametrize(
    ("api", "line"),
    [
        (
            ApiStatus("reachable", "//a", source="server", live=True, objects=1),
            "API: 1 object of //a, live",
        ),
        (ApiStatus("reachable", "https://a"), "API: https://a answers; its objects are not known yet"),
        (
            ApiStatus("reachable", "https://a", source="memory", objects=2, snapshot_age_seconds=50.0),
            "API: https://a answers; 2 objects, as of 1m ago",
        ),
        (
            ApiStatus("unreachable", "", "no route", 1820.0, "memory", objects=12, snapshot_age_seconds=240.0),
            "API: unreachable for 3m10s (no route); 12 objects, as of 4m10s ago",
        ),
        (ApiStatus("refused", "", "401", 1820.0), "API: credentials refused for 3m10s (401)"),
        (
            ApiStatus("unconfigured", "", "waiting for /var/lib/hostbridge/kubeconfig"),
            "API: no credentials yet (waiting for /var/lib/hostbridge/kubeconfig)",
        ),
        (ApiStatus("", source="memory", objects=3), "API: not probed yet; 3 objects, as of 10s ago"),
        (ApiStatus(), None),
    ],
)
def test_the_api_has_one_line_that_says_what_counts(api: ApiStatus, line: str | None) -> None:
    page = render(replace(READY, api=api), Painter(colour=False), now=2010.0).splitlines()
    assert [found for found in page if found.startswith("API:")] == ([line] if line else [])


def test_actors_that_work_are_listed_only_on_request() -> None:
    assert "netlink" not in render(READY, Painter(colour=False), 4725.0)
    assert "netlink  running  2" in render(READY, Painter(colour=False), 4725.0, everything=True)


def test_five_hundred_vnis_fit_on_a_screen_with_the_bad_ones_first() -> None:
    vnis = tuple(replace(READY.vnis[0], vni=number, ok=number not in (400, 450)) for number in range(1, 501))
    page = render(replace(READY, vnis=vnis), Painter(colour=False), 4725.0)
    assert len(page.splitlines()) < 50
    assert page.index(" 400 ") < page.index(" 450 ") < page.index("  1    red")
    assert "  and 485 more, none of them down (-v lists them)\n" in page
    assert " 500 " in render(replace(READY, vnis=vnis), Painter(colour=False), 4725.0, everything=True)


def test_too_many_problems_are_counted_errors_first() -> None:
    many = tuple(replace(problem, field=str(number)) for number in range(20) for problem in reversed(DEGRADED.problems))
    page = render(replace(DEGRADED, problems=many), Painter(colour=False), 4725.0)
    assert "warning:" not in page
    assert "  and 28 more (-v lists them)" in page
