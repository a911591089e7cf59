"""FRR in podman (``runtime: podman``): are the units there, does the pod run, and does its reloader answer?"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from actors.lib.frr.pod_processes import PodFault, PodProcesses
from config.settings import Settings
from supervisor.version import VERSION

from ..paths import POD_UNITS
from .findings import Finding, error, ok, warning
from .network_managers import Unit, Units

#: What 'openperouter generate quadlet' writes, of which podman makes the pod's unit.
QUADLET = Path("/etc/containers/systemd/openperouter-router.pod")
#: That unit as 'openperouter generate systemd' writes it.
PLAIN = Path("/etc/systemd/system") / POD_UNITS[0]
_GENERATE = "openperouter generate quadlet, systemctl daemon-reload"
_RESTART = f"systemctl restart {POD_UNITS[0]}"


@dataclass(frozen=True, slots=True)
class Pod:
    """FRR's pod: ``process`` is why its PID file is not usable, ``reloader`` why that does not answer; else empty.

    ``quadlet`` says that the quadlet, or the unit instead of it, was written.
    ``silent`` names the daemons that the reloader finds not to answer, ``version`` is its own.
    """

    podman: bool
    quadlet: bool
    process: str = ""
    reloader: str = ""
    version: str = ""
    silent: tuple[str, ...] = ()


async def read_pod(settings: Settings) -> Pod | None:
    """Read what concerns the pod; None where FRR does not run in one."""
    if settings.runtime != "podman":
        return None
    # Most nodes do not use HTTP.
    from actors.lib.frr.reloader_client import ReloaderClient, ReloaderFault
    from actors.lib.frr.reloader_protocol import SOCKET

    process = reloader = version = ""
    silent: tuple[str, ...] = ()
    run_dir, pathspace = settings.frr_run_dir / settings.frr_pathspace, settings.frr_pathspace
    try:
        PodProcesses(run_dir, settings.pod_run_dir, pathspace, settings.netns).first()
    except PodFault as fault:
        process = str(fault)
    try:
        seen = await ReloaderClient(settings.pod_run_dir / SOCKET).health()
        version, silent = seen.version, tuple(f"{name}: {why}" for name, why in sorted(seen.silent.items()))
    except ReloaderFault as fault:
        reloader = str(fault)
    return Pod(shutil.which("podman") is not None, _written(), process, reloader, version, silent)


def _written() -> bool:
    return QUADLET.is_file() or PLAIN.is_file()


def installed(pod: Pod, units: Units) -> Iterator[Finding]:
    """Is podman there, and are the units that were generated active?"""
    if not pod.podman:
        yield error("pod-units", "podman is not installed, and runtime is podman", "apt install podman")
        return
    if not pod.quadlet:
        yield error("pod-units", f"neither {QUADLET} nor {PLAIN} exists: nothing starts FRR's pod", _GENERATE)
        return
    wrong = False
    for name in POD_UNITS:
        unit = units.get(name, Unit(name))
        if unit.load != "loaded":
            yield error("pod-units", f"{name} is {unit.load}", f"{_GENERATE}, then {_RESTART}")
        elif unit.active != "active":
            why = "" if unit.result == "success" else f", {unit.result}"
            message = f"{name} is {unit.active} ({unit.sub}{why})"
            yield error("pod-units", message, f"journalctl -u {name} -n 50, then systemctl restart {name}")
        wrong |= unit.load != "loaded" or unit.active != "active"
    if not wrong:
        yield ok("pod-units", f"{', '.join(POD_UNITS)} are active")


def answers(pod: Pod) -> Iterator[Finding]:
    """Is FRR's container known, and does the reloader change FRR for us?"""
    if pod.process:
        yield error("pod-process", pod.process, _RESTART)
    else:
        yield ok("pod-process", "the PID file of FRR's container names its first process")
    if pod.reloader:
        yield error(
            "pod-reloader", pod.reloader, f"journalctl -u {POD_UNITS[2]} -n 50, systemctl restart {POD_UNITS[2]}"
        )
        return
    if pod.silent:
        yield error("pod-reloader", f"the reloader finds that {'; '.join(pod.silent)}", _RESTART)
    elif pod.version != VERSION:
        message = f"the reloader is of release {pod.version}, this program of {VERSION}"
        yield warning("pod-reloader", message, "build or load the image of this release, then generate the units again")
    else:
        yield ok("pod-reloader", "the reloader answers, and FRR's daemons answer it")


CHECKS = (installed, answers)
