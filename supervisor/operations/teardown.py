"""Taking the router down and giving its NICs back, without the daemon and without its configuration.

The order is the daemon's: FRR first, the kernel second. The router's configuration is not needed: FRR gets that of an
unconfigured node, and the kernel converges to the state of such a node like to any other. FRR, the kernel and the
journal of NICs alone show what is left to do, so a teardown that was killed can be repeated, and a second one finds
nothing to do.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio

from actors.frr.apply import Applier
from actors.frr.driver import VtyshDriver
from actors.frr.render.render import render
from actors.lib.frr.pod_processes import processes_of
from actors.lib.frr.vtysh import FrrUnavailable, Vtysh
from actors.lib.metrics.textfile import candidates
from actors.lib.network_namespace import NAMESPACES
from actors.netlink.cni.attachments import PLUGIN_SECONDS, Attachments
from actors.netlink.cni.dhcp import DhcpDaemon, Leases
from actors.netlink.converge import converge
from actors.netlink.kernel import Kernel, LinuxKernel, Refusal
from actors.netlink.planning.observed import Observed
from actors.netlink.planning.steps import Step
from actors.netlink.state_files import StateFiles
from actors.netlink.wire.namespace import NamespaceHandle, NamespaceMissing
from config.desired import DesiredState
from config.settings import Settings

from ..process.atomic_file import write_atomic
from ..process.subprocesses import CommandMissing, Completed, run_command
from ..runtime.faults import DependencyFault, KernelFault, leaves
from .paths import STATE_FILE, SYSTEMD_BOOTED, frr_units

#: Prints one line for the user.
Report = Callable[[str], None]

#: Time for systemd to stop FRR (``TimeoutSec`` of its unit is two minutes), and for ``ip`` to delete a namespace.
STOP_SECONDS = 150.0
DELETE_SECONDS = 30.0
#: Devices that the kernel itself puts into each namespace once a module is loaded (``fb_tunnels_only_for_init_net``).
_OF_THE_KERNEL = frozenset(
    ("lo", "tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0", "ip6tnl0", "ip6gre0", "ip6gretap0")
)


def nothing() -> DesiredState:
    """Return the desired state of an unconfigured node."""
    return DesiredState(generation=0, node_name=socket.gethostname(), node_index=0)


async def clear_frr(settings: Settings, report: Report) -> str:
    """Leave FRR with its header only, now and for its next start; return why it may still have more, or nothing.

    FRR need not be running.
    """
    conf = settings.frr_etc_dir / settings.frr_pathspace / "frr.conf"
    text = render(nothing(), hostname=socket.gethostname(), listen_limit=settings.bgp_listen_limit).text
    why = await _clear_running(settings, conf, report)
    try:
        _clear_file(conf, text, report)
    except OSError as error:
        return why or f"cannot write {conf}: {error.strerror or error}"
    return why


async def _clear_running(settings: Settings, conf: Path, report: Report) -> str:
    try:
        await Vtysh.of(settings).daemons()
    except (FrrUnavailable, CommandMissing):
        report("FRR: not running")
        return ""
    except DependencyFault as fault:
        # With podman, a reloader that is absent says nothing of FRR.
        if settings.runtime == "podman" and not _runs(settings):
            report("FRR: not running")
            return ""
        return str(fault)
    rendered = render(nothing(), hostname=socket.gethostname(), listen_limit=settings.bgp_listen_limit)
    outcome = await Applier(VtyshDriver(settings), conf).apply(nothing(), rendered)
    if outcome.applied:
        report("FRR: sessions and VRFs removed" if outcome.changed else "FRR: no configuration of the router")
    return outcome.error


def _runs(settings: Settings) -> bool:
    try:
        return bool(processes_of(settings).running())
    except DependencyFault:
        return False


def _clear_file(conf: Path, text: str, report: Report) -> None:
    """Make FRR start empty as well. Without a file there is nothing of ours to clear."""
    try:
        status = conf.stat()
        current = conf.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return
    if current != text.encode():
        write_atomic(conf, text, mode=0o640, owner=(status.st_uid, status.st_gid))
        report(f"FRR: {conf} cleared")


class _ReportingKernel:
    """A kernel that prints each step once it is done."""

    def __init__(self, kernel: Kernel, report: Report) -> None:
        self._kernel = kernel
        self._report = report
        self.steps = 0

    def observe(self, desired: DesiredState | None = None, known: Observed | None = None) -> Observed:
        """Read what there is."""
        return self._kernel.observe(desired, known)

    def apply(self, step: Step) -> None:
        """Carry out one step and print it."""
        self._kernel.apply(step)
        self._done(step)

    def apply_all(self, batch: Sequence[Step]) -> list[Refusal | None]:
        """Carry out independent steps and print those that were not refused."""
        results = self._kernel.apply_all(batch)
        for step, refusal in zip(batch, results, strict=True):
            if refusal is None:
                self._done(step)
        return results

    def _done(self, step: Step) -> None:
        self.steps += 1
        self._report(f"kernel: {step}")


def clear_kernel(settings: Settings, report: Report) -> tuple[str, ...]:
    """Remove our devices, give the NICs back as they were, forget all of it; return what the kernel refused.

    Blocks. Without the router's namespace, the router's devices in the host are still removed. Raises
    ``KernelFault``, and ``OSError`` for the state directory.
    """
    state = StateFiles.of(settings)
    try:
        errors = _clear_between(NAMESPACES / settings.netns, settings, state, report)
    except NamespaceMissing as missing:
        report(f"kernel: {missing}")
        with empty_namespace() as stand_in:
            errors = _clear_between(stand_in, settings, state, report)
    if not errors:
        for path in state.forget():
            report(f"removed {path}")
    return errors


def _clear_between(router: Path, settings: Settings, state: StateFiles, report: Report) -> tuple[str, ...]:
    async def with_dhcp() -> tuple[str, ...]:
        daemon = DhcpDaemon.of(settings)
        leases = Leases(daemon.socket, lambda: trio.from_thread.run(daemon.ready))
        plugins = Attachments.of(settings, state, _run_plugin, leases)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(daemon.run, lambda: None)
            errors = await trio.to_thread.run_sync(_clear_with, router, plugins, state, report)
            nursery.cancel_scope.cancel()
        return errors

    try:
        return trio.run(with_dhcp)
    except ExceptionGroup as errors:
        raise leaves(errors)[0] from None


def _clear_with(router: Path, plugins: Attachments, state: StateFiles, report: Report) -> tuple[str, ...]:
    kernel = LinuxKernel(router, state, plugins=plugins)
    try:
        reporting = _ReportingKernel(kernel, report)
        result = converge(nothing(), reporting)
        if not reporting.steps:
            report("kernel: nothing of the router is left")
        return result.errors
    finally:
        kernel.close()


@contextmanager
def empty_namespace() -> Iterator[Path]:
    """Give the path of a network namespace without anything in it, which is gone afterwards."""
    command = ("unshare", "--net", "sh", "-c", "echo; exec cat")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        if process.stdout is None or not process.stdout.readline():
            _, error = process.communicate()
            raise KernelFault(f"no new network namespace: {error.decode().strip()}")
        yield Path(f"/proc/{process.pid}/ns/net")


def forget_status(settings: Settings, report: Report) -> None:
    """Remove the daemon's last status, which shows a router that is gone."""
    _remove(settings.run_dir / STATE_FILE, report)
    for path in candidates(settings):
        _remove(path, report)


def _remove(path: Path, report: Report) -> None:
    try:
        path.unlink()
    except FileNotFoundError:
        return
    report(f"removed {path}")


def remove_namespace(settings: Settings, report: Report) -> str:
    """Stop FRR in the router's namespace and delete it; return why not, or nothing.

    It is kept if foreign devices are in it: the kernel would destroy virtual ones and rename hardware.
    """
    path = NAMESPACES / settings.netns
    if not path.exists():
        report(f"network namespace {settings.netns}: does not exist")
        return ""
    foreign = _foreign_devices(path)
    if foreign:
        return f"the network namespace {settings.netns} is kept, since it contains foreign devices: {' '.join(foreign)}"
    if SYSTEMD_BOOTED.is_dir():
        # The pod's unit comes first, and its containers stop with it.
        unit = frr_units(settings)[0]
        stopped = _run(("systemctl", "stop", unit), STOP_SECONDS)
        report(f"stopped {unit}" if stopped.returncode == 0 else f"systemctl: {stopped.stderr.strip()}")
    deleted = _run(("ip", "netns", "delete", settings.netns), DELETE_SECONDS)
    if deleted.returncode != 0:
        return f"ip netns delete {settings.netns}: {deleted.stderr.strip()}"
    report(f"network namespace {settings.netns}: deleted")
    return ""


def _run(argv: tuple[str, ...], seconds: float) -> Completed:
    return trio.run(partial(run_command, argv, seconds=seconds))


def _run_plugin(program: Path, env: Mapping[str, str], stdin: str) -> Completed:
    return trio.run(partial(run_command, (str(program),), seconds=PLUGIN_SECONDS, stdin=stdin, env=env))


def _foreign_devices(path: Path) -> list[str]:
    """Return the names of devices in a namespace that neither we nor the kernel put there."""
    try:
        end = NamespaceHandle("router", path)
    except NamespaceMissing:
        return []
    try:
        return sorted(set(end.view().links) - _OF_THE_KERNEL)
    finally:
        end.close()
