"""The composition root: every channel is made here, and every child is listed here, in start order.

Read :func:`children` from top to bottom and you have the whole machine. Channels outlive the children at their ends;
the graph that they form is checked before anything starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from actors.api_mirror import actor as mirror
from actors.api_wait import actor as api_wait
from actors.crd_watch import actor as crd_watch
from actors.desired import actor as desired
from actors.frr import actor as frr
from actors.health import actor as health
from actors.netlink import actor as netlink
from actors.netlink.preview import interface_addresses
from actors.report import actor as report
from actors.static_config import actor as static_config
from actors.status_writer import actor as announce
from actors.systemd import actor as systemd
from config.api import ApiAccess, ApiSnapshot
from config.desired import DesiredState
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome, StaticSnapshot
from config.settings import Settings
from config.status import ActorStatus, Status

from . import control
from .process.sd_notify import Notifier
from .process.signals import request_reload
from .runtime import graph, watchdog
from .runtime.actor import ActorContext
from .runtime.channel import Latest
from .runtime.child import AnyChannel, ChildSpec, ChildStatus
from .runtime.tree import Supervisor

#: Seconds in which a child must end its unit of work when it is stopped; applying a large change may take this long,
#: and cutting it short costs nothing but a second run, since every plan can be resumed.
WORK_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Channels:
    """All channels. ``reload`` and ``children`` are fed from outside the tree: by signals and by the tree itself."""

    reload: Latest[int] = field(default_factory=lambda: Latest("reload"))
    static: Latest[StaticSnapshot] = field(default_factory=lambda: Latest("static"))
    access: Latest[ApiAccess] = field(default_factory=lambda: Latest("access"))
    api: Latest[ApiSnapshot] = field(default_factory=lambda: Latest("api"))
    desired: Latest[DesiredState] = field(default_factory=lambda: Latest("desired"))
    frr: Latest[FrrOutcome] = field(default_factory=lambda: Latest("frr"))
    kernel: Latest[KernelOutcome] = field(default_factory=lambda: Latest("kernel"))
    health: Latest[HealthReport] = field(default_factory=lambda: Latest("health"))
    status: Latest[Status] = field(default_factory=lambda: Latest("status"))
    children: Latest[int] = field(default_factory=lambda: Latest("children"))


class Tree:
    """The assembled program: channels, children and the supervisor that keeps them."""

    def __init__(self, settings: Settings, *, settings_file: Path, version: str, notifier: Notifier) -> None:
        self.channels = Channels()
        self.stopping = False
        handshake = systemd.Handshake()
        specs = children(
            settings,
            self.channels,
            settings_file=settings_file,
            version=version,
            notifier=notifier,
            handshake=handshake,
            snapshot=self.snapshot,
            stopping=lambda: self.stopping,
        )
        outside: tuple[AnyChannel, ...] = (self.channels.reload, self.channels.children)
        self.graph = graph.check(specs, external=outside)
        self.supervisor = Supervisor(specs)

    def snapshot(self) -> tuple[ChildStatus, ...]:
        """Return every child's status now."""
        return self.supervisor.snapshot()

    def stop(self) -> None:
        """Ask for an orderly end; asked again, work in hand is no longer waited for."""
        self.stopping = True
        self.supervisor.stop()

    async def follow_children(self) -> None:
        """Tick ``channels.children`` at every change of a child's state, indefinitely."""
        changes = self.supervisor.statuses.reader()
        tick = 0
        while True:
            await changes.receive()
            tick += 1
            self.channels.children.set(tick)


def children(
    settings: Settings,
    channels: Channels,
    *,
    settings_file: Path,
    version: str,
    notifier: Notifier,
    handshake: systemd.Handshake,
    snapshot: Callable[[], tuple[ChildStatus, ...]],
    stopping: Callable[[], bool],
) -> list[ChildSpec]:
    """List the children in start order; they stop in reverse."""

    async def run_desired(ctx: ActorContext) -> None:
        await desired.run(
            ctx,
            settings=settings,
            snapshots=channels.static.reader(),
            api=channels.api.reader(),
            out=channels.desired,
        )

    async def run_frr(ctx: ActorContext) -> None:
        await frr.run(ctx, settings=settings, desired=channels.desired.reader(), out=channels.frr)

    async def run_netlink(ctx: ActorContext) -> None:
        await netlink.run(ctx, settings=settings, frr=channels.frr.reader(), out=channels.kernel)

    async def run_health(ctx: ActorContext) -> None:
        await health.run(
            ctx,
            settings=settings,
            desired=channels.desired.reader(),
            frr=channels.frr.reader(),
            kernel=channels.kernel.reader(),
            out=channels.health,
        )

    async def run_report(ctx: ActorContext) -> None:
        await report.run(
            ctx,
            settings=settings,
            version=version,
            snapshots=channels.static.reader(),
            desired=channels.desired.reader(),
            frr=channels.frr.reader(),
            kernel=channels.kernel.reader(),
            health=channels.health.reader(),
            access=channels.access.reader(),
            api=channels.api.reader(),
            children=lambda: tuple(actor_status(child) for child in snapshot()),
            children_changed=channels.children.reader(),
            stopping=stopping,
            out=channels.status,
        )

    return [
        *outward_children(settings, channels, notifier=notifier, handshake=handshake, snapshot=snapshot),
        # Puts everything known into one status, for systemd, the socket and the state file.
        ChildSpec(
            "report",
            run_report,
            critical=True,
            reads=(
                channels.static,
                channels.desired,
                channels.frr,
                channels.kernel,
                channels.health,
                channels.access,
                channels.api,
                channels.children,
            ),
            writes=(channels.status,),
        ),
        # Asks FRR what it is really doing. Reads only.
        ChildSpec(
            "health",
            run_health,
            critical=True,
            reads=(channels.desired, channels.frr, channels.kernel),
            writes=(channels.health,),
        ),
        # Makes links, addresses, routes and sysctls what they should be, after FRR.
        ChildSpec(
            "netlink",
            run_netlink,
            critical=True,
            shutdown_timeout=WORK_SECONDS,
            reads=(channels.frr,),
            writes=(channels.kernel,),
        ),
        # Makes FRR's running configuration what it should be, before the kernel.
        ChildSpec(
            "frr",
            run_frr,
            critical=True,
            shutdown_timeout=WORK_SECONDS,
            reads=(channels.desired,),
            writes=(channels.frr,),
        ),
        # Validates and resolves what users wrote, in files and in the API, into one desired state.
        ChildSpec(
            "desired", run_desired, critical=True, reads=(channels.static, channels.api), writes=(channels.desired,)
        ),
        *cluster_children(settings, channels),
        # Reads and watches the files. Last, so that whatever it sets in motion finds everybody listening.
        reader_of_files(settings, settings_file, channels),
    ]


def reader_of_files(settings: Settings, settings_file: Path, channels: Channels) -> ChildSpec:
    """Describe the child that reads and watches the files."""

    async def run_static_config(ctx: ActorContext) -> None:
        await static_config.run(
            ctx,
            settings=settings,
            settings_file=settings_file,
            reload=channels.reload.reader(),
            out=channels.static,
            addresses=lambda name: interface_addresses(name, settings.netns),
        )

    return ChildSpec(
        "static_config", run_static_config, critical=True, reads=(channels.reload,), writes=(channels.static,)
    )


def outward_children(
    settings: Settings,
    channels: Channels,
    *,
    notifier: Notifier,
    handshake: systemd.Handshake,
    snapshot: Callable[[], tuple[ChildStatus, ...]],
) -> list[ChildSpec]:
    """List the children that speak to systemd and to the command line."""

    async def run_systemd(ctx: ActorContext) -> None:
        await systemd.run(
            ctx,
            notifier=notifier,
            handshake=handshake,
            status=channels.status.reader(),
            reload=channels.reload.reader(),
        )

    async def run_control(ctx: ActorContext) -> None:
        await control.run(
            ctx,
            path=settings.run_dir / "control.sock",
            status=channels.status,
            request_reload=lambda: request_reload(channels.reload),
        )

    async def run_watchdog(ctx: ActorContext) -> None:
        await watchdog.run(ctx, notifier=notifier, snapshot=snapshot, period=watchdog.current_period())

    return [
        # Pets systemd only while every critical child below is well. First, so that a slow start is covered too.
        ChildSpec("watchdog", run_watchdog, critical=True),
        # Answers the command line. Losing it costs a view, never a packet.
        ChildSpec("control", run_control, reads=(channels.status,)),
        # Speaks sd_notify: READY, RELOADING, STATUS.
        ChildSpec("systemd", run_systemd, critical=True, reads=(channels.status, channels.reload)),
    ]


def cluster_children(settings: Settings, channels: Channels) -> list[ChildSpec]:
    """List the children that talk to the API server, in start order.

    None is critical: without the cluster the router goes on, and so does the attempt to join it.
    """

    async def run_api_wait(ctx: ActorContext) -> None:
        await api_wait.run(ctx, settings=settings, out=channels.access)

    async def run_crd_watch(ctx: ActorContext) -> None:
        await crd_watch.run(
            ctx,
            settings=settings,
            access=channels.access.reader(),
            snapshots=channels.static.reader(),
            out=channels.api,
        )

    async def run_mirror(ctx: ActorContext) -> None:
        await mirror.run(
            ctx,
            settings=settings,
            access=channels.access.reader(),
            snapshots=channels.static.reader(),
            api=channels.api.reader(),
        )

    async def run_announce(ctx: ActorContext) -> None:
        await announce.run(
            ctx,
            settings=settings,
            access=channels.access.reader(),
            api=channels.api.reader(),
            desired=channels.desired.reader(),
            frr=channels.frr.reader(),
            kernel=channels.kernel.reader(),
            health=channels.health.reader(),
        )

    return [
        # Tells the cluster what became of its resources.
        ChildSpec(
            "announce",
            run_announce,
            reads=(
                channels.access,
                channels.api,
                channels.desired,
                channels.frr,
                channels.kernel,
                channels.health,
            ),
        ),
        # Shows what comes from files as custom resources.
        ChildSpec("mirror", run_mirror, reads=(channels.access, channels.static, channels.api)),
        # Follows the custom resources, the Node and the passwords that concern this node.
        ChildSpec("crd_watch", run_crd_watch, reads=(channels.access, channels.static), writes=(channels.api,)),
        # Finds the way to the API server: credentials that come, go and change.
        ChildSpec("api_wait", run_api_wait, writes=(channels.access,)),
    ]


def actor_status(child: ChildStatus) -> ActorStatus:
    """Return a child's snapshot in the words of the status model, which knows nothing of the runtime."""
    return ActorStatus(
        name=child.name,
        state=child.state.value,
        restarts=child.restarts,
        last_error=child.last_error,
        critical=child.critical,
        incarnation=child.incarnation,
        mode=child.mode,
        activity=child.activity or "",
        progress_age_seconds=round(child.progress_age, 1),
        facts=dict(child.facts),
    )
