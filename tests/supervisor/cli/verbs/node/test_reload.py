"""``openperouter reload``: exit codes and reasons that a script can rely on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.cli import main
from tests.supervisor.cli.examples import answering

DONE: dict[str, Any] = {"event": "done", "ok": True, "reason": "", "problems": [], "summary": "ready: all of it"}


def reload(settings: Path, *options: str) -> int:
    return main(["--settings", str(settings), "reload", *options])


def test_a_reload_that_is_verified_succeeds_and_shows_its_progress(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: list[dict[str, Any]] = [
        {"event": "requested", "reload_id": 1},
        {"event": "progress", "summary": "reloading: FRR"},
        DONE,
    ]
    with answering(settings.parent / "run", answers):
        assert reload(settings) == 0
    assert capsys.readouterr().out.splitlines() == ["reloading: FRR", "ready: all of it"]


def test_a_reload_that_leaves_something_out_fails_and_names_it(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = {**DONE, "ok": False, "reason": "1 problem(s) remain", "problems": ["a.yaml:3:1: error: bad"]}
    with answering(settings.parent / "run", [done]):
        assert reload(settings) == 1
    shown = capsys.readouterr()
    assert "reload: 1 problem(s) remain" in shown.err
    assert "a.yaml:3:1: error: bad" in shown.out


def test_an_outcome_that_comes_too_late_has_its_own_code(settings: Path) -> None:
    with answering(settings.parent / "run", [{**DONE, "ok": False, "reason": "not verified", "timeout": True}]):
        assert reload(settings, "--timeout", "1") == 4


@pytest.mark.parametrize(
    ("option", "seconds", "forget_api"), [("--timeout=7", 7.0, False), ("--forget-api", 60.0, True)]
)
def test_the_options_are_passed_on(settings: Path, option: str, seconds: float, forget_api: bool) -> None:
    requests: list[Any] = []
    with answering(settings.parent / "run", [DONE], requests):
        reload(settings, option)
    assert requests == [{"verb": "reload", "seconds": seconds, "forget_api": forget_api}]


@pytest.mark.parametrize(
    ("answers", "code", "message"),
    [
        ([{"error": "seconds must be a number"}], 64, "seconds must be a number"),
        ([{"event": "requested", "reload_id": 1}], 3, "the daemon ended before the reload was complete"),
    ],
)
def test_a_refused_or_unfinished_reload_is_an_error(
    settings: Path, capsys: pytest.CaptureFixture[str], answers: list[dict[str, Any]], code: int, message: str
) -> None:
    with answering(settings.parent / "run", answers):
        assert reload(settings) == code
    assert message in capsys.readouterr().err


def test_without_a_daemon_it_fails_at_once(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reload(settings) == 3
    assert capsys.readouterr().err == "openperouter: the daemon is not running\n"
