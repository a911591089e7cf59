"""Reading the machine that runs the tests, and files made for them: values or reasons, never an exception."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import fields
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors.lib.frr import processes
from actors.lib.frr.frr_lock import session_lock
from actors.lib.frr.vtysh import lock_file
from config.settings import Settings
from supervisor.operations.control_client import NotRunningError
from supervisor.operations.doctor import HostState, files, frr, network_managers, read_machine, router
from supervisor.operations.doctor.examine import _readers
from supervisor.process.instance_lock import single_instance
from tests.actors.lib.frr.daemon import daemon

CHECKOUT = Path(__file__).resolve().parents[4]
PACKAGED_DAEMONS = CHECKOUT / "packaging/frr/perouter/daemons"


@pytest.fixture
def nowhere(tmp_path: Path) -> Settings:
    """Settings of a router that is not there."""
    return Settings(
        node_config_file=tmp_path / "node-config.yaml",
        configs_dir=tmp_path / "configs",
        state_dir=tmp_path / "state",
        run_dir=tmp_path / "run",
        frr_etc_dir=tmp_path / "frr",
        frr_run_dir=tmp_path / "run-frr",
        netns="openperouter-not-there",
        vtysh=tmp_path / "no-vtysh",
    )


async def test_a_machine_without_a_router_can_be_read(
    nowhere: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frr, "ZEBRA", tmp_path / "no-zebra")
    machine = await read_machine(nowhere, tmp_path / "openperouter.yaml")
    assert machine.frr is not None
    assert machine.frr.version == ""
    assert machine.frr.running is None
    assert machine.network is not None
    assert machine.network.router is None
    assert "openperouter-not-there" in machine.network.router_problem
    assert machine.daemon is not None
    assert machine.daemon.holder == 0
    assert machine.clock is not None
    assert machine.clock.now > 0
    assert not os.listdir(tmp_path)  # noqa: PTH208 - for a moment, in a test


def test_there_is_a_reader_of_each_area(nowhere: Settings, tmp_path: Path) -> None:
    """An area that nothing reads is not judged."""
    areas = {field.name for field in fields(HostState)} - {"settings", "unreadable"}
    assert set(_readers(nowhere, tmp_path / "openperouter.yaml")) == areas


async def test_an_area_that_cannot_be_read_leaves_the_others_alone(
    nowhere: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object) -> None:
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(files, "read_files", broken)
    machine = await read_machine(nowhere, tmp_path / "openperouter.yaml")
    assert machine.files is None
    assert machine.unreadable is not None
    assert "Permission denied" in machine.unreadable["files"]
    assert machine.disks


def test_the_holder_of_the_lock_is_found_without_taking_it(tmp_path: Path) -> None:
    assert router.lock_holder(tmp_path / "run" / "lock") == 0
    with single_instance(tmp_path / "run") as lock:
        assert router.lock_holder(lock) == os.getpid()
    assert router.lock_holder(lock) == 0


def test_a_dead_daemon_leaves_its_reason_and_no_status(nowhere: Settings) -> None:
    found = router.read_daemon(nowhere)
    assert (found.holder, found.silence, found.status) == (0, str(NotRunningError("the daemon is not running")), None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bgpd=yes\nbfdd=no\n", {"bgpd": "yes", "bfdd": "no"}),
        ("# bgpd=no\nbgpd = yes # on\n", {"bgpd": "yes"}),
        ('zebra_options="-A 127.0.0.1"\nvtysh_enable=yes\n', {"zebra_options": "-A 127.0.0.1", "vtysh_enable": "yes"}),
    ],
)
async def test_the_daemons_file_is_read_as_the_shell_does(
    nowhere: Settings, text: str, expected: dict[str, str]
) -> None:
    directory = nowhere.frr_etc_dir / nowhere.frr_pathspace
    directory.mkdir(parents=True)
    (directory / "daemons").write_text(text)
    assert (await frr.read_frr(nowhere)).daemons_file == expected


async def test_a_daemons_file_without_the_packages_function_is_found(nowhere: Settings) -> None:
    directory = nowhere.frr_etc_dir / nowhere.frr_pathspace
    directory.mkdir(parents=True)
    assert (await frr.read_frr(nowhere)).guarded
    for text, guarded in ((PACKAGED_DAEMONS.read_text(), True), ("bgpd=yes\n# kill() {\n", False)):
        (directory / "daemons").write_text(text)
        assert (await frr.read_frr(nowhere)).guarded is guarded


async def test_daemons_whose_program_was_replaced_are_found(
    nowhere: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frr, "PROCESSES", tmp_path / "proc")
    run = nowhere.frr_run_dir / nowhere.frr_pathspace
    run.mkdir(parents=True)
    for name, pid, program in (("bgpd", 7, "/usr/lib/frr/bgpd (deleted)"), ("zebra", 8, "/usr/lib/frr/zebra")):
        (run / f"{name}.pid").write_text(f"{pid}\n")
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (tmp_path / "proc" / str(pid) / "exe").symlink_to(program)
    (run / "gone.pid").write_text("9\n")
    # FRR's user can write anything there.
    (run / "other.pid").write_bytes(b"\xff/../7")
    os.mkfifo(run / "staticd.pid")
    assert (await frr.read_frr(nowhere)).outdated == ("bgpd",)


async def test_what_runs_vtysh_time_and_again_is_found(
    nowhere: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cron, processes = tmp_path / "cron.d", tmp_path / "proc"
    monkeypatch.setattr(frr, "CRON", (cron, tmp_path / "missing"))
    monkeypatch.setattr(frr, "PROCESSES", processes)
    cron.mkdir()
    (cron / "routes").write_text("* * * * * root vtysh -N perouter -c 'show ip route'\n")
    (cron / "harmless").write_text("# no vtysh\n* * * * * root /usr/bin/vtysh -N perouter -d bgpd -c 'show bgp'\n")
    for number, name, command in (
        (7, "frr_exporter", "/opt/frr_exporter\0--frr.vtysh\0"),
        (8, "frr_exporter", "/opt/frr_exporter\0--no-frr.vtysh\0"),
        (9, "bash", "bash\0frr_exporter --frr.vtysh\0"),
        # Any user may give a process a name that is no UTF-8.
        (6, "\udcff", ""),
    ):
        (processes / str(number)).mkdir(parents=True)
        (processes / str(number) / "comm").write_text(f"{name}\n", errors="surrogateescape")
        (processes / str(number) / "cmdline").write_text(command)
    users = (await frr.read_frr(nowhere)).vtysh_users
    assert users == (f"{cron}/routes", "frr_exporter --frr.vtysh (process 7)")


SHOWN = """\
Id=openperouter.service
LoadState=loaded
ActiveState=failed
SubState=failed
UnitFileState=enabled
Result=exit-code
ExecMainStatus=78
NRestarts=3
ActiveEnterTimestamp=@1790000000
DropInPaths=/a/x.conf /b/y.conf

Id=NetworkManager.service
LoadState=not-found
ActiveState=inactive
ExecMainStatus=0
ActiveEnterTimestamp=
"""


async def test_systemctl_show_is_parsed(nowhere: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "systemctl", SHOWN)
    units = await network_managers.read_units(nowhere)
    unit = units["openperouter.service"]
    assert (unit.active, unit.enabled, unit.exit_status) == ("failed", "enabled", 78)
    assert (unit.started, unit.drop_ins) == (1790000000.0, ("/a/x.conf", "/b/y.conf"))
    assert units["NetworkManager.service"].load == "not-found"


NETWORKD = """\
# /usr/lib/systemd/networkd.conf
[Network]
#ManageForeignRoutes=yes
ManageForeignRoutes=yes
[DHCPv4]
ManageForeignNextHops=no
# /etc/systemd/networkd.conf.d/x.conf
[Network]
ManageForeignRoutes=no
"""


async def test_the_last_assignment_counts_in_its_section_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "systemd-analyze", NETWORKD)
    assert (await network_managers.read_managers()).networkd == {"ManageForeignRoutes": "no"}


@pytest.mark.parametrize(
    ("written", "kept_off"),
    [
        ({"usr/10-a.network": "Name=host-e-*"}, True),
        ({"usr/10-a.network": "Name=host-e-*", "etc/10-a.network": ""}, False),
        ({"usr/10-a.network": "Name=host-e-*", "etc/20-b.network": ""}, True),
        ({"usr/10-a.txt": "Name=host-e-*"}, False),
        ({}, False),
    ],
)
async def test_a_shadowed_file_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: dict[str, str], *, kept_off: bool
) -> None:
    program(tmp_path, monkeypatch, "systemd-analyze", "")
    monkeypatch.setattr(network_managers, "_ROOTS", (tmp_path / "etc", tmp_path / "usr"))
    for name, text in written.items():
        root, _, file = name.partition("/")
        directory = tmp_path / root / "systemd" / "network"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / file).write_text(text)
    assert (await network_managers.read_managers()).unmanaged is kept_off


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in place of the file system's root, with the package's configuration of other programs."""
    subprocess.run(["sh", CHECKOUT / "packaging/networkd/install.sh", tmp_path / "root"], check=True)
    monkeypatch.setattr(network_managers, "_ROOTS", (tmp_path / "root/etc", tmp_path / "root/usr/lib"))
    return tmp_path / "root"


async def test_the_packages_configuration_of_other_programs_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    program(tmp_path, monkeypatch, "systemd-analyze", "")
    found = await network_managers.read_managers()
    assert (found.network_manager, found.link, found.rules) == (True, True, True)
    for shadow in ("systemd/network/10-openperouter.link", "udev/rules.d/70-openperouter.rules"):
        (root / "etc" / shadow).parent.mkdir(parents=True)
        (root / "etc" / shadow).symlink_to("/dev/null")
    found = await network_managers.read_managers()
    assert (found.network_manager, found.link, found.rules) == (True, False, False)


def test_modes_and_owners_are_read(nowhere: Settings, tmp_path: Path) -> None:
    secret = nowhere.configs_dir / "secrets" / "fabric"
    secret.parent.mkdir(parents=True)
    secret.write_text("x")
    secret.chmod(0o644)
    found = {fact.path: fact for fact in files.read_files(nowhere, tmp_path / "openperouter.yaml")}
    assert found[str(secret)].mode == 0o644
    assert found[str(secret.parent)].directory


@pytest.mark.parametrize(("mode", "sheltered"), [(0o755, False), (0o711, False), (0o750, True), (0o700, True)])
def test_a_file_is_sheltered_by_any_directory_above_it(nowhere: Settings, mode: int, *, sheltered: bool) -> None:
    # Not tmp_path, which pytest keeps others out of.
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "configs" / "openpe_x.yaml"
        file.parent.mkdir()
        file.write_text("x")
        Path(name).chmod(mode)
        settings = nowhere.model_copy(update={"configs_dir": file.parent})
        found = {fact.path: fact for fact in files.read_files(settings, file.parent / "openperouter.yaml")}
    assert found[str(file)].sheltered is sheltered
    assert found[str(file.parent)].sheltered is sheltered


def test_leftovers_of_trials_are_examined(nowhere: Settings, tmp_path: Path) -> None:
    saved = nowhere.state_dir / "before-trial" / "1234"
    saved.mkdir(parents=True)
    (saved / "openpe_x.yaml").write_text("x")
    (nowhere.state_dir / "mirror-key").write_text("x")
    found = {fact.path for fact in files.read_files(nowhere, tmp_path / "openperouter.yaml")}
    assert found >= {str(saved), str(saved.parent), str(nowhere.state_dir / "mirror-key")}
    assert str(saved / "openpe_x.yaml") not in found


def test_locks_and_what_root_runs_of_frrs_are_examined(nowhere: Settings, tmp_path: Path) -> None:
    own = nowhere.frr_etc_dir / nowhere.frr_pathspace
    own.mkdir(parents=True)
    (own / "daemons").write_text("bgpd=yes\n")
    nowhere.run_dir.mkdir()
    found = {fact.path for fact in files.read_files(nowhere, tmp_path / "openperouter.yaml")}
    assert found >= {str(nowhere.run_dir), str(own), str(own / "daemons")}


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str) -> None:
    """Put a program that prints something first on the path."""
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "says").write_text(says)
    (directory / name).write_text(f"#!/bin/sh\ncat {directory}/says\n")
    (directory / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=":")


async def test_a_long_change_of_frr_does_not_keep_the_doctor_waiting(
    nowhere: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """And mgmtd, whose session could break that change, is not asked."""
    settings = nowhere.model_copy(update={"run_dir": tmp_path, "frr_run_dir": tmp_path})
    run_dir = tmp_path / settings.frr_pathspace
    run_dir.mkdir()
    monkeypatch.setattr(processes, "pid_of", lambda _, daemon: 42 if daemon == "mgmtd" else None)
    # The clock does not wait for processes, such as that of an installed zebra.
    monkeypatch.setattr(frr, "ZEBRA", tmp_path / "no-zebra")
    async with AsyncExitStack() as daemons:
        asked = {
            name: await daemons.enter_async_context(daemon(run_dir / f"{name}.vty", {"show version": ("FRR", 0)}))
            for name in ("zebra", "bgpd", "mgmtd")
        }
        began = trio.current_time()
        async with session_lock(lock_file(settings), exclusive=True):
            seen = await frr.read_frr(settings)
        assert seen.running == frozenset({"zebra", "bgpd", "mgmtd"})
        assert trio.current_time() - began < 5
        assert not asked["mgmtd"]
        assert (await frr.read_frr(settings)).running == frozenset({"zebra", "bgpd", "mgmtd"})
        assert asked["mgmtd"] == ["show version"]


@pytest.mark.parametrize("booted", [True, False])
async def test_without_systemd_there_are_no_units_to_examine(
    nowhere: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, booted: bool
) -> None:
    (tmp_path / "systemd").mkdir()
    monkeypatch.setattr(
        sys.modules[read_machine.__module__], "SYSTEMD_BOOTED", tmp_path / ("systemd" if booted else "none")
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    machine = await read_machine(nowhere, tmp_path / "openperouter.yaml")
    assert (machine.units, machine.managers) == (None, None)
    assert machine.unreadable is not None
    assert ({"units", "managers"} <= machine.unreadable.keys()) == booted
