"""The world around a simulated daemon: kernel, FRR, API server, disk and clock, which outlive every daemon.

The contract-tested fakes hold the state. A daemon reaches them through a :class:`Life`, one per process: every write
passes :meth:`Life.writing`, which keeps the trace and where the process can be killed; what was done before stays
done, and the dying code cannot do anything any more.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import re
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_interface
from pathlib import Path
from typing import Any, Final

import trio

from actors.lib.kube.errors import ApiError, UnreachableError, error_for
from actors.netlink.kernel import Refusal
from actors.netlink.planning import steps
from actors.netlink.planning.observed import Address, Link, LinkKind, Namespace, Observed, SavedRoute
from actors.netlink.state_files import StateFiles
from actors.netlink.wire.socket import KernelRefusal
from config.desired import DesiredState, Family
from config.settings import Settings
from supervisor.process.sd_notify import Notifier
from supervisor.runtime.faults import DependencyFault
from tests.fakes.api_server import FakeApiServer
from tests.fakes.frr import FakeFrr
from tests.fakes.kernel import FakeKernel, one_by_one

from .episode import NICS, NODE, NONSENSE

#: The wall clock when an episode begins.
EPOCH: Final = 1_800_000_000.0
#: What vtysh's deadlines come to, seconds.
VTYSH_SECONDS: Final = 20.0
#: So many pieces of work at the same moment have no end.
ENDLESS: Final = 1000
_READS: Final = frozenset({"get", "list", "count", "watch", "dry-run"})
_FRR_WRITES: Final = frozenset({"send", "reload"})


class VirtualClock(trio.abc.Clock):
    """A clock that jumps to the next deadline when no task can run and nothing that was sent is unread."""

    def __init__(self) -> None:
        self._now = 0.0
        #: Whether something was sent to a socket since tasks last waited: its reader comes first.
        self.sent = False

    def start_clock(self) -> None:
        """Begin at zero."""

    def current_time(self) -> float:
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return 0, since nothing happens in real time; trio asks when no task can run."""
        if self.sent:
            self.sent = False
        elif deadline != math.inf:
            self._now = max(self._now, deadline)
        return 0


class Killed(BaseException):
    """The daemon's process has ended by SIGKILL. What handles errors does not handle this."""


@dataclass
class Trace:
    """What happened, in order; the same ``digest`` for two runs that did the same, in whatever directory."""

    directory: Path
    lines: list[str] = field(default_factory=list)

    def add(self, kind: str, text: str) -> None:
        self.lines.append(f"{trio.current_time():8.2f} {kind}: {text}".replace(str(self.directory), ""))

    @property
    def digest(self) -> str:
        return hashlib.blake2b("\n".join(self.lines).encode(), digest_size=8).hexdigest()


@dataclass
class Faults:
    """The faults that there are at this moment."""

    refused: dict[str, int] = field(default_factory=dict)
    """Text in a netlink write, and the error with which that is refused."""
    notifications_lost: bool = False
    slow_threads: float = 0.0
    frr_down: bool = False
    frr_hangs: bool = False
    full: frozenset[str] = frozenset()
    """Top directories that take nothing: ``state``, ``run``, ``etc``."""
    api_reads: int | None = None
    """The HTTP status of such requests; 0: no connection."""
    api_writes: int | None = None
    clock: float = 0.0


def new_kernel() -> FakeKernel:
    """Return a host with two NICs, a user's bridge, and others' devices with names like ours."""
    kernel = FakeKernel()
    for number, nic in enumerate(NICS, start=1):
        addresses = (Address(ip_interface(f"192.168.1{number}.3/24")), Address(ip_interface(f"fd00:{number}::3/64")))
        link = Link(0, nic, up=True, mtu=9000, mac=f"52:54:00:00:00:0{number}", altnames=(f"enp{number}s0",))
        kernel.add(Namespace.HOST, link, *addresses)
        kernel.routes[nic] = [SavedRoute(Family.IPV4, f"10.{number}.0.0/16", 254, gateway=f"192.168.1{number}.1")]
    kernel.add(Namespace.HOST, Link(0, "br0", kind=LinkKind.BRIDGE, up=True))
    kernel.add(Namespace.HOST, Link(0, "br-hs-5", kind=LinkKind.BRIDGE, up=True), Address(ip_interface("10.5.0.1/24")))
    kernel.add(Namespace.ROUTER, Link(0, "customer", kind=LinkKind.VRF, up=True, table=4242))
    return kernel


#: Devices that are not ours, by namespace and name.
FOREIGN: Final = (
    (Namespace.HOST, "br0"),
    (Namespace.HOST, "br-hs-5"),
    (Namespace.ROUTER, "customer"),
    (Namespace.HOST, "lo"),
)


class World:
    """Everything outside the process, with the faults that it has at the moment."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.clock = directory, VirtualClock()
        self.settings = Settings(
            node_config_file=directory / "etc/node-config.yaml",
            configs_dir=directory / "etc/configs",
            state_dir=directory / "state",
            run_dir=directory / "run",
            frr_etc_dir=directory / "etc/frr",
            frr_run_dir=directory / "frr",
            credentials_dir=directory / "credentials",
            audit_interval_seconds=10,
            settle_seconds=2,
            # Packet sockets are not simulated: tests/actors/netlink/refresh and tests/kernel have them.
            silent_host_seconds=0,
        )
        for place in (self.settings.configs_dir, self.boot_file.parent, self.sockets, directory / "credentials"):
            place.mkdir(parents=True)
        for place in (self.settings.state_dir, self.settings.run_dir):
            place.mkdir()
        self.settings.node_config_file.write_text(f'{{"nodeName": "{NODE}", "nodeIndex": {{"index": 1}}}}')
        self.trace, self.faults = Trace(directory), Faults()
        self.kernel, self.frr = new_kernel(), FakeFrr(dry_refusals={NONSENSE})
        self.api = FakeApiServer(watch_seconds=40)
        self.api.trouble = self._api_trouble
        self.api.put_node(NODE)
        self.life: Life | None = None
        self.monitors: dict[Namespace, list[socket.socket]] = {namespace: [] for namespace in Namespace}
        self.gone: dict[str, tuple[Link, list[Address], list[SavedRoute]]] = {}
        self.on_write: Callable[[str, object], None] = lambda where, what: None
        self.edits = 0
        #: When each thing that failed was tried.
        self.failed: dict[str, list[float]] = {}
        self.pieces, self.worked_at, self.endless = 0, 0.0, False
        self.inside = Namespace.HOST
        self.start_frr()

    @property
    def boot_file(self) -> Path:
        return self.settings.frr_etc_dir / self.settings.frr_pathspace / "frr.conf"

    @property
    def sockets(self) -> Path:
        return self.settings.frr_run_dir / self.settings.frr_pathspace

    def wall(self) -> float:
        """Return the wall clock."""
        return EPOCH + trio.current_time() + self.faults.clock if self.life else EPOCH

    def write_file(self, path: Path, text: str) -> None:
        """Write as a user does; the time stamp is the virtual clock's, so that a poll sees it or not by that alone."""
        path.write_text(text)
        self.edits += 1
        os.utime(path, ns=(0, self.edits * 1_000_000_000))

    def fails(self, what: str) -> None:
        """Note a failure."""
        self.failed.setdefault(what, []).append(trio.current_time())

    def work(self) -> None:
        """Note a piece of work. Where it is followed by another one at once, time would never pass: that ends here."""
        now = trio.current_time()
        self.pieces = self.pieces + 1 if now == self.worked_at else 1
        self.worked_at = now
        if self.life is not None and self.pieces > ENDLESS:
            self.endless = True
            self.life.die()
            raise Killed

    def start_frr(self) -> None:
        """Start FRR from its configuration on disk, with new sockets."""
        self.frr.text = self.boot_file.read_text() if self.boot_file.exists() else ""
        for old in self.sockets.iterdir():
            old.unlink()
        # Some file systems use an inode again at once, and a moment is coarse: the name is what differs for certain.
        self.edits += 1
        self.write_file(self.sockets / f"started-{self.edits}.vty", "")

    def notify(self, namespace: Namespace, name: str) -> None:
        """Send a netlink notification about a device."""
        if self.faults.notifications_lost:
            return
        link = self.kernel.links.get((namespace, name))
        body = struct.pack("=IHHII", 24 + len(name), 16, 0, 0, 0) + struct.pack("=Ii", 0, link.index if link else 0)
        for monitor in self.monitors[namespace]:
            try:
                monitor.send(body + name.encode())
                self.clock.sent = True
            except OSError:
                # A full buffer, or one whose reader has gone: notifications are lost, as in the kernel.
                continue

    def open_monitor(self) -> socket.socket:
        """Return a subscribed socket of the namespace in which the caller is."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for one in (ours, theirs):
            one.setblocking(False)
        self.monitors[self.inside].append(ours)
        return theirs

    def close_monitors(self) -> None:
        for monitors in self.monitors.values():
            while monitors:
                monitors.pop().close()

    def unplug(self, nic: str) -> None:
        """Take a NIC out of the machine, with what the host's network manager has configured on it."""
        for namespace in Namespace:
            link = self.kernel.links.pop((namespace, nic), None)
            if link is not None:
                self.kernel.addresses.pop((namespace, nic), None)
                self.kernel.routes.pop(nic, None)
                new = new_kernel()
                key = (Namespace.HOST, nic)
                self.gone[nic] = (new.links[key], new.addresses[key], new.routes[nic])
                self.notify(namespace, nic)

    def plug(self, nic: str) -> None:
        """Put a NIC back; the host's network manager configures it."""
        if nic in self.gone:
            link, addresses, routes = self.gone.pop(nic)
            self.kernel.add(Namespace.HOST, link, *addresses)
            self.kernel.routes[nic] = routes
            self.notify(Namespace.HOST, nic)

    def _api_trouble(self, verb: str, path: str) -> ApiError | None:
        if self.life is not None and verb not in _READS:
            # The name of an Event is a digest of its text, in which there are this world's own paths.
            self.life.writing("api", f"{verb} {re.sub(r'[.][0-9a-f]{16}$', '', path)}")
        code = self.faults.api_reads if verb in _READS else self.faults.api_writes
        if code is None:
            return None
        return error_for(code, "Injected", "a fault", 2) if code else UnreachableError("connection refused")


@dataclass
class Life:
    """One process of the daemon, and where it dies: at the write number ``left`` from now to ``doomed_at``."""

    world: World
    dead: bool = False
    doomed_at: str = ""
    left: int = 0
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    torn: list[tuple[Path, bytes]] = field(default_factory=list)
    ended: trio.Event = field(default_factory=trio.Event)

    def die(self) -> None:
        self.dead = True
        self.ended.set()
        self.scope.cancel()

    async def until_ended(self) -> None:
        """Wait for the end of the process."""
        await self.ended.wait()
        raise Killed

    def abandon(self, exit_code: int) -> None:
        """End as by ``os._exit``."""
        self.world.trace.add("daemon", f"abandoned its children with exit code {exit_code}")
        self.die()
        raise Killed

    def doom(self, where: str, left: int) -> None:
        self.doomed_at, self.left = where, left

    def writing(self, where: str, what: object) -> None:
        """Note a write that is about to be done. Raises :class:`Killed` instead of letting it be done."""
        if self.dead:
            raise Killed
        if self.doomed_at == where:
            self.left -= 1
            if self.left <= 0:
                self.world.trace.add("killed", f"before {where} {what}")
                self.die()
                raise Killed
        self.world.trace.add(where, str(what))


def devices(step: steps.Step) -> set[tuple[Namespace, str]]:
    """Return the devices that a step changes."""
    match step:
        case steps.CreateLink(wanted=wanted):
            peer = {(Namespace.ROUTER, wanted.peer)} if wanted.peer else set()
            return {(wanted.namespace, wanted.name), *peer}
        case steps.ChangeLink() | steps.DeleteLinks() | steps.AddAddress() | steps.RemoveAddress():
            names = (
                step.names
                if isinstance(step, steps.DeleteLinks)
                else (getattr(step, "name", getattr(step, "link", "")),)
            )
            return {(step.namespace, name) for name in names}
        case steps.MoveLink():
            return {(namespace, step.name) for namespace in Namespace}
        case steps.AddRoute() | steps.AddAltname() | steps.SetNicSysctls():
            return {(Namespace.HOST, step.link)}
        case steps.SetSysctl(key=key) if ".conf." in key and key.split(".")[3] not in ("all", "default"):
            return {(step.namespace, key.split(".")[3])}
    return set()


class SimulatedKernel:
    """Takes the place of ``LinuxKernel``: the fake kernel, and the real state files."""

    def __init__(self, world: World, life: Life, state: StateFiles) -> None:
        self._world, self._life, self._state = world, life, state

    @property
    def router(self) -> SimulatedKernel:
        return self

    def call(self, function: Callable[[Any], Any]) -> Any:
        """Run a function in the router's namespace."""
        self._world.inside = Namespace.ROUTER
        try:
            return function(None)
        finally:
            self._world.inside = Namespace.HOST

    def close(self) -> None:
        return

    def release_router(self) -> None:
        return

    def router_is_current(self) -> bool:
        return True

    def observe(self, desired: DesiredState | None = None, known: Observed | None = None) -> Observed:
        seen = self._world.kernel.observe(desired, known)
        return replace(seen, journal=self._state.journal(), tables=self._state.tables())

    def apply_all(self, batch: Sequence[steps.Step]) -> list[Refusal | None]:
        """Apply a batch; the process can be killed at any step of it."""
        return one_by_one(self, batch)

    def apply(self, step: steps.Step) -> None:
        world = self._world
        if step.writes_kernel:
            self._life.writing("kernel", step)
            for words, number in world.faults.refused.items():
                if words in str(step):
                    world.fails(str(step))
                    raise KernelRefusal(number, os.strerror(number))
        match step:
            case steps.SaveNic():
                self._state.save_nic(step.record)
            case steps.ForgetNic():
                self._state.forget_nic(step.name)
            case steps.SaveTables():
                self._state.save_tables(step.tables)
        world.kernel.apply(step)
        world.on_write("kernel", step)
        for namespace, name in sorted(devices(step)):
            world.notify(namespace, name)


class SimulatedDriver:
    """Takes the place of ``VtyshDriver``: the fake FRR, with its faults."""

    def __init__(self, world: World, life: Life) -> None:
        self._world, self._life = world, life

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._world.frr, name)

        async def call(*arguments: Any) -> Any:
            world, life = self._world, self._life
            await vtysh(world, name)
            world.frr.vrf_devices = {
                link.name for (where, _), link in world.kernel.links.items()
                if where is Namespace.ROUTER and link.kind == LinkKind.VRF
            }  # fmt: skip
            if name in _FRR_WRITES:
                try:
                    life.writing("frr", f"{name} {arguments[0]!r}")
                except Killed:
                    if name == "send":
                        lines = arguments[0].splitlines()
                        world.frr.edit("\n".join(lines[: len(lines) // 2]))
                    raise
            answer = await method(*arguments)
            if name in _FRR_WRITES:
                world.on_write("frr", arguments[0])
            return answer

        return call


async def vtysh(world: World, what: str) -> None:
    """Start vtysh for something. Raises what happens when FRR does not answer."""
    world.work()
    if world.faults.frr_hangs or world.faults.frr_down:
        world.fails(f"FRR: {what}")
    if world.faults.frr_hangs:
        await trio.sleep(VTYSH_SECONDS)
        raise DependencyFault("vtysh did not end within 20 s and was killed")
    if world.faults.frr_down:
        raise DependencyFault("FRR does not answer: failed to connect to any daemons")


class SimulatedDisk:
    """Takes the place of ``os`` where files are written: a full disk, and death in the middle of a file."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._open: dict[int, Path] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            self._refuse(path)
        descriptor = os.open(path, flags, mode)
        self._open[descriptor] = path
        return descriptor

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        path, life = self._open[descriptor], self._world.life
        self._refuse(path)
        if life is not None:
            try:
                life.writing("disk", f"{path.parent.name}/{path.name.strip('.').split('.')[0]}")
            except Killed:
                life.torn.append((path, bytes(data[: len(data) // 2])))
                raise
        return os.write(descriptor, data)

    def _refuse(self, path: Path) -> None:
        full = self._world.faults.full
        if full and path.relative_to(self._world.directory).parts[0] in full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


class RecordingNotifier(Notifier):
    """systemd, which records what it receives."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.sent: list[str] = []
        self.enabled = True

    def _deliver(self, message: str) -> bool:
        self.sent.append(message)
        if not message.startswith(("WATCHDOG", "EXTEND", "RELOADING")):
            self._world.trace.add("systemd", message)
        return True
