"""Elects one of several controllers by a Lease, as Kubernetes' own controllers do.

    Lease ──> taken if it is free, ours, or was not renewed for its duration ──> Term: until when this one may write

The age of a renewal is measured with this machine's clock from the moment at which it was seen, so the machines' clocks
need not agree. A leader that cannot renew stops writing before its Lease expires; one that is stopped releases the
Lease, so that the next one takes over within a few seconds.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from actors.lib.kube.client import Json, KubeClient
from actors.lib.kube.decoding import micro_time
from actors.lib.kube.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from config.api import ApiCredentials
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.logs.throttle import RepeatLimiter
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader
from supervisor.runtime.faults import summarize

log = get_logger("election")

NAME: Final = "openperouter-controller"
#: client-go's defaults: how long a Lease lasts after a renewal, and how long its holder may write.
LEASE_SECONDS: Final = 15.0
TERM_SECONDS: Final = 10.0
#: Interval between renewals; between reads of another holder's Lease, and after a failure.
RENEW_SECONDS: Final = 4.0
RETRY_SECONDS: Final = 2.0
#: Deadlines of one attempt, and of the release.
ATTEMPT_SECONDS: Final = 5.0
RELEASE_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Term:
    """Until when this controller may write, in seconds of trio's clock; ``number`` counts its terms."""

    until: float = -math.inf
    number: int = 0

    def holds(self, now: float) -> bool:
        """Whether this controller is the leader."""
        return now < self.until


@dataclass(frozen=True, slots=True)
class Lease:
    """The Lease on the server; it lasts ``seconds`` after ``renewed``; ``transitions`` counts changes of its holder."""

    version: str
    holder: str = ""
    acquired: str = ""
    renewed: str = ""
    seconds: float = LEASE_SECONDS
    transitions: int = 0

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Lease:
        """Read the server's object."""
        spec = raw.get("spec") or {}
        return cls(
            str(raw.get("metadata", {}).get("resourceVersion", "")),
            spec.get("holderIdentity") or "",
            spec.get("acquireTime") or "",
            spec.get("renewTime") or "",
            float(spec.get("leaseDurationSeconds") or LEASE_SECONDS),
            int(spec.get("leaseTransitions") or 0),
        )

    def held_by(self, identity: str, now: float) -> Json:
        """Return the spec with which ``identity`` takes or renews it at ``now``, in Unix seconds."""
        same, moment = self.holder == identity, micro_time(now)
        return {
            "holderIdentity": identity,
            "leaseDurationSeconds": int(LEASE_SECONDS),
            "acquireTime": (self.acquired if same else "") or moment,
            "renewTime": moment,
            "leaseTransitions": self.transitions + (0 if same else 1),
        }

    def may_be_taken(self, identity: str, seen_at: float, now: float) -> bool:
        """Whether ``identity`` may take it; ``seen_at`` is when this state of it was first seen."""
        return self.holder in ("", identity) or now >= seen_at + self.seconds


async def run(
    ctx: ActorContext,
    *,
    namespace: str,
    identity: str,
    credentials: LatestReader[ApiCredentials],
    out: Latest[Term],
    connect: Callable[[ApiCredentials], KubeClient] = KubeClient,
    wall: Callable[[], float] = time.time,
    chance: Callable[[], float] = random.random,
) -> None:
    """Take part in the election indefinitely. ``identity`` is unique; ``wall`` is the clock in Unix seconds."""
    candidate = Candidate(namespace, identity, out, wall)
    limiter = RepeatLimiter(log, clock=trio.current_time)
    ctx.started()
    while True:
        with ctx.idle():
            current = credentials.take() or credentials.peek() or await credentials.receive()
        try:
            async with connect(current) as client:
                try:
                    await _stand(ctx, candidate, client, credentials=credentials, limiter=limiter, chance=chance)
                except trio.Cancelled:
                    # It is kept when only the credentials change.
                    await candidate.release(client)
                    raise
        except UnreachableError as error:
            limiter.failing(
                "lease", f"cannot take part in the election: {error}", message_id=message_ids.CONTROLLER_FAILS
            )
            with ctx.idle():
                await trio.sleep(RETRY_SECONDS)


async def _stand(
    ctx: ActorContext,
    candidate: Candidate,
    client: KubeClient,
    *,
    credentials: LatestReader[ApiCredentials],
    limiter: RepeatLimiter,
    chance: Callable[[], float],
) -> None:
    """Take or renew the Lease with one client, until there are new credentials."""
    while not credentials.pending:
        pause = RETRY_SECONDS
        try:
            with ctx.working("renewing the Lease", ATTEMPT_SECONDS):
                await candidate.attempt(client)
            limiter.recovered("lease", "the Lease can be read and written again")
            pause = RENEW_SECONDS
        except (ApiError, trio.TooSlowError) as error:
            text = f"cannot take part in the election: {summarize(error)}"
            limiter.failing("lease", text, message_id=message_ids.CONTROLLER_FAILS)
            candidate.check()
        with ctx.idle(), trio.move_on_after(pause * (0.8 + 0.4 * chance())):
            await credentials.wait_pending()


@dataclass(slots=True)
class Candidate:
    """One controller's view of the Lease; ``out`` gets its terms."""

    namespace: str
    identity: str
    out: Latest[Term]
    wall: Callable[[], float]
    _seen: Lease | None = None
    _seen_at: float = -math.inf
    _leading: bool = False
    _terms: int = field(default=0)

    @property
    def _collection(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    async def attempt(self, client: KubeClient) -> None:
        """Renew the Lease, or take it if it may be taken. Raises the errors of the client."""
        self.check()
        began_at = trio.current_time()
        if not self._leading or self._seen is None:
            await self._read(client)
        lease = self._seen
        if lease is not None and not lease.may_be_taken(self.identity, self._seen_at, trio.current_time()):
            return self._end(f"{lease.holder} is the leader")
        try:
            await self._write(client, (lease or Lease("")).held_by(self.identity, self.wall()))
        except (ConflictError, NotFoundError):
            # Another candidate took it, or it was deleted.
            self._seen = None
            raise
        if not self._leading:
            self._leading = True
            self._terms += 1
            log.info("this controller is now the leader", identity=self.identity)
        self.out.set(Term(began_at + TERM_SECONDS, self._terms))
        return None

    def check(self) -> None:
        """End a term that was not renewed in time."""
        term = self.out.peek()
        if self._leading and term is not None and not term.holds(trio.current_time()):
            self._seen = None
            self._end("its Lease was not renewed in time")

    async def release(self, client: KubeClient) -> None:
        """Release the Lease, if it is ours, within a short time."""
        leading, lease = self._leading, self._seen
        self._end("it stops")
        if not leading or lease is None:
            return
        freed = {**lease.held_by(self.identity, self.wall()), "holderIdentity": "", "leaseDurationSeconds": 1}
        with trio.move_on_after(RELEASE_SECONDS, shield=True):
            try:
                await self._write(client, freed)
            except ApiError as error:
                log.debug("the Lease cannot be released; it expires", error=str(error))
        self._seen = None

    def _end(self, reason: str) -> None:
        if self._leading:
            self._leading = False
            self.out.set(Term(number=self._terms))
            log.info("this controller is no longer the leader", reason=reason)

    async def _read(self, client: KubeClient) -> None:
        """Read the Lease; any change of it is a renewal."""
        try:
            found = Lease.read(await client.get(f"{self._collection}/{NAME}"))
        except NotFoundError:
            self._seen = None
            return
        if found != self._seen:
            self._seen, self._seen_at = found, trio.current_time()

    async def _write(self, client: KubeClient, spec: Json) -> None:
        metadata: Json = {"name": NAME, "namespace": self.namespace}
        body: Json = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        if self._seen is None:
            answer = await client.create(self._collection, body)
        else:
            metadata["resourceVersion"] = self._seen.version
            answer = await client.replace(f"{self._collection}/{NAME}", body)
        self._seen, self._seen_at = Lease.read(answer), trio.current_time()
