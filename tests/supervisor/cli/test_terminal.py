"""Colour decisions, durations and tables."""

from __future__ import annotations

import io
from contextvars import copy_context

import pytest

from supervisor.cli import main
from supervisor.cli.terminal import Painter, choose_colour, duration, wants_colour


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_a_terminal_gets_colour_and_a_pipe_does_not() -> None:
    assert wants_colour(Terminal())
    assert not wants_colour(io.StringIO())


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_user_who_wants_no_colour_gets_none(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    assert not wants_colour(Terminal())


@pytest.mark.parametrize(
    ("words", "coloured"), [([], False), (["--color", "always"], True), (["--color=never"], False)]
)
def test_colour_can_be_chosen(words: list[str], coloured: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "explain", "l3vnis.vni"]) == 0
    assert ("\033[" in capsys.readouterr().out) is coloured


def test_the_choice_of_colour_precedes_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    context = copy_context()
    context.run(choose_colour, "always")
    assert context.run(wants_colour, Terminal())
    context.run(choose_colour, "never")
    assert not context.run(wants_colour, Terminal())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (-5, "0s"), (59.9, "59s"), (60, "1m"), (310, "5m10s"), (3600, "1h"), (273900, "3d4h"), (86400, "1d")],
)
def test_durations_show_their_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_column_that_is_empty_everywhere_is_left_out() -> None:
    lines = Painter(colour=False).table(("A", "B"), [(("x", "plain"), ("", "plain"))])
    assert lines == ["  A", "  x"]
