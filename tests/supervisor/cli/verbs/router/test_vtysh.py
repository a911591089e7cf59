"""``openperouter vtysh``: only reads, under the lock, without secrets, and with an end to its wait."""

from __future__ import annotations

import fcntl
import io
import os
from pathlib import Path

import pytest

from supervisor.cli import main
from supervisor.cli.verbs.router import vtysh
from supervisor.operations.exit_codes import CommandError

ANSWER = "router bgp 64514\\n neighbor 192.0.2.1 password hunter2hunter2"


@pytest.fixture
def frr(settings: Path) -> Path:
    """A vtysh that writes down its arguments, and says which locks are held at that moment."""
    called = settings.parent / "called"
    program = settings.parent / "no-vtysh"
    program.write_text(
        f'#!/bin/sh\necho "$*" >>{called}\nflock -n -x {settings.parent}/run/frr.lock true || echo locked >>{called}\n'
        "case $* in *json*) echo '{\"a\": 1}';; *absent*) echo 'bgpd is not running';; "
        f"*) printf '{ANSWER}\\n';; esac\n"
    )
    program.chmod(0o755)
    return called


def run(settings: Path, *words: str) -> int:
    return main(["vtysh", "--settings", str(settings), *words])


@pytest.mark.parametrize("command", ["show bgp summary", "sh bgp summary", "  show   bgp summary "])
def test_a_show_command_runs_under_the_lock(
    settings: Path, frr: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert run(settings, "-c", command) == 0
    assert frr.read_text() == "-N perouter -c show bgp summary\nlocked\n"
    shown = capsys.readouterr().out
    assert "router bgp 64514" in shown
    assert "hunter2hunter2" not in shown


def test_a_daemon_of_its_own_needs_no_lock(settings: Path, frr: Path) -> None:
    assert run(settings, "-d", "bgpd", "-c", "show bgp summary", "-c", "show bgp neighbors") == 0
    first, second = frr.read_text().splitlines()
    assert first == "-N perouter -d bgpd -c show bgp summary"
    assert second.endswith("-c show bgp neighbors")


def test_mgmtd_needs_it(settings: Path, frr: Path) -> None:
    assert run(settings, "-d", "mgmtd", "-c", "show version") == 0
    assert frr.read_text().endswith("locked\n")


@pytest.mark.parametrize(
    "command",
    [
        "configure terminal",
        "clear bgp *",
        "write",
        "show",
        "s version",
        "showx y",
        "show version\nconfigure terminal",
        "show version\rx",
        "",
        "do show version",
    ],
)
def test_what_does_not_only_show_never_reaches_frr(settings: Path, frr: Path, command: str) -> None:
    assert run(settings, "-c", "show version", "-c", command) == 64
    assert not frr.exists()


def test_json_stays_json(settings: Path, frr: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(settings, "-c", "show bgp summary json") == 0
    assert capsys.readouterr().out == '{"a": 1}\n'
    assert frr.exists()


def test_an_absent_daemon_is_an_error(settings: Path, frr: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(settings, "-d", "bgpd", "-c", "show absent") == 69
    assert "FRR does not answer: bgpd is not running" in capsys.readouterr().err
    assert frr.exists()


def test_without_frr_there_is_an_error(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(settings, "-c", "show version") == 69
    assert "no-vtysh" in capsys.readouterr().err


def test_a_change_that_does_not_end_is_not_waited_for_indefinitely(
    settings: Path, frr: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vtysh, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(vtysh, "PATIENCE_SECONDS", 0.1)
    lock = os.open(settings.parent / "run" / "frr.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        assert run(settings, "-c", "show version") == 4
    finally:
        os.close(lock)
    said = capsys.readouterr().err
    assert "FRR is being changed; waiting up to 0.1 s" in said
    assert "FRR has been changed for more than 0.1 s" in said
    assert not frr.exists()


def test_its_patience_is_shorter_than_the_locks() -> None:
    from actors.lib.frr import frr_lock

    assert vtysh.SILENT_SECONDS + vtysh.PATIENCE_SECONDS < frr_lock.PATIENCE_SECONDS


def test_commands_come_from_the_input(settings: Path, frr: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("show one\n\n  show two\nexit\nshow three\n"))
    assert run(settings, "-d", "bgpd") == 0
    assert [line.rpartition("-c ")[2] for line in frr.read_text().splitlines() if "-c" in line] == [
        "show one",
        "show two",
    ]


def test_a_wrong_line_of_the_input_ends_it(settings: Path, frr: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("clear bgp *\nshow one\n"))
    assert run(settings) == 64
    assert not frr.exists()


class Terminal(io.StringIO):
    """An input that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_at_the_prompt_a_wrong_line_is_only_complained_about(
    settings: Path, frr: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = iter(["clear bgp *", "show one"])
    prompts: list[str] = []

    def typed(prompt: str) -> str:
        prompts.append(prompt)
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", typed)
    assert run(settings) == 0
    assert prompts == ["router# "] * 3
    assert "only commands that begin with 'show' are" in capsys.readouterr().err
    assert "show one" in frr.read_text()


def test_the_spelling_that_is_passed_on_is_the_whole_word() -> None:
    assert vtysh.accepted("sho  version") == "show version"
    with pytest.raises(CommandError, match="'wr mem' is not passed on"):
        vtysh.accepted("wr mem")


@pytest.mark.parametrize(
    "command",
    [
        "show bgp l2vpn evpn route vni all json",
        "sh bg l2 ev ro vn al js",
        "show bgp l2vpn evpn route vni all vtep 192.0.2.1 json",
    ],
)
def test_what_ends_frrs_bgpd_is_refused(command: str) -> None:
    with pytest.raises(CommandError, match="show bgp vni all json"):
        vtysh.accepted(command)


@pytest.mark.parametrize(
    "command", ["show bgp l2vpn evpn route vni all", "show bgp l2vpn evpn route vni 100 json", "show bgp vni all json"]
)
def test_what_resembles_it_is_not(command: str) -> None:
    assert vtysh.accepted(command) == command
