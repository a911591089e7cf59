"""``openperouter doctor``: its exit code, its two forms, and that it works where nothing is installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from config.settings import Settings
from supervisor.cli import main
from supervisor.operations import doctor
from supervisor.operations.doctor import Finding, HostState, judge
from tests.supervisor.cli.examples import SECRETS
from tests.supervisor.operations.doctor.healthy_machine import HEALTHY, but


def run_doctor(settings: Path, *words: str) -> int:
    return main(["--settings", str(settings), "doctor", *words])


def finding(monkeypatch: pytest.MonkeyPatch, machine: HostState) -> None:
    async def examine(_settings: Settings, _settings_file: Path) -> list[Finding]:
        return judge(machine)

    monkeypatch.setattr(doctor, "examine", examine)


@pytest.mark.parametrize(
    ("machine", "code"),
    [
        (HEALTHY, 0),
        (but("managers", unmanaged=False), 1),
        (but("frr", vtysh=False), 2),
    ],
)
def test_the_exit_code_says_how_bad_it_is(
    settings: Path, monkeypatch: pytest.MonkeyPatch, machine: HostState, code: int
) -> None:
    finding(monkeypatch, machine)
    assert run_doctor(settings) == code


def test_each_finding_is_printed_with_its_fix_below(
    settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finding(monkeypatch, but("frr", vtysh=False))
    run_doctor(settings)
    lines = capsys.readouterr().out.splitlines()
    [place] = [number for number, line in enumerate(lines) if line.startswith("error")]
    assert "vtysh" in lines[place]
    assert lines[place + 1].strip() == "fix: apt install frr"
    assert lines[-1].startswith("1 error, 0 warnings, ")


def test_programs_see_the_same_as_json(
    settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finding(monkeypatch, but("frr", vtysh=False))
    assert run_doctor(settings, "--json") == 2
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 2
    bad = [found for found in document["findings"] if found["level"] == "error"]
    assert [found["topic"] for found in bad] == ["frr-programs"]


def test_on_a_machine_without_a_router_it_says_what_is_missing_and_gives_nothing_away(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_doctor(settings) == 2
    shown = capsys.readouterr()
    assert "openperouter-not-there" in shown.out
    assert "fix: " in shown.out
    for secret in SECRETS:
        assert secret not in shown.out + shown.err


def test_a_broken_configuration_is_a_finding_and_not_the_end(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.write_text(settings.read_text() + "logLevel: shouting\n")
    (settings.parent / "configs" / "openpe_underlay.yaml").write_text("underlays: [\n password: hunter2hunter2\n")
    assert run_doctor(settings) == 2
    shown = capsys.readouterr()
    assert "openpe_underlay.yaml:" in shown.out
    assert "logLevel" in shown.err
    assert "hunter2hunter2" not in shown.out + shown.err
