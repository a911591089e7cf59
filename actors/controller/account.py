"""Follows the credentials of the pod's ServiceAccount, which the kubelet renews every hour.

    token and ca.crt in the pod ──> ApiAccess

Whether a server accepts them is seen by those who use them: election and watch each say so in the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

from config.api import ApiAccess, ApiCredentials, ApiReach
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.logs.throttle import RepeatLimiter
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest

log = get_logger("account")

#: Between two looks; the kubelet renews a token when a fifth of its time is left, minutes at least.
POLL_SECONDS: Final = 10.0


class NoAccountError(Exception):
    """There are no usable credentials yet; the text says what is missing, without quoting it."""


async def run(
    ctx: ActorContext,
    *,
    read: Callable[[], ApiCredentials],
    out: Latest[ApiAccess],
    wall: Callable[[], float] = time.time,
) -> None:
    """Follow indefinitely. ``read`` returns the credentials, or raises :class:`NoAccountError`."""
    limiter = RepeatLimiter(log, clock=trio.current_time)
    ctx.started()
    while True:
        try:
            # Two small files in memory: quicker than a thread.
            credentials = read()
            limiter.recovered("account", "the pod's credentials can be read again")
            last = out.peek()
            if last is None or last.credentials != credentials:
                out.set(ApiAccess(ApiReach.REACHABLE, credentials, since=wall()))
        except NoAccountError as error:
            limiter.failing("account", f"no credentials: {error}", message_id=message_ids.CONTROLLER_FAILS)
        with ctx.idle():
            await trio.sleep(POLL_SECONDS)


def pod_namespace(directory: Path) -> str:
    """Return the namespace of the account whose files are in a directory, "" if that is not stated there."""
    path = directory / "namespace"
    return path.read_text().strip() if path.is_file() else ""
