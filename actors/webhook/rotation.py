"""Renew the webhook's certificates in the Secret that all replicas share, and write the authority to the API server.

    Secret, caBundle of the ValidatingWebhookConfiguration ──> next_step ──> Secret, caBundle; certificate ──> server

Each replica does all of this, at intervals: a write carries the version that was read, so one of several succeeds and
the others read again. The Secret's certificate is served, and the last one while the API server is unreachable.
"""

from __future__ import annotations

import base64
import binascii
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import ApiError, ConflictError
from config.api import ApiCredentials
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.logs.throttle import RepeatLimiter
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader, wait_any
from supervisor.runtime.faults import summarize

from .certificates import Stored, expiry, next_step, stored_in, utc_now

log = get_logger("webhook")

#: Poll interval; shorter after a step.
POLL_SECONDS: Final = 60.0
SOON_SECONDS: Final = 2.0
_PASS_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Storage:
    """Where the certificates are stored: the Secret and the webhook configuration; and the names in the certificate."""

    namespace: str
    secret: str = "openperouter-webhook"  # noqa: S105 - its name
    configuration: str = "openperouter"
    names: tuple[str, ...] = ()

    @property
    def secret_path(self) -> str:
        """Return the Secret's path."""
        return f"/api/v1/namespaces/{self.namespace}/secrets/{self.secret}"

    @property
    def configuration_path(self) -> str:
        """Return the configuration's path."""
        kind = "validatingwebhookconfigurations"
        return f"/apis/admissionregistration.k8s.io/v1/{kind}/{self.configuration}"


async def run(
    ctx: ActorContext,
    *,
    storage: Storage,
    credentials: LatestReader[ApiCredentials],
    out: Latest[Stored],
    connect: Callable[[ApiCredentials], KubeClient] = KubeClient,
    clock: Callable[[], datetime] = utc_now,
    poll_seconds: float = POLL_SECONDS,
) -> None:
    """Renew them indefinitely; ``out`` gets those to serve."""
    ctx.started()
    limiter = RepeatLimiter(log, clock=trio.current_time)
    with ctx.idle():
        await credentials.wait_pending()
    while True:
        current = credentials.take() or credentials.peek()
        soon = False
        if current is not None:
            with ctx.working("renewing the certificates", _PASS_SECONDS):
                try:
                    async with connect(current) as client:
                        soon = not await look_after(client, storage, out, clock())
                    limiter.recovered(storage.secret, "the webhook's certificates can be renewed again")
                except ApiError as error:
                    problem = summarize(error)
                    text = f"cannot renew the webhook's certificates; the last ones stay in use: {problem}"
                    limiter.failing(storage.secret, text, message_id=message_ids.WEBHOOK_CERTIFICATES, error=problem)
        seconds = min(SOON_SECONDS, poll_seconds) if soon else poll_seconds
        with ctx.idle(), trio.move_on_after(seconds * random.uniform(0.8, 1.2)):  # noqa: S311 - jitter
            await wait_any(credentials)


async def look_after(client: KubeClient, storage: Storage, out: Latest[Stored], now: datetime) -> bool:
    """Take one step; return whether there was nothing to do. Raises :class:`ApiError`."""
    secret = await client.get(storage.secret_path)
    configuration = await client.get(storage.configuration_path)
    stored = stored_in(secret.get("data"))
    newer = next_step(stored, _trusted(configuration), storage.names, now)
    if newer is not None:
        try:
            await client.replace(storage.secret_path, {**secret, "data": newer.as_data()})
        except ConflictError:
            # Another replica was first; what it wrote is read next.
            return False
        log.info("renewed the webhook's certificates", until=f"{expiry(newer):%Y-%m-%d}")
        stored = newer
    if stored is None:
        return False
    if _trusts_all(configuration, stored.bundle):
        _serve(out, stored)
        return newer is None
    # What was served before is trusted by the new bundle too.
    try:
        await client.replace(storage.configuration_path, _trusting(configuration, stored.bundle))
    except ConflictError:
        return False
    _serve(out, stored)
    return False


def _serve(out: Latest[Stored], stored: Stored) -> None:
    if out.peek() != stored:
        out.set(stored)


def _bundles(configuration: dict[str, Any]) -> list[str]:
    """Return the bundle of each webhook, empty for one that cannot be read."""
    found = []
    for one in configuration.get("webhooks") or ():
        try:
            found.append(base64.b64decode(one["clientConfig"].get("caBundle") or "", validate=True).decode())
        except (binascii.Error, ValueError):
            found.append("")
    return found


def _trusted(configuration: dict[str, Any]) -> str:
    """Return the bundle that all webhooks have, empty where they differ."""
    bundles = set(_bundles(configuration))
    return bundles.pop() if len(bundles) == 1 else ""


def _trusts_all(configuration: dict[str, Any], bundle: str) -> bool:
    return all(one == bundle for one in _bundles(configuration))


def _trusting(configuration: dict[str, Any], bundle: str) -> dict[str, Any]:
    encoded = base64.b64encode(bundle.encode()).decode()
    webhooks = [
        {**one, "clientConfig": {**one["clientConfig"], "caBundle": encoded}}
        for one in configuration.get("webhooks") or ()
    ]
    return {**configuration, "webhooks": webhooks}
