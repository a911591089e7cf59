"""What the programs in pods share: the credentials of the pod's ServiceAccount, and their life as a tree of actors.

token and ca.crt in the pod ──> ApiCredentials, and again whenever the kubelet renews them
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from config.api import ApiCredentials
from config.desired import Secret
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.logs.throttle import RepeatLimiter
from supervisor.process.signals import handle_signals
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from supervisor.runtime.faults import EXIT_OK
from supervisor.runtime.tree import Ending, Supervisor

log = get_logger("pod")

#: Where the kubelet puts a pod's credentials.
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Poll interval of the credentials: the kubelet renews a token when a fifth of its time is left, minutes at least.
POLL_SECONDS: Final = 10.0


class NoCredentialsError(Exception):
    """The pod has no usable credentials yet; the text says what is missing, without quoting it."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where to reach the API server; ``name`` is what its certificate must have, empty for the URL's host."""

    url: str
    name: str = ""


def read_account(directory: Path, server: ServerAddress) -> ApiCredentials:
    """Return the pod's credentials. Raises :class:`NoCredentialsError`.

    Token and authority are read from one directory: the kubelet replaces both at once by changing a symbolic link.
    """
    data = directory / "..data"
    try:
        place = data.resolve(strict=True) if data.exists() else directory
        token, authority = (place / "token").read_text().strip(), (place / "ca.crt").read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise NoCredentialsError(f"{directory}: {getattr(error, 'strerror', None) or 'not text'}") from None
    if not token or "BEGIN CERTIFICATE" not in authority:
        raise NoCredentialsError(f"{directory}: token or ca.crt is empty")
    return ApiCredentials(server.url, str(directory), authority, Secret(token), server_name=server.name)


def pod_namespace(directory: Path) -> str:
    """Return the namespace of the ServiceAccount whose files are in a directory, "" if the file is missing."""
    path = directory / "namespace"
    return path.read_text().strip() if path.is_file() else ""


async def follow_account(ctx: ActorContext, *, read: Callable[[], ApiCredentials], out: Latest[ApiCredentials]) -> None:
    """Publish the pod's credentials, and again when they change; indefinitely.

    ``read`` returns them or raises :class:`NoCredentialsError`.
    """
    limiter = RepeatLimiter(log, clock=trio.current_time)
    ctx.started()
    while True:
        try:
            # Two small files in memory: quicker than a thread.
            credentials = read()
            limiter.recovered("account", "the pod's credentials can be read again")
            if credentials != out.peek():
                out.set(credentials)
        except NoCredentialsError as error:
            text = f"the pod's credentials cannot be used: {error}"
            limiter.failing("account", text, message_id=message_ids.API_CREDENTIALS_UNUSABLE)
        with ctx.idle():
            await trio.sleep(POLL_SECONDS)


async def run_until_signal(supervisor: Supervisor) -> Ending:
    """Run a tree until SIGTERM or SIGINT, or until a critical child fails for good; return why it ended."""
    async with trio.open_nursery() as nursery:
        unused: Latest[int] = Latest("reload")
        await nursery.start(partial(handle_signals, stop=supervisor.stop, reload=unused))
        ending = await supervisor.run()
        nursery.cancel_scope.cancel()
    if ending.exit_code == EXIT_OK:
        log.info("stopped", reason=ending.reason)
    else:
        log.error("ending", message_id=message_ids.ENDING, reason=ending.reason, exit_code=ending.exit_code)
    return ending
