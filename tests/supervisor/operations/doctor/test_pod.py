"""FRR in podman: what the doctor says of units, PID file and reloader; the distribution's FRR is no concern."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from config.settings import Settings
from supervisor.operations.doctor import HostState, Level
from supervisor.operations.doctor.frr import Frr, read_frr
from supervisor.operations.doctor.network_managers import Unit
from supervisor.operations.doctor.pod import Pod, read_pod
from supervisor.operations.paths import POD_UNITS
from supervisor.version import VERSION
from tests.actors.lib.frr.daemon import daemon
from tests.supervisor.operations.doctor.healthy_machine import HEALTHY, UNITS, complaints, the_complaint

WELL = Pod(podman=True, quadlet=True, version=VERSION)
PODMAN = Settings(runtime="podman")


def machine(pod: Pod, *others: Unit) -> HostState:
    """Return a machine without the distribution's FRR."""
    rest = {name: unit for name, unit in UNITS.items() if not name.startswith("frr@")}
    pods = {name: Unit(name, "loaded", "active", "running") for name in POD_UNITS}
    own, changed = replace(HEALTHY.frr or Frr(), vtysh=False), {unit.name: unit for unit in others}
    return replace(HEALTHY, settings=PODMAN, pod=pod, frr=own, units={**rest, **pods, **changed})


def test_a_pod_that_is_well_needs_no_frr_of_the_distribution() -> None:
    assert complaints(machine(WELL)) == []


@pytest.mark.parametrize(
    ("seen", "topic", "level", "message", "fix"),
    [
        (machine(replace(WELL, podman=False)), "pod-units", Level.ERROR, "podman is not installed", "apt install"),
        (
            machine(replace(WELL, quadlet=False)),
            "pod-units",
            Level.ERROR,
            "router-pod.service exists: nothing",
            "quadlet",
        ),
        (
            machine(WELL, Unit(POD_UNITS[1])),
            "pod-units",
            Level.ERROR,
            "openperouter-frr.service is not-found",
            "generate quadlet",
        ),
        (
            machine(WELL, Unit(POD_UNITS[2], "loaded", "failed", "failed", result="exit-code")),
            "pod-units",
            Level.ERROR,
            "openperouter-reloader.service is failed (failed, exit-code)",
            "journalctl -u openperouter-reloader.service",
        ),
        (machine(replace(WELL, process="it has ended")), "pod-process", Level.ERROR, "it has ended", "router-pod"),
        (machine(replace(WELL, reloader="it hangs")), "pod-reloader", Level.ERROR, "it hangs", "openperouter-reloader"),
        (machine(replace(WELL, silent=("bgpd: gone",))), "pod-reloader", Level.ERROR, "bgpd: gone", "router-pod"),
        (machine(replace(WELL, version="0.0.1")), "pod-reloader", Level.WARNING, "of release 0.0.1", "image"),
    ],
)
def test_one_fault_of_the_pod_is_one_complaint(
    seen: HostState, topic: str, level: Level, message: str, fix: str
) -> None:
    found = the_complaint(seen)
    assert (found.topic, found.level) == (topic, level)
    assert message in found.message
    assert fix in found.fix


async def test_natively_nothing_of_a_pod_is_read() -> None:
    assert await read_pod(Settings()) is None


async def test_what_is_absent_is_read_with_its_reason(tmp_path: Path) -> None:
    found = await read_pod(PODMAN.model_copy(update={"pod_run_dir": tmp_path}))
    assert found is not None
    assert found.process == f"FRR's container does not run: there is no {tmp_path / 'frr.pid'}"
    assert found.reloader.startswith(f"FRR's reloader does not run: {tmp_path / 'reloader.sock'}: No such file")


async def test_the_version_is_that_of_the_frr_that_runs(tmp_path: Path) -> None:
    settings = PODMAN.model_copy(update={"frr_run_dir": tmp_path, "frr_pathspace": "p", "pod_run_dir": tmp_path})
    (tmp_path / "p").mkdir()
    async with daemon(tmp_path / "p/zebra.vty", {"show version": ("FRRouting 10.3 (x) on Linux\n", 0)}):
        assert (await read_frr(settings)).version == "10.3"
    assert (await read_frr(settings)).version == ""
