"""Keeps hosts of stretched segments known to the fabric: probes silent ones, and finds those that FRR has missed.

Input is the kernel's outcome, which has the segments. Twice in the time for which a host may be silent
(``silentHostSeconds``) the actor reads what the router has learned about its hosts (:mod:`.ports`), decides which ones
to probe (:mod:`.hosts`), and sends at most ``silentHostProbes`` probes per second. It does not read the answers: the
bridge and the IP stack process them as any other frame. The polls follow a clock of their own: changes of the
configuration add polls, and never delay one.

When there are new hosts, a poll also asks zebra whether it has them. The bridge forgets those that it does not have, so
that their next frame announces them (:mod:`.missed`).

The actor is separate from what configures the kernel, and forwarding does not depend on it: without it, remote VTEPs
flood frames to hosts that they do not know.
"""

from __future__ import annotations

import errno
import math
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

from actors.lib.network_namespace import NAMESPACES
from config.outcomes import KernelOutcome
from config.settings import Settings
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import LatestReader
from supervisor.runtime.faults import DependencyFault
from supervisor.runtime.wakeups import aligned

from ..wire.namespace import NamespaceMissing, namespace_events
from ..wire.socket import KernelRefusal
from .hosts import Host, Look, Memory, Probe, Segment, batches
from .missed import LocalMacs, MissedHosts, local_macs
from .ports import RefreshPorts, RouterPorts

T = TypeVar("T")
log = get_logger("refresh")

#: Polls in the time for which a host may be silent.
LOOKS = 2
#: Share by which the interval varies, so that nodes do not all poll at the same time.
JITTER = 0.2
#: Interval between batches of probes.
BATCH_SECONDS = 0.1
#: How often the namespace's file is checked while others come and go: our sockets would keep a deleted namespace alive,
#: with the NIC in it.
NAMESPACE_SECONDS = 2.0
#: Why the kernel's tables could not be read this time: interrupted, or no room for the answer.
PASSING = frozenset({errno.EINTR, errno.ENOBUFS})
#: How many segments a log line names.
NAMED = 10
#: Reading thousands of entries takes a fraction of a second.
LOOK_SECONDS = 30.0


async def run(
    ctx: ActorContext,
    *,
    settings: Settings,
    kernel: LatestReader[KernelOutcome],
    opened: Callable[[Path], RefreshPorts] = RouterPorts,
    zebra: Callable[[Settings, Collection[int]], Awaitable[LocalMacs]] = local_macs,
) -> None:
    """Run one incarnation until cancelled."""
    ctx.started()
    if settings.silent_host_seconds == 0:
        with ctx.idle():
            await trio.sleep_forever()
    refresher = _Refresher(ctx, settings, kernel, opened(NAMESPACES / settings.netns), zebra)
    try:
        with refresher.events:
            await refresher.run()
    finally:
        with trio.CancelScope(shield=True):
            await refresher.close()


def followed(known: Mapping[int, Segment], outcome: KernelOutcome) -> dict[int, Segment]:
    """Return the segments to poll after an outcome.

    Those of a state that is not in force are only added: until it is, devices and gateways may be those of the state
    before.
    """
    wanted = {vni.vni: Segment(vni.vni, vni.gateways) for vni in outcome.desired.l2vnis}
    return wanted if outcome.applied else {**wanted, **known}


class _Refresher:
    """The loop and its state between polls."""

    def __init__(
        self,
        ctx: ActorContext,
        settings: Settings,
        kernel: LatestReader[KernelOutcome],
        ports: RefreshPorts,
        zebra: Callable[[Settings, Collection[int]], Awaitable[LocalMacs]],
    ) -> None:
        self._ctx, self._settings, self._kernel, self._ports, self._zebra = ctx, settings, kernel, ports, zebra
        #: One thread at a time has the ports.
        self._owner = trio.CapacityLimiter(1)
        self.events = namespace_events()
        self._between = settings.silent_host_seconds / LOOKS
        self._per_second = settings.silent_host_probes
        self._memory = Memory(settings.silent_host_seconds)
        self._missed = MissedHosts()
        self._suspects: Collection[Host] = ()
        self._segments: dict[int, Segment] = {}
        self._next = trio.current_time()
        self._sent = 0

    async def run(self) -> None:
        """Poll indefinitely."""
        while True:
            changed = await self._wait()
            now = trio.current_time()
            if now >= self._next:
                # Spreading load needs no unpredictability.
                self._next = aligned(now + self._between * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311
            elif not changed:
                continue
            await self._ask(await self._look(now))

    async def _wait(self) -> bool:
        """Wait for the next poll; return early, with True, when the segments have changed."""
        with self._ctx.idle():
            while not self._segments or trio.current_time() < self._next:
                with trio.move_on_at(self._next if self._segments else math.inf):
                    async with trio.open_nursery() as nursery:
                        if self._segments:
                            nursery.start_soon(self._watch_name, nursery.cancel_scope)
                        await self._kernel.wait_pending()
                        nursery.cancel_scope.cancel()
                outcome = self._kernel.take()
                if outcome is not None:
                    before, self._segments = self._segments, followed(self._segments, outcome)
                    if before != self._segments:
                        return True
                if not self._ports.is_current():
                    await self._in_thread(self._ports.close)
        return False

    async def _watch_name(self, scope: trio.CancelScope) -> None:
        """Cancel a wait when the open namespace is not that of the router's name any more."""
        while self._ports.is_current():
            await self.events.wait(NAMESPACE_SECONDS)
        scope.cancel()

    async def _look(self, now: float) -> list[Probe]:
        """Read the router's tables and return the probes that are due.

        In one thread: with thousands of hosts it takes a good part of a second, in which the other actors must not
        wait, and each thread costs a node at rest two wakeups.
        """
        with self._ctx.working("looking for silent hosts", LOOK_SECONDS):
            return await self._in_thread(partial(self._due, now)) + await self._again(now)

    async def _again(self, now: float) -> list[Probe]:
        """Have the bridges forget the hosts that zebra has missed, and return probes that make these send a frame."""
        if not self._suspects:
            return []
        try:
            local = await self._zebra(self._settings, {host.vni for host in self._suspects})
        except DependencyFault as fault:
            # The health actor reports an FRR that does not answer. The hosts stay suspects.
            log.debug("zebra cannot be asked about hosts", error=fault)
            return []
        missed = self._missed.missed(self._suspects, local, now)
        if missed:
            vnis = sorted({host.vni for host in missed})
            log.info("FRR has missed hosts; their next frames announce them", hosts=len(missed), vnis=vnis[:NAMED])
            await self._in_thread(partial(self._ports.forget, missed))
        return self._memory.every(missed, self._segments, now)

    def _due(self, now: float) -> list[Probe]:
        look, self._suspects = Look(), ()
        try:
            if self._segments:
                look = self._ports.look(tuple(self._segments.values()))
            else:
                self._ports.close()
        except NamespaceMissing:
            self._ports.close()
        except KernelRefusal as refusal:
            # A dump beside changes that do not end. What was seen until now stays.
            if refusal.errno not in PASSING:
                raise
            return []
        self._memory.update(look)
        self._suspects = self._missed.suspects(look, now)
        return self._memory.due(look, self._segments, now, int(self._per_second * self._between))

    async def _ask(self, probes: list[Probe]) -> None:
        with self._ctx.idle():
            for number, batch in enumerate(batches(probes, math.ceil(self._per_second * BATCH_SECONDS))):
                if number:
                    await trio.sleep(BATCH_SECONDS)
                # Thousands of hosts take until the next poll, and a namespace that is gone must be let go before.
                if not self._ports.is_current():
                    break
                self._sent += sum(map(self._ports.ask, batch))
        self._ctx.note(segments=len(self._segments), hosts=len(self._memory), asked=self._sent)

    async def close(self) -> None:
        """Close the ports: their sockets keep the namespace alive."""
        await self._in_thread(self._ports.close)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(function, limiter=self._owner)
