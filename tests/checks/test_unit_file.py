"""The daemon's unit and the program agree on times and exit codes; systemd itself is tested on a booted guest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from config.settings import Settings
from supervisor.process.sd_notify import Notifier
from supervisor.runtime.child_run import UNWIND_SECONDS
from supervisor.wiring import Daemon

UNIT = Path(__file__).resolve().parents[2] / "packaging" / "systemd" / "openperouter.service"
UNITS = {"s": 1, "min": 60}
ALL = sorted(UNIT.parent.glob("*.service"))
#: The file that a command locks: flock works on a descriptor that may only read.
_LOCK = re.compile(r"flock(?P<options>( -[a-z]+( [0-9]+)?)*) (?P<file>/\S+)")


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


def settings_of(unit: Path) -> dict[str, list[str]]:
    """Return a unit's lines, by key."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        key, is_setting, value = line.partition("=")
        if is_setting and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("unit", ALL, ids=lambda unit: unit.name)
def test_each_unit_has_a_start_timeout(unit: Path) -> None:
    """Of systemd's defaults, that of oneshot units is infinite."""
    [value] = settings_of(unit)["TimeoutStartSec"]
    assert value in ("60s", "5min")


def test_the_daemon_keeps_three_capabilities() -> None:
    """What only overrides the modes and users of files and processes is none of them."""
    settings = settings_of(UNIT)
    assert settings["CapabilityBoundingSet"] == ["CAP_NET_ADMIN CAP_NET_RAW CAP_SYS_ADMIN"]
    assert "AmbientCapabilities" not in settings
    assert settings["NoNewPrivileges"] == ["yes"]


def test_no_user_can_open_a_lock_for_which_a_unit_waits() -> None:
    locks = [(unit, found) for unit in ALL for found in _LOCK.finditer(unit.read_text())]
    assert locks
    for unit, found in locks:
        assert "-w 30" in found["options"]
        directory = Path(found["file"]).parent
        settings = settings_of(unit)
        assert settings["RuntimeDirectory"] == [directory.name]
        assert directory.parent == Path("/run")
        assert settings["RuntimeDirectoryMode"] == ["0700"]
        assert settings["RuntimeDirectoryPreserve"] == ["yes"]
        # Each of these would put the unit into a mount namespace, in which a network namespace cannot be created.
        assert not [key for key in settings if key.startswith(("Protect", "Private", "ReadWritePaths", "DynamicUser"))]
