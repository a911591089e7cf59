"""Single controllers of Kubernetes, of the newest version, beside a server of :mod:`.server`.

The garbage collector asks for every kind that the server has, and learns of a new kind within half a minute.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from . import build
from .daemon import Daemon
from .server import ApiServer

GARBAGE_COLLECTOR: Final = "garbage-collector-controller"


@contextlib.contextmanager
def running(server: ApiServer, *names: str) -> Iterator[None]:
    """Let these controllers run, with an administrator's rights."""
    [program] = build.ensure([build.CONTROLLERS])
    options = {
        "kubeconfig": server.admin_kubeconfig(),
        "controllers": ",".join(names),
        "leader-elect": "false",
        # Nothing queries it.
        "secure-port": 0,
    }
    command = [str(program), *(f"--{name}={value}" for name, value in options.items())]
    daemon = Daemon(command, server.logs / "kube-controller-manager.log")
    daemon.start()
    try:
        yield
    finally:
        daemon.kill()
