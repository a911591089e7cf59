"""How the daemon starts and ends, as seen from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.main import run_daemon
from supervisor.process.instance_lock import single_instance
from supervisor.runtime.faults import EXIT_CONFIG, EXIT_TEMPORARY

pytestmark = pytest.mark.usefixtures("restored_logging")


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    file = tmp_path / "openperouter.yaml"
    file.write_text(f"runDir: {tmp_path}/run\nstateDir: {tmp_path}/state\n")
    return file


def test_unusable_settings_end_with_the_configuration_exit_code_and_name_the_place(
    settings_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings_file.write_text("runDirr: /run/x\n")
    assert run_daemon(settings_file) == EXIT_CONFIG
    logged = capfd.readouterr().err
    assert f"{settings_file}:1:1" in logged
    assert "runDir" in logged


def test_a_second_instance_is_refused_and_names_the_first(
    settings_file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with single_instance(tmp_path / "run"):
        assert run_daemon(settings_file) == EXIT_TEMPORARY
    assert "already running: pid" in capfd.readouterr().err
