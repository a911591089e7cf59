"""Two questions to an API server: are you ready, and do you know us?

Anybody may ask the first. The second is what every authenticated client may ask (ClusterRole system:discovery), so a
server that has no permissions for us yet counts as reached.
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

#: For both questions together, connecting included.
ASK_SECONDS: Final = 20.0
READY_PATH: Final = "/readyz"
KNOWN_PATH: Final = "/apis"
#: Who the server takes us for when it does not know us but lets everybody ask.
_NOBODY: Final = "system:anonymous"
#: A failed check in the answer of /readyz.
_FAILED_CHECK: Final = re.compile(r"\[-\](\S+)")

Connect = Callable[[ApiCredentials], KubeClient]


@dataclass(frozen=True, slots=True)
class Answer:
    """Where the way ended; ``reason`` says why it is not reachable; ``retry_after`` is the server's wish, seconds."""

    reach: ApiReach
    reason: str = ""
    retry_after: float = 0.0


async def ask(credentials: ApiCredentials, connect: Connect) -> Answer:
    """Ask the server. Never raises what a server or a network can do to us."""
    with trio.move_on_after(ASK_SECONDS):
        return await _asked(credentials, connect)
    return Answer(ApiReach.UNREACHABLE, f"no answer within {ASK_SECONDS:g} s")


async def _asked(credentials: ApiCredentials, connect: Connect) -> Answer:
    try:
        async with connect(credentials) as client:
            await _ready(client)
            await client.get(KNOWN_PATH)
    except CredentialsError as error:
        return Answer(ApiReach.REFUSED, _words(error, credentials))
    except ForbiddenError as error:
        if _NOBODY in str(error):
            return Answer(ApiReach.REFUSED, "it does not know us: the credentials have no token and no certificate")
        # Known, and allowed less than everybody usually is. What it lacks is for those to tell who need it.
        return Answer(ApiReach.REACHABLE)
    except ApiError as error:
        return Answer(ApiReach.UNREACHABLE, _words(error, credentials), error.retry_after or 0.0)
    return Answer(ApiReach.REACHABLE)


async def _ready(client: KubeClient) -> None:
    try:
        await client.text(READY_PATH)
    except ForbiddenError:
        # An administrator may hide it; the second question decides.
        return
    except ServerError as error:
        failed = ", ".join(_FAILED_CHECK.findall(str(error)))
        raise ServerError(f"it is not ready{f' ({failed})' if failed else ''}", code=error.code) from None


def _words(error: ApiError, credentials: ApiCredentials) -> str:
    """Return an error in one line, without what is said anyway, and without what a server may echo."""
    text = " ".join(str(error).split()).removeprefix(f"{credentials.server}: ")
    secrets = (credentials.token, credentials.client_key)
    for secret in (secret.reveal() for secret in secrets if secret is not None):
        text = text.replace(secret, "********")
    return text
