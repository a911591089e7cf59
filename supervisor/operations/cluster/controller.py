"""The controller: a small actor tree on the daemon's runtime, in a Deployment.

    account ──credentials──┬─> election ──term─────┐
                           ├─> watch ────cluster───┼─> writer ──> Nodes, Events, the users' objects
                           └───────────────────────┘

Several may run: the leader writes, the others watch and take over. Nodes do not depend on it: while none runs, only the
objects that it writes are out of date.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from actors.controller import election, watch, writer
from actors.controller.cluster_state import ClusterState
from actors.controller.election import Term
from actors.lib.kube.client import KubeClient
from config.api import ApiCredentials
from supervisor.logs.logger import get_logger
from supervisor.runtime.channel import Latest
from supervisor.runtime.child import ChildSpec
from supervisor.runtime.graph import Graph
from supervisor.runtime.tree import Ending, Supervisor
from supervisor.version import VERSION

from .pod import follow_account, run_until_signal

log = get_logger("supervisor")

#: How long a stop waits for a write that has begun.
WRITE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ControllerChannels:
    """All channels but the supervisor's own."""

    credentials: Latest[ApiCredentials] = field(default_factory=lambda: Latest("credentials"))
    term: Latest[Term] = field(default_factory=lambda: Latest("term"))
    cluster: Latest[ClusterState] = field(default_factory=lambda: Latest("cluster"))


class Controller:
    """The assembled program. ``read`` returns the credentials (:func:`.pod.read_account`), ``identity`` is unique."""

    def __init__(
        self,
        read: Callable[[], ApiCredentials],
        namespace: str,
        *,
        identity: str = "",
        connect: Callable[[ApiCredentials], KubeClient] = KubeClient,
    ) -> None:
        self.read, self.namespace, self.connect = read, namespace, connect
        self.identity = identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        self.channels = ControllerChannels()
        specs = self.children()
        self.supervisor = Supervisor(specs)
        edges = [edge for spec in specs for edge in spec.edges()]
        self.graph = Graph(edges, outside=(self.supervisor.statuses,))
        self.graph.check()

    def children(self) -> list[ChildSpec]:
        """List the children in start order; they stop in reverse, so the Lease is released after the last write."""
        channels, namespace, connect = self.channels, self.namespace, self.connect
        return [
            # Takes and renews the leader's Lease.
            ChildSpec(
                "election",
                lambda ports: partial(
                    election.run,
                    namespace=namespace,
                    identity=self.identity,
                    credentials=ports.reads(channels.credentials),
                    out=ports.writes(channels.term),
                    connect=connect,
                ),
                critical=True,
            ),
            # Follows Nodes, status objects and the users' objects, also while another one is the leader.
            ChildSpec(
                "watch",
                lambda ports: partial(
                    watch.run,
                    namespace=namespace,
                    credentials=ports.reads(channels.credentials),
                    out=ports.writes(channels.cluster),
                    connect=connect,
                ),
                critical=True,
            ),
            # Writes the differences, while this one is the leader.
            ChildSpec(
                "writer",
                lambda ports: partial(
                    writer.run,
                    credentials=ports.reads(channels.credentials),
                    term=ports.reads(channels.term),
                    cluster=ports.reads(channels.cluster),
                    connect=connect,
                ),
                critical=True,
                shutdown_timeout=WRITE_SECONDS,
            ),
            # Reads the pod's credentials, and again when they are renewed.
            ChildSpec(
                "account",
                lambda ports: partial(follow_account, read=self.read, out=ports.writes(channels.credentials)),
                critical=True,
            ),
        ]

    async def run(self) -> Ending:
        """Run until SIGTERM or SIGINT, or until a critical child fails for good; return why it ended."""
        log.info("starting", version=VERSION, identity=self.identity, namespace=self.namespace)
        return await run_until_signal(self.supervisor)
