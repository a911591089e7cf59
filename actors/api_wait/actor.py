"""Publish how the API server can be reached: as soon as it can, whenever that changes, and why it cannot.

    kubeconfig and its files ──> CredentialFiles (events) ──> load ──> probe ──> Connection ──> ApiAccess

While a server answers it is left alone: the watches of its users notice its loss by themselves, and five thousand
nodes that only poll for an answer would be a load. Only files are watched, and credentials that expire are read
again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from actors.lib.kube.client import KubeClient
from actors.lib.kube.credentials import PLUGIN_SECONDS, Trust, kubeconfig_path, load
from config.api import ApiAccess, ApiReach
from config.crd.conditions import timestamp
from config.settings import Settings
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest

from .connection import IN_FORCE, Connection, Load
from .credential_files import Wake
from .probe import PROBE_SECONDS, Connect

log = get_logger("api_wait")

#: Most characters of a fact in the status; the access has the whole text.
_FACT_LENGTH: Final = 160
_ATTEMPT_SECONDS: Final = PLUGIN_SECONDS + PROBE_SECONDS + 30.0


async def run(
    ctx: ActorContext,
    *,
    settings: Settings,
    out: Latest[ApiAccess],
    connect: Connect = KubeClient,
    read: Load | None = None,
    wall: Callable[[], float] = time.time,
    chance: Callable[[], float] = random.random,
) -> None:
    """Follow files and server. ``wall`` is the clock in Unix seconds, ``chance`` a random number in [0, 1)."""
    proven = getattr(out.peek(), "credentials", None)
    read = read or partial(load, trust=Trust.of(settings))
    connection = Connection(kubeconfig_path(settings), proven, connect=connect, load=read, wall=wall, chance=chance)
    ctx.started()
    wake = Wake.CHANGED
    with connection.files.events:
        while True:
            problem = connection.problem
            with ctx.working("connecting to the API server", _ATTEMPT_SECONDS):
                finished = await connection.files.unless_changed(partial(connection.attempt, wake))
            if not finished:
                wake = Wake.CHANGED
                continue
            before = out.peek()
            access = connection.access(before)
            if access is not before:
                out.set(access)
            _log_change(access, before, connection, problem)
            _note(ctx, access, connection)
            with ctx.idle():
                wake = await connection.files.wait(*connection.pause())


def _log_change(access: ApiAccess, before: ApiAccess | None, connection: Connection, problem: str) -> None:
    """Log what has changed. ``problem`` is what was wrong with the file before."""
    if before is None or access.reach is not before.reach:
        _log_reach(access, connection)
    elif connection.problem and connection.problem != problem:
        text = f"{connection.problem}; {IN_FORCE}" if connection.proven else connection.problem
        log.warning(text, message_id=message_ids.API_CREDENTIALS_UNUSABLE)
    elif problem and not connection.problem:
        log.info(
            "the credentials for the API server can be read again",
            message_id=message_ids.API_CREDENTIALS_READABLE,
            file=connection.files.kubeconfig,
        )


def _log_reach(access: ApiAccess, connection: Connection) -> None:
    kubeconfig, candidate = connection.files.kubeconfig, connection.candidate
    server = candidate.server if candidate else None
    if access.reach is ApiReach.REACHABLE:
        log.info("the API server answers", message_id=message_ids.API_REACHABLE, server=server, credentials=kubeconfig)
        if candidate and not candidate.verify:
            log.warning(
                "insecure-skip-tls-verify: another server that answers in place of the API server gets the credentials",
                message_id=message_ids.API_NOT_VERIFIED,
                server=server,
                credentials=kubeconfig,
            )
    elif access.reach is ApiReach.UNCONFIGURED:
        log.info(
            "no credentials for an API server yet",
            message_id=message_ids.API_NO_CREDENTIALS,
            waiting_for=kubeconfig,
        )
    else:
        # Each of these is for someone else to fix.
        unreachable = message_ids.API_UNREACHABLE if candidate else message_ids.API_CREDENTIALS_UNUSABLE
        message_id = message_ids.API_REFUSED if access.reach is ApiReach.REFUSED else unreachable
        text = f"the API server cannot be used: {access.detail}"
        log.warning(text, message_id=message_id, reach=access.reach, server=server)


def _note(ctx: ActorContext, access: ApiAccess, connection: Connection) -> None:
    """Set the facts for the status."""
    candidate = connection.candidate
    expires_at = candidate.expires_at if candidate else None
    ctx.note(
        reach=access.reach.value,
        server=candidate.server if candidate else None,
        since=timestamp(access.since),
        expires_at=None if expires_at is None else timestamp(expires_at),
        detail=access.detail[:_FACT_LENGTH] or None,
    )
