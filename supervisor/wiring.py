"""The composition root: every channel is made here, and every child is listed here, in start order.

Read :meth:`Daemon.children` and the lists that it joins from top to bottom and you have the whole machine. A
child's entry takes the channel ends that it needs from ``ports`` and binds them to its actor's ``run``; the graph of
all ends is checked before anything starts. Channels outlive the children at their ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import trio

from actors.api_mirror import actor as api_mirror
from actors.api_wait import actor as api_wait
from actors.crd_watch import actor as crd_watch
from actors.desired import actor as desired
from actors.frr import actor as frr
from actors.health import actor as health
from actors.lib.network_namespace import NAMESPACES
from actors.metrics_endpoint import actor as metrics_endpoint
from actors.netlink import actor as netlink
from actors.netlink.preview import host_networks, interface_addresses, would_remove
from actors.netlink.probes import actor as probes
from actors.netlink.refresh import actor as refresh
from actors.netlink.wire.neighbors import tunnel_entries
from actors.report import actor as report
from actors.static_config import actor as static_config
from actors.status_writer import actor as status_writer
from actors.systemd import actor as systemd
from config.api import ApiAccess, ApiSnapshot
from config.desired import DesiredState
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome, ProbeReport, StaticSnapshot
from config.settings import Settings
from config.status import ActorStatus, Status

from . import control
from .events import EventLog
from .process.sd_notify import Notifier
from .runtime import watchdog
from .runtime.channel import Latest
from .runtime.child import ChildSpec, ChildStatus
from .runtime.graph import Graph
from .runtime.tree import Supervisor
from .version import VERSION

#: Seconds in which a child must end its unit of work when it is stopped; applying a large change may take this long,
#: and cutting it short costs nothing but a second run, since every plan can be resumed.
WORK_SECONDS: Final = 20.0
#: The only way in for an operator besides signals: ``openperouter reload`` closes the loop from status to files.
COMMANDS: Final = frozenset({("control", "reload"), ("control", "forget_api")})
#: The requests that go against the flow of data: FRR lets go of L3VNIs whose devices are to be moved, or that fail.
HEEDED: Final = frozenset({("frr", "kernel"), ("frr", "health")})


@dataclass(frozen=True, slots=True)
class Channels:
    """All channels but the supervisor's own. ``reload`` counts requests, by signal and over the control socket.

    ``forget_api`` is the newest of them that is to forget what the API does not say now.
    """

    reload: Latest[int] = field(default_factory=lambda: Latest("reload"))
    forget_api: Latest[int] = field(default_factory=lambda: Latest("forget_api"))
    static: Latest[StaticSnapshot] = field(default_factory=lambda: Latest("static"))
    access: Latest[ApiAccess] = field(default_factory=lambda: Latest("access"))
    api: Latest[ApiSnapshot] = field(default_factory=lambda: Latest("api"))
    desired: Latest[DesiredState] = field(default_factory=lambda: Latest("desired"))
    frr: Latest[FrrOutcome] = field(default_factory=lambda: Latest("frr"))
    kernel: Latest[KernelOutcome] = field(default_factory=lambda: Latest("kernel"))
    probes: Latest[ProbeReport] = field(default_factory=lambda: Latest("probes"))
    health: Latest[HealthReport] = field(default_factory=lambda: Latest("health"))
    status: Latest[Status] = field(default_factory=lambda: Latest("status"))


class Daemon:
    """The assembled program: channels, children, their graph, and the supervisor that keeps them running."""

    def __init__(self, settings: Settings, *, settings_file: Path, notifier: Notifier) -> None:
        self.settings = settings
        self.settings_file = settings_file
        self.notifier = notifier
        self.channels = Channels()
        # Of the whole life of this process: the child that fills and shows it may be restarted.
        self.events = EventLog()
        # FRR and the kernel are never changed at the same time.
        self.changing = trio.Lock()
        specs = self.children()
        self.supervisor = Supervisor(specs)
        edges = [edge for spec in specs for edge in spec.edges()]
        # Signals request reloads too, and the supervisor itself reports its children.
        self.graph = Graph(edges, outside=(self.channels.reload, self.supervisor.statuses))
        self.graph.check(commands=COMMANDS, heeded=HEEDED)

    def children(self) -> list[ChildSpec]:
        """List the children in start order, consumers first; they stop in reverse."""
        return [
            *self._outward_children(),
            self._metrics_endpoint(),
            self._refresher(),
            self._prober(),
            *self._router_children(),
            *self._cluster_children(),
            self._file_reader(),
        ]

    def _outward_children(self) -> list[ChildSpec]:
        """List the children that serve systemd and the command line, and the one that composes the status for both."""
        settings, channels = self.settings, self.channels
        handshake = systemd.Handshake()
        return [
            # Notifies systemd's watchdog while every critical child below makes progress. First, to cover a slow start.
            ChildSpec(
                "watchdog",
                lambda _: partial(
                    watchdog.run,
                    notify=self.notifier.watchdog,
                    snapshot=self.supervisor.snapshot,
                    period=watchdog.watchdog_period(),
                ),
                critical=True,
            ),
            self._control(),
            # Reports READY, RELOADING and STATUS to systemd.
            ChildSpec(
                "systemd",
                lambda ports: partial(
                    systemd.run,
                    notifier=self.notifier,
                    handshake=handshake,
                    status=ports.reads(channels.status),
                    reload=ports.reads(channels.reload),
                ),
                critical=True,
            ),
            # Composes one status from all that is known, for systemd, the control socket and the state file.
            ChildSpec(
                "report",
                lambda ports: partial(
                    report.run,
                    settings=settings,
                    version=VERSION,
                    snapshots=ports.reads(channels.static),
                    desired=ports.reads(channels.desired),
                    frr=ports.reads(channels.frr),
                    kernel=ports.reads(channels.kernel),
                    health=ports.reads(channels.health),
                    access=ports.reads(channels.access),
                    api=ports.reads(channels.api),
                    children=lambda: tuple(actor_status(child) for child in self.supervisor.snapshot()),
                    children_changed=ports.reads(self.supervisor.statuses),
                    stopping=lambda: self.supervisor.stopping,
                    out=ports.writes(channels.status),
                ),
                critical=True,
            ),
        ]

    def _control(self) -> ChildSpec:
        # Serves the command line: the view of the router, what changed, and the reload command. Forwarding does not
        # need it.
        channels = self.channels
        return ChildSpec(
            "control",
            lambda ports: partial(
                control.run,
                path=self.settings.run_dir / "control.sock",
                status=ports.reads(channels.status),
                reload=ports.commands(channels.reload),
                forget_api=ports.commands(channels.forget_api),
                events=self.events,
            ),
        )

    def _refresher(self) -> ChildSpec:
        # Asks silent hosts of stretched segments before the bridge forgets them. Changes nothing.
        return ChildSpec(
            "refresh",
            lambda ports: partial(refresh.run, settings=self.settings, kernel=ports.reads(self.channels.kernel)),
        )

    def _health(self) -> ChildSpec:
        # Polls FRR for sessions and VNIs, the kernel for VNIs' next hops, and reports what works. Changes nothing.
        settings, channels = self.settings, self.channels
        return ChildSpec(
            "health",
            lambda ports: partial(
                health.run,
                settings=settings,
                read_entries=partial(tunnel_entries, NAMESPACES / settings.netns),
                desired=ports.reads(channels.desired),
                frr=ports.reads(channels.frr),
                kernel=ports.reads(channels.kernel),
                probes=ports.reads(channels.probes),
                out=ports.writes(channels.health),
            ),
            critical=True,
        )

    def _prober(self) -> ChildSpec:
        # Pings hosts and other addresses where a session asks for it. Changes nothing.
        settings, channels = self.settings, self.channels
        return ChildSpec(
            "probes",
            lambda ports: partial(
                probes.run,
                settings=settings,
                kernel=ports.reads(channels.kernel),
                out=ports.writes(channels.probes),
            ),
        )

    def _metrics_endpoint(self) -> ChildSpec:
        # Lets Prometheus scrape the metrics, where a setting says so.
        return ChildSpec(
            "metrics_endpoint",
            lambda ports: partial(
                metrics_endpoint.run, settings=self.settings.metrics, status=ports.reads(self.channels.status)
            ),
        )

    def _router_children(self) -> list[ChildSpec]:
        """List the children that configure the router and verify it."""
        settings, channels = self.settings, self.channels
        return [
            self._health(),
            # Configures links, addresses, routes and sysctls as desired, after FRR.
            ChildSpec(
                "netlink",
                lambda ports: partial(
                    netlink.run,
                    settings=settings,
                    frr=ports.reads(channels.frr),
                    access=ports.reads(channels.access),
                    changing=self.changing,
                    out=ports.writes(channels.kernel),
                ),
                critical=True,
                shutdown_timeout=WORK_SECONDS,
            ),
            # Configures FRR as desired, before the kernel.
            ChildSpec(
                "frr",
                lambda ports: partial(
                    frr.run,
                    settings=settings,
                    desired=ports.reads(channels.desired),
                    kernel=ports.heeds(channels.kernel),
                    health=ports.heeds(channels.health),
                    changing=self.changing,
                    out=ports.writes(channels.frr),
                ),
                critical=True,
                shutdown_timeout=WORK_SECONDS,
            ),
            # Validates and resolves the resources from files and from the API into one desired state.
            ChildSpec(
                "desired",
                lambda ports: partial(
                    desired.run,
                    settings=settings,
                    snapshots=ports.reads(channels.static),
                    api=ports.reads(channels.api),
                    forget_api=ports.reads(channels.forget_api),
                    out=ports.writes(channels.desired),
                    removes=partial(would_remove, settings=settings),
                    networks=partial(host_networks, settings),
                ),
                critical=True,
            ),
        ]

    def _cluster_children(self) -> list[ChildSpec]:
        """List the children that use the API server.

        None is critical: without the cluster the router continues, and so does the attempt to reach it.
        """
        settings, channels = self.settings, self.channels
        return [
            # Writes this node's status object, index and Events to the API.
            ChildSpec(
                "status_writer",
                lambda ports: partial(
                    status_writer.run,
                    settings=settings,
                    access=ports.reads(channels.access),
                    api=ports.reads(channels.api),
                    desired=ports.reads(channels.desired),
                    frr=ports.reads(channels.frr),
                    kernel=ports.reads(channels.kernel),
                    health=ports.reads(channels.health),
                ),
            ),
            # Mirrors the resources from files to the API as custom resources.
            ChildSpec(
                "api_mirror",
                lambda ports: partial(
                    api_mirror.run,
                    settings=settings,
                    access=ports.reads(channels.access),
                    snapshots=ports.reads(channels.static),
                    api=ports.reads(channels.api),
                ),
            ),
            # Watches the custom resources, the Node and the Secrets that concern this node.
            ChildSpec(
                "crd_watch",
                lambda ports: partial(
                    crd_watch.run,
                    settings=settings,
                    access=ports.reads(channels.access),
                    snapshots=ports.reads(channels.static),
                    out=ports.writes(channels.api),
                ),
            ),
            # Finds credentials that an API server accepts, and follows their changes.
            ChildSpec(
                "api_wait",
                lambda ports: partial(api_wait.run, settings=settings, out=ports.writes(channels.access)),
            ),
        ]

    def _file_reader(self) -> ChildSpec:
        # Reads and watches the files. Last, so that every consumer runs before the first configuration is published.
        return ChildSpec(
            "static_config",
            lambda ports: partial(
                static_config.run,
                settings=self.settings,
                settings_file=self.settings_file,
                reload=ports.reads(self.channels.reload),
                out=ports.writes(self.channels.static),
                addresses=lambda name: interface_addresses(name, self.settings.netns),
                networks=partial(host_networks, self.settings),
            ),
            critical=True,
        )


def actor_status(child: ChildStatus) -> ActorStatus:
    """Return a child's snapshot as the status model has it, which does not depend on the runtime."""
    return ActorStatus(
        name=child.name,
        state=child.state.value,
        restarts=child.restarts,
        causes=dict(child.causes),
        last_error=child.last_error,
        critical=child.critical,
        incarnation=child.incarnation,
        mode=child.mode,
        activity=child.activity or "",
        progress_age_seconds=round(child.progress_age, 1),
        facts=dict(child.facts),
    )
