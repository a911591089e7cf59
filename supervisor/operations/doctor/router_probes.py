"""Looks at the router: both namespaces, the journal of NICs, the configuration, the daemon."""

from __future__ import annotations

from pathlib import Path

from actors.netlink.planning.observed import NIC_GROUP, NamespaceView
from actors.netlink.planning.wanted import ROUTER_SYSCTLS
from actors.netlink.state_files import StateFiles
from actors.netlink.wire.namespace import NAMESPACES, NamespaceHandle, NamespaceMissing
from config.settings import Settings
from config.status import Status, StatusFormatError
from supervisor.cli.options import CONTROL_SOCKET, STATE_FILE

from ..control_client import NoAnswerError, NotRunningError, ask
from ..node_configuration import read_all
from .facts import ConfigurationFacts, DaemonFacts, NetworkFacts

SYSCTLS = Path("/proc/sys/net/ipv4/conf")
LOCKS = Path("/proc/locks")


def network(settings: Settings) -> NetworkFacts:
    """Read both namespaces' links and addresses; a router that is not there is a fact like any other."""
    host_end = NamespaceHandle("host", None)
    try:
        host = host_end.view()
    finally:
        host_end.close()
    journal = StateFiles.of(settings, read_only=True).journal()
    rp_filter = _rp_filter(host)
    try:
        router_end = NamespaceHandle("router", NAMESPACES / settings.netns)
    except NamespaceMissing as missing:
        return NetworkFacts(host, None, str(missing), {}, rp_filter, journal)
    try:
        router = router_end.view()
        keys = [key for key, _, _ in ROUTER_SYSCTLS]
        keys += [f"net.ipv4.conf.{name}.forwarding" for name in _routed(router)]
        # Dots in a device's name would be taken for separators, and no device of ours has any.
        sysctls = {key: router_end.read_sysctl(key) for key in keys}
    finally:
        router_end.close()
    return NetworkFacts(host, router, "", sysctls, rp_filter, journal)


def _routed(view: NamespaceView) -> list[str]:
    return [
        name for name, link in sorted(view.links.items()) if (link.ours or link.group == NIC_GROUP) and "." not in name
    ]


def _rp_filter(host: NamespaceView) -> dict[str, str]:
    found = {}
    for name in ("all", *(name for name, link in sorted(host.links.items()) if link.ours)):
        try:
            found[name] = (SYSCTLS / name / "rp_filter").read_text().strip()
        except FileNotFoundError:
            continue
    return found


def configuration(settings_file: Path) -> ConfigurationFacts:
    """Read the files as the daemon would, without what it remembers of better ones."""
    read = read_all(settings_file, remembered=False)
    # Without an index of its own the node gets 0 for the sake of looking, and the problem says so.
    unknown = any(problem.origin.path == str(read.settings.node_config_file) for problem in read.problems)
    return ConfigurationFacts(len(read.resources), read.problems, read.desired, node_known=not unknown)


def daemon(settings: Settings) -> DaemonFacts:
    """Find out who holds the lock, without trying to take it, and ask the daemon; else read its last words."""
    holder = lock_holder(settings.run_dir / "lock")
    try:
        answer = next(ask(settings.run_dir / CONTROL_SOCKET, {"verb": "status"}), None)
        if isinstance(answer, dict) and "status" in answer:
            return DaemonFacts(holder, "", Status.from_data(answer["status"]))
        silent = "it closed the connection"
    except (NotRunningError, NoAnswerError, StatusFormatError) as error:
        silent = str(error)
    return DaemonFacts(holder, silent, _last_words(settings.run_dir / STATE_FILE))


def lock_holder(path: Path) -> int:
    """Return the process that holds a flock on a file, 0 when none does (proc_locks(5))."""
    try:
        inode = str(path.stat().st_ino)
    except FileNotFoundError:
        return 0
    for line in LOCKS.read_text().splitlines():
        words = line.split()
        found = len(words) >= 6 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == inode
        # Inode numbers repeat between file systems, and the device's number is not the same everywhere.
        if found and words[4].isdigit() and _has_open(int(words[4]), path):
            return int(words[4])
    return 0


def _has_open(pid: int, path: Path) -> bool:
    try:
        return any(_same(descriptor, path) for descriptor in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False


def _same(descriptor: Path, path: Path) -> bool:
    try:
        return descriptor.samefile(path)
    except OSError:
        # Closed meanwhile, or something without a file behind it.
        return False


def _last_words(path: Path) -> Status | None:
    try:
        return Status.from_json(path.read_bytes())
    except (FileNotFoundError, StatusFormatError):
        return None
