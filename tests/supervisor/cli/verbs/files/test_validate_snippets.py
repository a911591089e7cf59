"""Raw snippets are parsed by FRR's shell where it is installed; where it is not, that is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.cli import main

#: What vtysh of FRR 10.3 says with -C -f, to both streams.
COMPLAINTS = """\
line 1: % Unknown command[4]: this is not frr
line 3: % Unknown command[28]:  neighbour 192.0.2.1 password hunter2hunter2
Configuration file[/etc/frr/frr.conf] processing failure: 2
"""
SNIPPET = """\
rawfrrconfigs:
  - priority: 10
    rawConfig: |
      this is not frr
      router bgp 64514
       neighbour 192.0.2.1 password hunter2hunter2
"""


@pytest.fixture
def snippet(settings: Path) -> Path:
    """A configuration with a snippet, and the path at which vtysh would be."""
    path = settings.parent / "configs" / "openpe_raw.yaml"
    path.write_text(SNIPPET)
    path.chmod(0o600)
    # Its example has a snippet too, which is none of these tests' business.
    underlay = settings.parent / "configs" / "openpe_underlay.yaml"
    underlay.write_text(underlay.read_text().partition("rawfrrconfigs")[0])
    return settings.parent / "no-vtysh"


def vtysh(program: Path, complaints: str) -> Path:
    """Write a vtysh that complains; return the file that has what it was given."""
    given = program.with_name("given")
    program.write_text(f'#!/bin/sh\ncat "$3" >{given}; stat -c %a "$3" >>{given}\nprintf %s \'{complaints}\'\nexit 2\n')
    program.chmod(0o755)
    return given


def validate(settings: Path) -> int:
    return main(["--settings", str(settings), "validate"])


def test_lines_that_frr_does_not_take_are_errors(
    settings: Path, snippet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = vtysh(snippet, COMPLAINTS)
    assert validate(settings) == 78
    shown = capsys.readouterr()
    first, second, result = shown.out.splitlines()
    assert first.endswith(
        "openpe_raw.yaml:3:16: error: RawFRRConfig rawfrrconfig-0: rawConfig: FRR does not take this line "
        "(unknown command): this is not frr"
    )
    assert second.endswith("(unknown command): neighbour 192.0.2.1 password ********")
    assert result == "not valid: 2 errors, 0 warnings"
    assert "hunter2" not in shown.out + shown.err
    *text, mode = given.read_text().splitlines()
    assert text == ["this is not frr", "router bgp 64514", " neighbour 192.0.2.1 password hunter2hunter2", "exit"]
    assert mode == "600"


def test_a_snippet_that_frr_takes_is_valid(settings: Path, snippet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vtysh(snippet, "")
    assert validate(settings) == 0
    shown = capsys.readouterr()
    assert shown.out == "valid: 3 resources\n"
    assert shown.err == ""


@pytest.mark.usefixtures("snippet")
def test_without_frr_it_says_that_nothing_was_checked(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(settings) == 0
    said = capsys.readouterr().err
    assert said.startswith("openperouter: 1 raw snippet was not checked against FRR's grammar: ")
    assert said.endswith("/no-vtysh is not there\n")


def test_a_snippet_that_is_refused_anyway_is_not_given_to_vtysh(
    settings: Path, snippet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = vtysh(snippet, "")
    path = settings.parent / "configs" / "openpe_raw.yaml"
    path.write_text(SNIPPET.replace("this is not frr", "end"))
    assert validate(settings) == 78
    assert capsys.readouterr().out.count(": error: ") == 1
    assert not given.exists()


def test_without_an_underlay_snippets_are_checked_too(
    settings: Path, snippet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vtysh(snippet, COMPLAINTS)
    (settings.parent / "configs" / "openpe_underlay.yaml").unlink()
    assert validate(settings) == 78
    assert capsys.readouterr().out.count("FRR does not take this line") == 2
