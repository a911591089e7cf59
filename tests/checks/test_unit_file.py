"""The daemon's unit and the program agree on times and exit codes; systemd itself is tested on a booted guest."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.settings import Settings
from supervisor.process.sd_notify import Notifier
from supervisor.runtime.child_run import UNWIND_SECONDS
from supervisor.wiring import Daemon

UNIT = Path(__file__).resolve().parents[2] / "packaging" / "systemd" / "openperouter.service"
UNITS = {"s": 1, "min": 60}


def seconds(key: str) -> float:
    """Return a time of the unit."""
    [value] = [line.partition("=")[2] for line in UNIT.read_text().splitlines() if line.startswith(f"{key}=")]
    number = value.rstrip("mins")
    return float(number) * UNITS[value.removeprefix(number)]


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    settings = Settings(run_dir=tmp_path, state_dir=tmp_path)
    return Daemon(settings, settings_file=tmp_path / "openperouter.yaml", notifier=Notifier())


async def test_systemd_waits_for_the_longest_orderly_stop(daemon: Daemon) -> None:
    # Children stop one after the other: each may finish its unit of work, and then unwind.
    longest = sum(child.shutdown_timeout + UNWIND_SECONDS for child in daemon.children())
    assert longest + 10 <= seconds("TimeoutStopSec") <= longest + 30


def test_the_daemon_is_restarted_within_ten_seconds_whatever_ended_it() -> None:
    assert seconds("RestartSec") == 1
    assert seconds("RestartMaxDelaySec") == 10
    assert "RestartPreventExitStatus" not in UNIT.read_text()
