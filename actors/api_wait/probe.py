"""Two requests to an API server: is it ready, and does it know us?

Any client may send the first. The second is open to every authenticated client (ClusterRole system:discovery), so a
server that has no permissions for us yet counts as reachable.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import ApiError, CredentialsError, ForbiddenError, ServerError
from config.api import ApiCredentials, ApiReach

#: For both requests together, connecting included.
PROBE_SECONDS: Final = 20.0
READY_PATH: Final = "/readyz"
KNOWN_PATH: Final = "/apis"
#: The user of a request without credentials, where the server allows that.
_ANONYMOUS: Final = "system:anonymous"
#: A failed check in the answer of /readyz.
_FAILED_CHECK: Final = re.compile(r"\[-\](\S+)")

Connect = Callable[[ApiCredentials], KubeClient]


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """How far a probe came; ``reason`` says why not further; ``retry_after`` is the wait that the server asks for."""

    reach: ApiReach
    reason: str = ""
    retry_after: float = 0.0


async def probe(credentials: ApiCredentials, connect: Connect) -> ProbeResult:
    """Probe a server. Never raises for a fault of the server or the network."""
    with trio.move_on_after(PROBE_SECONDS):
        return await _probe(credentials, connect)
    return ProbeResult(ApiReach.UNREACHABLE, f"no answer within {PROBE_SECONDS:g} s")


async def _probe(credentials: ApiCredentials, connect: Connect) -> ProbeResult:
    try:
        async with connect(credentials) as client:
            await _ready(client)
            await client.get(KNOWN_PATH)
    except CredentialsError as error:
        return ProbeResult(ApiReach.REFUSED, _reason(error, credentials))
    except ForbiddenError as error:
        if _ANONYMOUS in str(error):
            return ProbeResult(
                ApiReach.REFUSED, "requests are anonymous: the credentials have neither a token nor a certificate"
            )
        # Known, and allowed less than is usual. Missing permissions are reported by the actors that need them.
        return ProbeResult(ApiReach.REACHABLE)
    except ApiError as error:
        return ProbeResult(ApiReach.UNREACHABLE, _reason(error, credentials), error.retry_after or 0.0)
    return ProbeResult(ApiReach.REACHABLE)


async def _ready(client: KubeClient) -> None:
    try:
        await client.text(READY_PATH)
    except ForbiddenError:
        # An administrator may hide it; the second request decides.
        return
    except ServerError as error:
        failed = ", ".join(_FAILED_CHECK.findall(str(error)))
        raise ServerError(f"it is not ready{f' ({failed})' if failed else ''}", code=error.code) from None


def _reason(error: ApiError, credentials: ApiCredentials) -> str:
    """Return an error in one line, without the server's name, and without secrets that a server may echo."""
    text = " ".join(str(error).split()).removeprefix(f"{credentials.server}: ")
    secrets = (credentials.token, credentials.client_key)
    for secret in (secret.reveal() for secret in secrets if secret is not None):
        text = text.replace(secret, "********")
    return text
