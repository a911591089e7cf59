"""``openperouter status``: from the daemon, from a dead one's state file, and its exit codes."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from config.status import Status
from supervisor.cli import main
from supervisor.operations import control_client
from supervisor.operations.inspection import current_status
from tests.supervisor.cli.examples import DEGRADED, READY, answering, status_answer

REPOSITORY = Path(__file__).parents[5]


def status(settings: Path, *options: str) -> int:
    return main(["--settings", str(settings), "status", *options])


@pytest.mark.parametrize(
    ("shown", "code"),
    [
        (READY, 0),
        (replace(READY, phase="reloading"), 0),
        (DEGRADED, 1),
        (replace(DEGRADED, ready=False), 1),
        (Status(phase="starting"), 2),
        (replace(READY, ready=False), 2),
    ],
)
def test_the_exit_code_follows_the_phase(
    settings: Path, capsys: pytest.CaptureFixture[str], shown: Status, code: int
) -> None:
    with answering(settings.parent / "run", [status_answer(shown)]):
        assert status(settings) == code
    assert shown.summary in capsys.readouterr().out


def test_json_is_the_whole_status_and_nothing_else(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(settings.parent / "run", [status_answer(READY)]):
        assert status(settings, "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(READY.to_json())


def test_a_daemon_that_never_ran_is_reported(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(settings) == 3
    assert "the daemon is not running, and left no status" in capsys.readouterr().err


def test_a_dead_daemons_last_status_is_shown_as_history(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (settings.parent / "run" / "state.json").write_text(READY.to_json())
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(settings.parent / "run" / "control.sock"))
    assert status(settings) == 3
    shown = capsys.readouterr()
    assert f"last known: {READY.summary}" in shown.out
    assert re.search(r"not running; what follows is its last status, \d+d.* old", shown.err)


def test_an_unreadable_state_file_is_reported(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (settings.parent / "run" / "state.json").write_text('{"schema_version": 99}')
    assert status(settings) == 3
    assert "cannot be read: schema version 99 is not supported" in capsys.readouterr().err


def test_a_daemon_that_hangs_differs_from_one_that_is_dead(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_client, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(current_status, "ANSWER_SECONDS", 0.05)
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(settings.parent / "run" / "control.sock"))
        hanging.listen(1)
        assert status(settings) == 4
    assert "the daemon does not answer" in capsys.readouterr().err


@pytest.mark.parametrize("answers", [[{"error": "permission denied"}], [], [{"status": {"schema_version": 7}}], [[]]])
def test_a_daemon_that_answers_nonsense_is_no_crash(
    settings: Path, capsys: pytest.CaptureFixture[str], answers: list[dict[str, object]]
) -> None:
    with answering(settings.parent / "run", answers):
        assert status(settings) == 4
    assert "left no status" in capsys.readouterr().err


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a daemon that has ended not come back."""
    monkeypatch.setattr(control_client, "RESTART_SECONDS", 0.0)


@pytest.mark.usefixtures("impatient")
def test_watch_prints_a_line_for_each_change_until_the_daemon_ends(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(settings.parent / "run", [status_answer(READY), status_answer(DEGRADED)]):
        assert status(settings, "--watch") == 3
    shown = capsys.readouterr()
    assert [line.split(" ", 1)[1] for line in shown.out.splitlines()] == [
        READY.summary,
        DEGRADED.summary,
    ]
    assert "the daemon has stopped" in shown.err


def test_watch_continues_with_a_daemon_that_was_restarted(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = settings.parent / "run"
    with ExitStack() as daemons:
        daemons.enter_context(answering(directory, [status_answer(READY)]))

        def restart() -> None:
            (directory / "control.sock").unlink()
            monkeypatch.setattr(control_client, "RESTART_SECONDS", 0.0)
            daemons.enter_context(answering(directory, [status_answer(DEGRADED)]))

        monkeypatch.setattr(control_client, "_pause", restart)
        assert status(settings, "--watch") == 3
    shown = capsys.readouterr()
    assert [line.split(" ", 1)[1] for line in shown.out.splitlines()] == [READY.summary, DEGRADED.summary]
    assert "the daemon has stopped; waiting 60 s for it to come back" in shown.err


def test_watch_of_a_daemon_that_does_not_run_ends_at_once(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(settings, "--watch") == 3
    assert capsys.readouterr().err == "openperouter: the daemon is not running\n"


@pytest.mark.usefixtures("impatient")
def test_a_terminal_without_colour_shows_the_page(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with answering(settings.parent / "run", [status_answer(READY)]):
        assert status(settings, "--watch") == 3
    assert terminal.getvalue().startswith("\033[H\033[2Jopenperouter 0.1.0 on n1")
    assert "\033[3" not in terminal.getvalue()


@pytest.mark.usefixtures("impatient")
def test_watch_as_json_is_one_document_a_line(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(settings.parent / "run", [status_answer(READY), status_answer(DEGRADED)]):
        status(settings, "--watch", "--json")
    phases = [json.loads(line)["phase"] for line in capsys.readouterr().out.splitlines()]
    assert phases == ["running", "degraded"]


def test_status_starts_without_the_daemons_libraries(tmp_path: Path) -> None:
    script = (
        "import sys; from supervisor.cli import main\n"
        f"code = main(['--settings', '{tmp_path}/none.yaml', 'status'])\n"
        "print(code, sorted({'trio', 'yaml', 'jinja2', 'pyroute2', 'httpx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split(" ", 1)[1] == "[]"
