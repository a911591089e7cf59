"""Publish the way to the API server: as soon as there is one, whenever it changes, and why there is none.

Three things are kept apart: what the files say (:mod:`.watching`), what the credentials in them are
(:mod:`actors.lib.kube.credentials`), and what a server says to them (:mod:`.asking`). While a server answers, it is
left alone: the streams of those who use it notice its loss by themselves, and five thousand nodes that asked for
nothing else than an answer would be a load. Only files are looked at, about once a second, and credentials that end
are read again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from actors.lib.kube.client import KubeClient
from actors.lib.kube.credentials import PLUGIN_SECONDS, kubeconfig_path, load
from config.api import ApiAccess, ApiCredentials, ApiReach
from config.settings import Settings
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest

from .access import IN_FORCE, Knowledge, access_of, moment, same_access
from .connection import Reader, Way
from .credential_files import Wake
from .probe import ASK_SECONDS, Connect

log = get_logger("api_wait")

#: Most characters of a fact in the status; the access has the whole text.
_FACT_LENGTH: Final = 160
_ATTEMPT_SECONDS: Final = PLUGIN_SECONDS + ASK_SECONDS + 30.0


async def run(
    ctx: ActorContext,
    *,
    settings: Settings,
    out: Latest[ApiAccess],
    connect: Connect = KubeClient,
    read: Reader | None = None,
    wall: Callable[[], float] = time.time,
    chance: Callable[[], float] = random.random,
) -> None:
    """Follow files and server. ``wall`` is the clock in Unix seconds, ``chance`` a random number in [0, 1)."""
    kubeconfig = kubeconfig_path(settings)
    known = Knowledge(str(kubeconfig), proven=getattr(out.peek(), "credentials", None))
    way = Way(known, connect, read or load, wall, chance)
    ctx.started()
    wake = Wake.CHANGED
    while True:
        complaint = way.known.complaint
        with ctx.working("looking for the API server", _ATTEMPT_SECONDS):
            ended = await way.files.unless_changed(partial(way.attempt, wake))
        if not ended:
            wake = Wake.CHANGED
            continue
        before = out.peek()
        access = access_of(way.known, before, wall())
        if not same_access(before, access):
            out.set(access)
        tell(access, before, way.known, complaint)
        note(ctx, access, way.known.candidate)
        with ctx.idle():
            wake = await way.files.wait(*way.pause())


def tell(access: ApiAccess, before: ApiAccess | None, known: Knowledge, complaint: str) -> None:
    """Log what has changed, once. ``complaint`` is what there was to say of the file before."""
    if before is None or access.reach is not before.reach:
        _tell_reach(access, known)
    elif known.complaint and known.complaint != complaint:
        complaint = f"{known.complaint}; {IN_FORCE}" if known.proven else known.complaint
        log.warning(complaint, message_id=message_ids.API_CREDENTIALS_UNUSABLE)
    elif complaint and not known.complaint:
        log.info(
            "the credentials for the API server can be read again",
            message_id=message_ids.API_CREDENTIALS_READABLE,
            file=known.kubeconfig,
        )


def _tell_reach(access: ApiAccess, known: Knowledge) -> None:
    server = known.candidate.server if known.candidate else None
    if access.reach is ApiReach.REACHABLE:
        log.info(
            "the API server answers", message_id=message_ids.API_REACHABLE, server=server, credentials=known.kubeconfig
        )
    elif access.reach is ApiReach.UNCONFIGURED:
        log.info(
            "there are no credentials for an API server yet",
            message_id=message_ids.API_NO_CREDENTIALS,
            waiting_for=known.kubeconfig,
        )
    else:
        log.warning(
            f"the API server cannot be used: {access.detail}",
            message_id=_trouble(access, known),
            reach=access.reach,
            server=server,
        )


def _trouble(access: ApiAccess, known: Knowledge) -> str:
    """Return the event of a server that cannot be used: who has to mend something is another one for each."""
    if access.reach is ApiReach.REFUSED:
        return message_ids.API_REFUSED
    return message_ids.API_UNREACHABLE if known.candidate else message_ids.API_CREDENTIALS_UNUSABLE


def note(ctx: ActorContext, access: ApiAccess, credentials: ApiCredentials | None) -> None:
    """Say in the status how it stands."""
    ends = credentials.expires_at if credentials else None
    ctx.note(
        reach=access.reach.value,
        server=credentials.server if credentials else None,
        since=moment(access.since),
        credentials_end=moment(ends) if ends is not None else None,
        detail=access.detail[:_FACT_LENGTH] or None,
    )
