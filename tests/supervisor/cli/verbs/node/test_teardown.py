"""``openperouter teardown``: when it refuses, in which order it works, and its exit codes."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from config.settings import Settings
from supervisor.cli import main
from supervisor.operations import teardown
from supervisor.operations.teardown import Report
from supervisor.process import subprocesses
from supervisor.process.instance_lock import single_instance
from supervisor.process.subprocesses import CommandMissing, Completed


class Parts:
    """The three parts of the work, scripted; ``done`` is what was called, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.frr = ""
        self.kernel: tuple[str, ...] = ()
        self.namespace = ""
        monkeypatch.setattr(teardown, "clear_frr", self._clear_frr)
        monkeypatch.setattr(teardown, "clear_kernel", self._clear_kernel)
        monkeypatch.setattr(teardown, "remove_namespace", self._remove_namespace)

    async def _clear_frr(self, _settings: Settings, _report: Report) -> str:
        self.done.append("frr")
        return self.frr

    def _clear_kernel(self, _settings: Settings, _report: Report) -> tuple[str, ...]:
        self.done.append("kernel")
        return self.kernel

    def _remove_namespace(self, _settings: Settings, _report: Report) -> str:
        self.done.append("namespace")
        return self.namespace


def systemd_says(monkeypatch: pytest.MonkeyPatch, state: str | None) -> None:
    async def run_command(argv: tuple[str, ...], **_limits: object) -> Completed:
        if state is None:
            raise CommandMissing("cannot start systemctl")
        return Completed(argv, 0, f"{state}\n", "")

    monkeypatch.setattr(subprocesses, "run_command", run_command)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    """A root without systemd."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    systemd_says(monkeypatch, "inactive")
    return Parts(monkeypatch)


def run_teardown(settings: Path, *words: str) -> int:
    return main(["--settings", str(settings), "teardown", *words])


def test_frr_comes_first_and_the_last_status_is_removed(settings: Path, parts: Parts) -> None:
    state = settings.parent / "run" / "state.json"
    state.write_text("{}")
    assert run_teardown(settings, "--yes") == 0
    assert parts.done == ["frr", "kernel"]
    assert not state.exists()


def test_quiet_prints_what_went_wrong_only(settings: Path, parts: Parts, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_teardown(settings, "--yes", "-q") == 0
    assert capsys.readouterr() == ("", "")
    parts.frr = "zebra hangs"
    assert run_teardown(settings, "--yes", "--quiet") == 69
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "zebra hangs" in shown.err


def test_the_namespace_goes_only_on_request(settings: Path, parts: Parts) -> None:
    assert run_teardown(settings, "--yes", "--netns") == 0
    assert parts.done == ["frr", "kernel", "namespace"]


@pytest.mark.parametrize(
    ("troubles", "code"),
    [
        (("zebra hangs", (), ""), 69),
        (("", ("router: move eth1 to host: File exists",), ""), 71),
        (("zebra hangs", ("router: move eth1 to host: File exists",), ""), 71),
        (("", (), "foreign devices are in it"), 69),
    ],
)
def test_a_part_that_fails_is_reported_and_does_not_stop_the_rest(
    settings: Path,
    parts: Parts,
    capsys: pytest.CaptureFixture[str],
    troubles: tuple[str, tuple[str, ...], str],
    code: int,
) -> None:
    frr, kernel, namespace = troubles
    parts.frr, parts.kernel, parts.namespace = frr, kernel, namespace
    assert run_teardown(settings, "--yes", "--netns") == code
    assert parts.done[:2] == ["frr", "kernel"]
    shown = capsys.readouterr().err
    for cause in (frr, *kernel, namespace):
        assert cause in shown
    assert "repeat" in shown


def test_a_namespace_with_a_nic_in_it_is_not_deleted(settings: Path, parts: Parts) -> None:
    parts.kernel = ("router: move eth1 to host: File exists",)
    run_teardown(settings, "--yes", "--netns")
    assert "namespace" not in parts.done


def test_beside_a_running_daemon_it_refuses(settings: Path, parts: Parts, capsys: pytest.CaptureFixture[str]) -> None:
    with single_instance(settings.parent / "run"):
        assert run_teardown(settings, "--yes") == 75
    assert parts.done == []
    assert "systemctl stop openperouter" in capsys.readouterr().err


@pytest.mark.parametrize("state", ["activating", "active", "deactivating", "reloading"])
def test_between_two_runs_of_the_daemon_it_refuses(
    settings: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    systemd_says(monkeypatch, state)
    assert run_teardown(settings, "--yes") == 75
    assert parts.done == []
    assert state in capsys.readouterr().err


@pytest.mark.parametrize("state", ["inactive", "failed", "unknown", None])
def test_a_dead_daemon_or_no_systemd_at_all_is_no_obstacle(
    settings: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    systemd_says(monkeypatch, state)
    assert run_teardown(settings, "--yes") == 0
    assert parts.done == ["frr", "kernel"]


def test_without_yes_and_without_a_terminal_nothing_is_done(
    settings: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert run_teardown(settings) == 64
    assert parts.done == []


class Terminal(io.StringIO):
    """A terminal at which something is typed."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "code"),
    [("y\n", 0), ("\n", 64), ("no\n", 64), ("", 64)],
)
def test_a_person_is_asked(
    settings: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch, typed: str, code: int
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    assert run_teardown(settings) == code
    assert bool(parts.done) is (code == 0)


def test_it_needs_root(settings: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run_teardown(settings, "--yes") == 77
    assert parts.done == []


def test_broken_settings_and_a_broken_configuration_are_no_obstacle(
    settings: Path, parts: Parts, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.write_text(settings.read_text() + "logLevel: shouting\n")
    (settings.parent / "configs" / "openpe_underlay.yaml").write_text(": [")
    assert run_teardown(settings, "--yes") == 0
    assert parts.done == ["frr", "kernel"]
    assert "logLevel" in capsys.readouterr().err
