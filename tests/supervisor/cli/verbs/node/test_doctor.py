"""``openperouter doctor``: its exit code, its two forms, and that it works where nothing is installed."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from config.settings import Settings
from supervisor.cli import main
from supervisor.operations import doctor
from supervisor.operations.doctor import Finding, HostState, judge
from tests.supervisor.cli.examples import SECRETS, SilentDaemon
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


def test_the_findings_are_printed_before_frrs_late_answer_comes(
    settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leftover = SilentDaemon(capsys)

    async def examine(_settings: Settings, _settings_file: Path) -> list[Finding]:
        await leftover.query()
        return judge(but("frr", vtysh=False))

    monkeypatch.setattr(doctor, "examine", examine)
    assert run_doctor(settings) == 2
    assert leftover.shown_before.splitlines()[-1].startswith("1 error, ")


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


@pytest.mark.skipif(os.geteuid() != 0, reason="root takes rights from root's files")
def test_fix_takes_rights_from_files_and_gives_none(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = settings.parent
    for above in (directory, directory / "configs", directory / "state"):
        above.chmod(0o755)
    modes = {
        "configs/openpe_underlay.yaml": (0o644, 0o644 if sheltered(directory) else 0o640),
        "configs/openpe_l3vni.yaml": (0o602, 0o600),
        "node-config.yaml": (0o646, 0o644),
        "state": (0o755, 0o750),
    }
    for name, (before, _) in modes.items():
        (directory / name).chmod(before)
    (directory / "kept").write_text("")
    (directory / "kept").chmod(0o666)
    (directory / "configs" / "openpe_link.yaml").symlink_to(directory / "kept")
    run_doctor(settings, "--fix")
    shown = capsys.readouterr()
    for name, (before, after) in modes.items():
        assert stat.S_IMODE((directory / name).stat().st_mode) == after, name
        said = f"openperouter: fixed: {directory}/{name} has mode {after:04o} now; it had {before:04o}"
        assert (said in shown.err.splitlines()) == (before != after)
    assert stat.S_IMODE((directory / "kept").stat().st_mode) == 0o666
    # What is left is found as ever, and a second time does nothing.
    assert f"{directory}/configs/openpe_link.yaml has mode 0666" in shown.out
    assert f"{directory}/state has mode" not in shown.out
    run_doctor(settings, "--fix")
    assert "fixed: " not in capsys.readouterr().err


def sheltered(path: Path) -> bool:
    """Whether a directory above keeps others out, as pytest's own do on some machines."""
    return any(not above.stat().st_mode & stat.S_IXOTH for above in (path, *path.parents))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make others' files")
def test_fix_leaves_alone_what_others_could_replace_or_own(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = settings.parent
    (directory / "configs").chmod(0o755)
    os.chown(directory / "configs", 65534, 0)
    os.link(directory / "openperouter.yaml", directory / "another-name")
    left = [directory / name for name in ("configs/openpe_underlay.yaml", "node-config.yaml", "openperouter.yaml")]
    os.chown(directory / "node-config.yaml", 65534, 0)
    for path in left:
        path.chmod(0o646)
    run_doctor(settings, "--fix")
    assert [oct(stat.S_IMODE(path.stat().st_mode)) for path in left] == ["0o646"] * len(left)
    shown = capsys.readouterr()
    for path in left:
        assert f"fixed: {path}" not in shown.err
        assert f"{path} has mode 0646" in shown.out


def test_fix_is_only_for_root(
    settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert run_doctor(settings, "--fix") == 77
    assert capsys.readouterr().err == "openperouter: permission denied: doctor --fix; most commands need root\n"
