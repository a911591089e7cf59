"""The machine below the router: devices that its kernel can make, its clock, its disk."""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from config.settings import Settings
from supervisor.process.subprocesses import run_command

from ..teardown import empty_namespace
from .findings import Finding, error, ok, warning

#: Time for a program that queries the local system, in seconds.
QUERY_SECONDS = 10.0
KINDS = ("bridge", "veth", "vrf", "vxlan")
#: ``ip link add probe type ...``: the parameters that a kind requires.
_PARAMETERS = {"vrf": ("table", "99"), "vxlan": ("id", "1", "dstport", "4789")}
#: adjtimex(2) returns it for an unsynchronised clock; a struct timex is 208 bytes on 64-bit machines.
_TIME_ERROR = 5
_TIMEX_BYTES = 512
#: A clock before 2024-01-01 was never set.
EARLIEST_TIME = 1704067200
#: Our files need kilobytes; FRR, journal and package updates need more.
SCARCE_BYTES = 50 * 1024 * 1024
EXHAUSTED_BYTES = 2 * 1024 * 1024
EXHAUSTED_INODES = 16


@dataclass(frozen=True, slots=True)
class Clock:
    """``now`` in Unix seconds; ``synchronised`` None when the kernel does not say."""

    now: float
    synchronised: bool | None


@dataclass(frozen=True, slots=True)
class Disk:
    """What is left on the file system of a directory, for root."""

    path: str
    free_bytes: int
    free_inodes: int


async def read_device_kinds() -> dict[str, bool]:
    """Return which kinds of devices this kernel can make: loaded, built in, loadable, or made in an empty namespace."""
    known = _modules()
    return {kind: kind in known or await _makes(kind) for kind in KINDS}


def _modules() -> set[str]:
    """Return the kinds among this kernel's modules, those built in included; reading loads none."""
    found = {kind for kind in KINDS if (Path("/sys/module") / kind).is_dir()}
    for name in ("modules.builtin", "modules.dep"):
        path = Path("/lib/modules") / os.uname().release / name
        try:
            text = path.read_text()
        except OSError:
            continue
        found |= {kind for kind in KINDS if re.search(rf"/{kind}\.ko(?:\.\w+)?(?::|$)", text, re.MULTILINE)}
    return found


async def _makes(kind: str) -> bool:
    """Try it where it changes nothing: no module by that name is there that the attempt could load."""
    with empty_namespace() as path:
        command = ("nsenter", f"--net={path}", "ip", "link", "add", "probe", "type", kind, *_PARAMETERS.get(kind, ()))
        return (await run_command(command, seconds=QUERY_SECONDS)).returncode == 0


def read_clock() -> Clock:
    """Read the clock, and whether the kernel regards it as synchronised."""
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return Clock(time.time(), None if state < 0 else state != _TIME_ERROR)


def read_disks(settings: Settings) -> tuple[Disk, ...]:
    """Return the room that is left where we write; a directory that does not exist yet counts as the next above."""
    written = (settings.state_dir, settings.run_dir, settings.frr_etc_dir / settings.frr_pathspace)
    places = dict.fromkeys(_existing(path) for path in written)
    return tuple(_disk(path) for path in places)


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.is_dir())


def _disk(path: Path) -> Disk:
    status = os.statvfs(path)
    # File systems without a fixed number of files say 0 of 0.
    inodes = status.f_ffree if status.f_files else 1 << 30
    return Disk(str(path), status.f_bfree * status.f_frsize, inodes)


def kernel(device_kinds: Mapping[str, bool]) -> Iterator[Finding]:
    """Can this kernel make the devices that we need?"""
    missing = sorted(kind for kind, there in device_kinds.items() if not there)
    for kind in missing:
        yield error(
            "kernel",
            f"this kernel cannot create devices of kind {kind}",
            f"modprobe {kind}; if there is no such module, install a full kernel (Debian: linux-image-amd64, which "
            "has the modules that cloud kernels lack) and reboot",
        )
    if not missing:
        yield ok("kernel", f"can create {', '.join(sorted(device_kinds))}")


def clock_is_set(clock: Clock) -> Iterator[Finding]:
    """Is the time of day right? Logs of several nodes are useless otherwise."""
    fix = "timedatectl set-ntp true (package systemd-timesyncd or chrony), then check with 'timedatectl'"
    if clock.now < EARLIEST_TIME:
        yield error("clock", "the clock shows a time before 2024: it was never set", fix)
    elif clock.synchronised is False:
        yield warning("clock", "the clock is not synchronised", fix)
    else:
        yield ok("clock", "is set")


def disk_space(disks: tuple[Disk, ...]) -> Iterator[Finding]:
    """Is there room for what must be written before a NIC moves?"""
    for one in disks:
        free = f"{one.path}: {one.free_bytes // (1024 * 1024)} MiB and {one.free_inodes} inodes are free"
        fix = f"free space on the file system of {one.path} (df -h {one.path}; journalctl --vacuum-size=100M)"
        if one.free_bytes < EXHAUSTED_BYTES or one.free_inodes < EXHAUSTED_INODES:
            yield error("disk", free, fix)
        elif one.free_bytes < SCARCE_BYTES:
            yield warning("disk", free, fix)
        else:
            yield ok("disk", free)


CHECKS = (kernel, clock_is_set, disk_space)
