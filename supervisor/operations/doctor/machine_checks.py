"""Is this machine fit: kernel, clock, disk, files, and the other programs that configure networks?"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from actors.static_config.trial import ACCEPTED_FILE

from .facts import Facts, FileFact
from .findings import Finding, error, ok, warning

#: What networkd must be told, or it removes what FRR makes (systemd/systemd#29034).
NETWORKD_KEYS = ("ManageForeignRoutes", "ManageForeignRoutingPolicyRules", "ManageForeignNextHops")
_NO = frozenset({"no", "false", "off", "0"})
#: A clock before 2024-01-01 was never set.
EPOCH_OF_SENSE = 1704067200
#: Our files need kilobytes; FRR, journal and package updates need more.
SCARCE_BYTES = 50 * 1024 * 1024
EXHAUSTED_BYTES = 2 * 1024 * 1024
EXHAUSTED_INODES = 16


def kernel(facts: Facts) -> Iterator[Finding]:
    """Can this kernel make the devices that we need?"""
    if facts.kinds is None:
        return
    missing = sorted(kind for kind, there in facts.kinds.items() if not there)
    for kind in missing:
        yield error(
            "kernel",
            f"this kernel cannot make devices of kind {kind}",
            f"modprobe {kind}; where there is no such module, install a full kernel (Debian: linux-image-amd64, which "
            "has what the cloud kernels leave out) and reboot",
        )
    if not missing:
        yield ok("kernel", f"makes {', '.join(sorted(facts.kinds))}")


def clock(facts: Facts) -> Iterator[Finding]:
    """Is the time of day right? Logs of several nodes are useless otherwise."""
    if facts.clock is None:
        return
    cure = "timedatectl set-ntp true (package systemd-timesyncd or chrony), then look at 'timedatectl'"
    if facts.clock.now < EPOCH_OF_SENSE:
        yield error("clock", "the clock stands before 2024: it was never set", cure)
    elif facts.clock.synchronised is False:
        yield warning("clock", "the clock is not synchronised", cure)
    else:
        yield ok("clock", "is set")


def disk(facts: Facts) -> Iterator[Finding]:
    """Is there room for what must be written before a NIC moves?"""
    for one in facts.disks or ():
        free = f"{one.path}: {one.free_bytes // (1024 * 1024)} MiB and {one.free_inodes} files are left"
        cure = f"make room on the file system of {one.path} (df -h {one.path}; journalctl --vacuum-size=100M)"
        if one.free_bytes < EXHAUSTED_BYTES or one.free_inodes < EXHAUSTED_INODES:
            yield error("disk", free, cure)
        elif one.free_bytes < SCARCE_BYTES:
            yield warning("disk", free, cure)
        else:
            yield ok("disk", free)


def files(facts: Facts) -> Iterator[Finding]:
    """May others read our secrets, or write what root acts upon?"""
    if facts.files is None:
        return
    complaints = [finding for file in facts.files for finding in _file(facts, file)]
    yield from complaints
    if not complaints:
        yield ok("files", f"modes and owners of {len(facts.files)} files are right")


def _file(facts: Facts, file: FileFact) -> Iterator[Finding]:
    shown = f"{file.path} has mode {file.mode:04o}"
    if file.mode & stat.S_IWOTH or (file.mode & stat.S_IWGRP and file.group != "root"):
        yield error("files", f"{shown}: others than root can change what the router does", f"chmod go-w {file.path}")
    elif file.owner != "root":
        yield warning("files", f"{file.path} belongs to {file.owner}, not to root", f"chown root: {file.path}")
    configs = facts.settings.configs_dir
    cure = f"chmod {'0750' if file.directory else '0600'} {file.path}"
    if _is_secret(facts, file.path) and file.mode & 0o007:
        yield error("files", f"{shown} and may hold passwords: it is open to everybody", cure)
    # A neighbour's password may be in any of these. In a directory that keeps others out any mode will do.
    elif _below(file.path, configs) and not file.directory and not file.sheltered and file.mode & stat.S_IROTH:
        cure = f"{cure}; or for all of them chmod 0750 {configs}"
        yield error("files", f"{shown} and may hold passwords: everybody can read it", cure)


def _is_secret(facts: Facts, path: str) -> bool:
    settings = facts.settings
    secret = (settings.state_dir, settings.configs_dir / "secrets")
    return any(path == str(one) or _below(path, one) for one in secret)


def _below(path: str, directory: Path) -> bool:
    return path.startswith(f"{directory}/")


def trial(facts: Facts) -> Iterator[Finding]:
    """Was a trial confirmed by a program that was killed before it wrote the files?"""
    accepted = facts.settings.state_dir / ACCEPTED_FILE
    if facts.files is not None and any(file.path == str(accepted) for file in facts.files):
        message = (
            "a trial was confirmed but its files are not in their place: the daemon goes on with what it remembers"
        )
        yield warning(
            "trial", message, "openperouter try --confirm completes it, openperouter try --revert takes it back"
        )


def networkd(facts: Facts) -> Iterator[Finding]:
    """Does systemd-networkd leave FRR's routes and our devices alone?"""
    unit = facts.unit("systemd-networkd.service")
    if facts.managers is None or unit is None:
        return
    if unit.active != "active":
        yield ok("networkd", "systemd-networkd does not run")
        return
    told = facts.managers.networkd
    missing = [key for key in NETWORKD_KEYS if told.get(key, "").lower() not in _NO]
    cure = "systemctl restart systemd-networkd"
    if missing:
        yield error(
            "networkd",
            f"systemd-networkd removes what FRR makes: {', '.join(missing)} is not 'no'",
            f"put {', '.join(f'{key}=no' for key in missing)} into [Network] of "
            f"/etc/systemd/networkd.conf.d/openperouter.conf, then {cure}",
        )
    elif facts.managers.networkd_changed > unit.started > 0:
        yield warning("networkd", "systemd-networkd runs since before it was told to leave foreign routes alone", cure)
    else:
        yield ok("networkd", "systemd-networkd leaves foreign routes, rules and nexthops alone")
    if not facts.managers.unmanaged:
        yield warning(
            "networkd",
            "no .network file keeps systemd-networkd off the router's devices on this host",
            "restore /usr/lib/systemd/network/10-openperouter.network (reinstall the package), then networkctl reload",
        )


def network_manager(facts: Facts) -> Iterator[Finding]:
    """Does NetworkManager leave our devices alone?"""
    unit = facts.unit("NetworkManager.service")
    if facts.managers is None or unit is None:
        return
    if unit.active != "active":
        yield ok("network-manager", "NetworkManager does not run")
    elif facts.managers.network_manager:
        yield ok("network-manager", "NetworkManager is told to leave the router's devices alone")
    else:
        yield error(
            "network-manager",
            "NetworkManager is not told to leave the router's devices alone",
            "restore /usr/lib/NetworkManager/conf.d/openperouter.conf (reinstall the package), nmcli general reload",
        )


def udev(facts: Facts) -> Iterator[Finding]:
    """Does udev leave the addresses and names of our devices alone?"""
    found = facts.managers
    if found is None:
        return
    cure = "restore /usr/lib/{} (reinstall the package), then udevadm control --reload"
    if not found.link:
        message = "no .link file keeps udev from changing the hardware addresses of the router's devices on this host"
        yield warning("udev", message, cure.format("systemd/network/10-openperouter.link"))
    if not found.rules:
        message = "no udev rule keeps the name of a NIC that comes back from the router"
        yield warning("udev", message, cure.format("udev/rules.d/70-openperouter.rules"))
    if found.link and found.rules:
        yield ok("udev", "udev is told to leave the router's devices alone")


CHECKS = (kernel, clock, disk, files, trial, networkd, network_manager, udev)
