"""The admission webhook: a small actor tree on the daemon's runtime, in a Deployment.

    account ──credentials──> follow ──known──────────┐
                        └──> rotation ──certificates─┴──> server <── API server

Nodes do not depend on it: they apply the same rules themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import trio

from actors.webhook import follow, rotation, server
from actors.webhook.certificates import Stored
from actors.webhook.follow import ClusterObjects
from actors.webhook.rotation import Storage
from config.api import ApiCredentials
from config.resolve.grants import Grants
from supervisor.runtime.channel import Latest
from supervisor.runtime.child import ChildSpec
from supervisor.runtime.graph import Graph
from supervisor.runtime.tree import Supervisor

from .hostbridge import SERVICE, address
from .pod import ACCOUNT, follow_account, read_account, run_until_signal

#: A stop waits for the requests in hand (:data:`actors.webhook.server.REQUEST_SECONDS`).
STOP_SECONDS: Final = 6.0


@dataclass(frozen=True, slots=True)
class Options:
    """The command line's options: port, storage of the certificates, and what the nodes' settings grant.

    ``host`` is the address to listen on, empty for all of them.
    """

    port: int
    storage: Storage
    grants: Grants
    host: str = ""
    poll_seconds: float = rotation.POLL_SECONDS


@dataclass(frozen=True, slots=True)
class WebhookChannels:
    """All channels."""

    credentials: Latest[ApiCredentials] = field(default_factory=lambda: Latest("credentials"))
    known: Latest[ClusterObjects] = field(default_factory=lambda: Latest("known"))
    certificates: Latest[Stored] = field(default_factory=lambda: Latest("certificates"))


class Webhook:
    """The assembled program. ``account`` reads the credentials; ``opened`` is called with the port that is served."""

    def __init__(
        self, options: Options, account: Callable[[], ApiCredentials], opened: Callable[[int], None] = lambda _: None
    ) -> None:
        self.options, self.account, self.opened = options, account, opened
        self.channels = WebhookChannels()
        specs = self.children()
        self.supervisor = Supervisor(specs)
        Graph([edge for spec in specs for edge in spec.edges()]).check()

    def children(self) -> list[ChildSpec]:
        """List the children in start order, consumers first."""
        options, channels = self.options, self.channels
        return [
            # Answers the API server.
            ChildSpec(
                "server",
                lambda ports: partial(
                    server.run,
                    host=options.host,
                    port=options.port,
                    grants=options.grants,
                    known=ports.reads(channels.known),
                    certificates=ports.reads(channels.certificates),
                    opened=self.opened,
                ),
                critical=True,
                shutdown_timeout=STOP_SECONDS,
            ),
            # Issues and renews the certificates that all replicas share.
            ChildSpec(
                "rotation",
                lambda ports: partial(
                    rotation.run,
                    storage=options.storage,
                    credentials=ports.reads(channels.credentials),
                    out=ports.writes(channels.certificates),
                    poll_seconds=options.poll_seconds,
                ),
            ),
            # Follows all objects and Nodes.
            ChildSpec(
                "follow",
                lambda ports: partial(
                    follow.run,
                    namespace=options.grants.namespace,
                    credentials=ports.reads(channels.credentials),
                    out=ports.writes(channels.known),
                ),
            ),
            # Reads the pod's credentials.
            ChildSpec(
                "account",
                lambda ports: partial(follow_account, read=self.account, out=ports.writes(channels.credentials)),
            ),
        ]


def run_webhook(options: Options, account: Path = ACCOUNT) -> int:
    """Serve in a pod; return the exit code. Raises :class:`CommandError` outside of one."""
    where = address(SERVICE, os.environ)
    webhook = Webhook(options, partial(read_account, account, where))
    return trio.run(run_until_signal, webhook.supervisor).exit_code
