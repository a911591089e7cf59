"""The reloader: a small actor tree on the daemon's runtime, in FRR's pod beside FRR (``runtime: podman``).

    the daemon on the host ──unix socket──> server ──vtysh──> FRR's daemons

The directory of the socket is shared with the host, and so is the lock for FRR's configuration in it. One reloader
serves a directory at a time; a socket that a killed one left is replaced.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import trio

from actors.lib.frr.reloader_client import ReloaderClient, ReloaderFault
from actors.lib.frr.reloader_protocol import SOCKET
from actors.reloader import server
from config.settings import Settings
from supervisor.logs.logger import get_logger
from supervisor.process.instance_lock import single_instance
from supervisor.process.sd_notify import Notifier
from supervisor.runtime.child import ChildSpec
from supervisor.runtime.graph import Graph
from supervisor.runtime.tree import Supervisor
from supervisor.version import VERSION

from ..cluster.pod import run_until_signal
from ..exit_codes import UNAVAILABLE, CommandError

log = get_logger("reloader")

#: A stop waits for the change in hand: its deadline (``actors/frr/driver.py``), and the end of a vtysh that hangs.
STOP_SECONDS: Final = 66.0


class Reloader:
    """The assembled program."""

    def __init__(self, settings: Settings, notifier: Notifier) -> None:
        # In the pod the settings file is the image's, which need not know that it is in one.
        self.settings = settings.model_copy(update={"runtime": "podman"})
        self.notifier = notifier
        specs = self.children()
        self.supervisor = Supervisor(specs)
        Graph([edge for spec in specs for edge in spec.edges()]).check()

    def children(self) -> list[ChildSpec]:
        """List the only child."""
        return [
            # Answers the daemon on the host.
            ChildSpec(
                "server",
                lambda _: partial(server.run, settings=self.settings, version=VERSION, opened=self.notifier.ready),
                critical=True,
                shutdown_timeout=STOP_SECONDS,
            )
        ]


def run_reloader(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. Raises :class:`AlreadyRunningFault`."""
    with single_instance(settings.pod_run_dir):
        log.info("starting", version=VERSION, pathspace=settings.frr_pathspace)
        return trio.run(run_until_signal, Reloader(settings, Notifier()).supervisor).exit_code


def check_reloader(settings: Settings) -> str:
    """Return what the running reloader says of FRR. Raises :class:`CommandError` if FRR or it is not well."""
    path = settings.pod_run_dir / SOCKET
    try:
        seen = trio.run(ReloaderClient(path).health)
    except ReloaderFault as fault:
        raise CommandError(str(fault), UNAVAILABLE) from None
    if not seen.healthy:
        raise CommandError("; ".join(f"{name}: {why}" for name, why in sorted(seen.silent.items())), UNAVAILABLE)
    return f"reloader {seen.version}: {', '.join(sorted(seen.running))} run"
