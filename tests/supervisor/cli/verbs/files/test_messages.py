"""What ``validate`` says of the mistakes that people make, word for word: the place, the fault, and what to write."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli import main
from tests.supervisor.cli.examples import write_settings

MISTAKES = Path(__file__).parents[2] / "golden" / "mistakes.txt"


def mistakes() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each case's name and its parts: files by their path below the settings, and ``output``."""
    for case in re.split(r"^== ", MISTAKES.read_text(), flags=re.MULTILINE)[1:]:
        name, _, rest = case.partition("\n")
        parts = (part.partition("\n") for part in re.split(r"^-- ", rest, flags=re.MULTILINE)[1:])
        yield name, {head: text for head, _, text in parts}


CASES = dict(mistakes())


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings with nothing configured, and output without colour."""
    monkeypatch.setenv("NO_COLOR", "1")
    return write_settings(tmp_path)


@pytest.mark.parametrize("mistake", CASES)
def test_a_mistake_is_named_with_its_place_and_what_to_write(
    settings: Path, mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in CASES[mistake].items():
        path = settings.parent / name
        path.write_text(path.read_text() + text if path == settings else text)
        path.chmod(0o600)
    code = main(["--settings", str(settings), "validate"])
    *shown, _ = capsys.readouterr().out.replace(f"{settings.parent}/", "").splitlines(keepends=True)
    assert "".join(shown) == CASES[mistake]["output"]
    assert code == (78 if any(": error: " in line for line in shown) else 0)


def test_a_link_that_leads_to_itself_is_one_error(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for one, other in (("a", "b"), ("b", "a")):
        (settings.parent / "configs" / f"openpe_{one}.yaml").symlink_to(f"openpe_{other}.yaml")
    assert main(["--settings", str(settings), "validate"]) == 78
    shown = capsys.readouterr().out.replace(f"{settings.parent}/", "").splitlines()
    assert shown == [
        "configs/openpe_a.yaml: error: cannot be read: Too many levels of symbolic links",
        "configs/openpe_b.yaml: error: cannot be read: Too many levels of symbolic links",
        "not valid: 2 errors, 0 warnings",
    ]


def test_nothing_configured_is_said(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--settings", str(settings), "validate"]) == 0
    configs = settings.parent / "configs"
    assert capsys.readouterr().out == f"valid, but nothing is configured: {configs} has no openpe_*.yaml\n"


@pytest.mark.parametrize("verb", ["validate", "plan", "status", "teardown", "doctor", "run"])
def test_settings_that_were_named_must_exist(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--settings", "/nope.yaml", verb]) == 66
    assert capsys.readouterr().err == "openperouter: /nope.yaml: no such file\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
@pytest.mark.parametrize("verb", ["validate", "plan"])
def test_a_user_without_permission_learns_to_be_root(settings: Path, verb: str) -> None:
    configs = settings.parent / "configs"
    configs.chmod(0o700)
    for parent in (settings.parent, *settings.parent.parents):
        if parent.is_relative_to("/tmp") and parent != Path("/tmp"):
            parent.chmod(0o755)
    settings.chmod(0o644)
    # What the verb imports must be there before: the sources may be unreadable, too.
    main(["--settings", str(settings), verb])
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        sys.stderr = os.fdopen(writer, "w")
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        code = main(["--settings", str(settings), verb])
        sys.stderr.flush()
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as stream:
        said = stream.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 77
    assert said == f"openperouter: permission denied: {configs}; most commands need root\n"
