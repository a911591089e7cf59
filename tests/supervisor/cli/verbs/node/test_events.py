"""``openperouter events``: history, following, a daemon that is restarted, and one that is not there."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli import main
from supervisor.operations import control_client
from tests.supervisor.cli.examples import answering


def head(instance: str, first: int = 1, last: int = 2) -> dict[str, Any]:
    return {"events": {"instance": instance, "first": first, "last": last}}


def event(number: int, message: str = "works", level: str = "info", subject: str = "L3VNI red") -> dict[str, Any]:
    return {"number": number, "at": 0, "topic": "VNI", "subject": subject, "message": message, "level": level}


def run(settings: Path, *options: str) -> int:
    return main(["events", "--settings", str(settings), *options])


def test_history_is_a_line_each(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = [head("a"), event(1), event(2, "a.yaml: error: L3VNI red: no")]
    with answering(settings.parent / "run", answers):
        assert run(settings) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.split(" ", 1)[1] == "VNI: L3VNI red: works"
    # A message that names its subject does not get it twice.
    assert second.split(" ", 1)[1] == "VNI: a.yaml: error: L3VNI red: no"


def test_json_is_an_object_a_line(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(settings.parent / "run", [head("a"), event(1), event(2)]):
        assert run(settings, "--json") == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [event(1), event(2)]


def test_without_a_daemon_it_says_so(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(settings) == 3
    assert run(settings, "--follow") == 3
    assert capsys.readouterr().err == "openperouter: the daemon is not running\n" * 2


@pytest.mark.parametrize("answer", [{"error": "permission denied"}, ["x"]])
def test_a_refusal_is_an_error(settings: Path, capsys: pytest.CaptureFixture[str], answer: Any) -> None:
    with answering(settings.parent / "run", [answer]):
        assert run(settings) == 4
    assert "the daemon refuses" in capsys.readouterr().err


def follow(
    settings: Path, monkeypatch: pytest.MonkeyPatch, *lives: list[dict[str, Any]]
) -> tuple[int, list[dict[str, Any]]]:
    """Follow one daemon after another, the next one coming while it waits; return the exit code and the requests."""
    requests: list[dict[str, Any]] = []
    directory, coming = settings.parent / "run", iter(lives[1:])
    with ExitStack() as served:
        served.enter_context(answering(directory, lives[0], requests))

        def pause() -> None:
            life = next(coming, None)
            (directory / "control.sock").unlink(missing_ok=True)
            if life is None:
                # It has waited long enough.
                monkeypatch.setattr("time.monotonic", lambda: 1e12)
            else:
                served.enter_context(answering(directory, life, requests))

        monkeypatch.setattr(control_client, "_pause", pause)
        return run(settings, "--follow"), requests


def test_following_survives_a_restart_of_the_daemon(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, requests = follow(settings, monkeypatch, [head("a"), event(1), event(2)], [head("b"), event(1, "again")])
    assert code == 3
    shown = capsys.readouterr()
    assert [line.rpartition(": ")[2] for line in shown.out.splitlines()] == ["works", "works", "again"]
    assert "waiting 60 s for it to come back" in shown.err
    assert "the daemon was restarted; what follows comes from the new process" in shown.err
    assert [(one["instance"], one["after"]) for one in requests] == [("", 0), ("a", 2)]


def test_following_the_same_daemon_again_says_nothing_of_a_restart(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    follow(settings, monkeypatch, [head("a"), event(1)], [head("a"), event(4)])
    said = capsys.readouterr().err
    assert "was restarted" not in said
    assert "2 events are missing" in said
