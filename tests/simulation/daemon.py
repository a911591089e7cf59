"""The real daemon in the simulated world: the wiring of ``supervisor/wiring.py`` through the real runtime.

:func:`simulated` takes the process's ways out (threads, clocks, random numbers, netlink, vtysh, files) to the world's.
:class:`SimulatedDaemon` injects what the actors take as arguments, and wraps each actor so that it can crash or hang at
any await. Threads run where they are called: one after another, as their limiters would have it.
"""

from __future__ import annotations

import errno
import functools
import grp
import inspect
import os
import random
import secrets
import time
import types
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn
from unittest import mock

import trio
import trio._core._run as trio_run
from pydantic import TypeAdapter

from actors.frr import actor as frr_actor
from actors.frr.diff import difference
from actors.health.query import PolledFrr
from actors.lib.kube.credentials import Loaded, digest
from actors.netlink import actor as netlink_actor
from actors.netlink import preview as kernel_preview
from config.sources import static_files
from config.sources.router_file import FileContent, parse_router_file
from config.store import json_store
from supervisor.process import atomic_file
from supervisor.process.change_events import PathEvents
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.child import Body, ChildSpec
from supervisor.runtime.graph import Ports
from supervisor.wiring import Daemon

from .router_state import SimulatedReader
from .world import Killed, Life, RecordingNotifier, SimulatedDisk, SimulatedDriver, SimulatedKernel, World

#: systemd's watchdog period in the simulation, seconds.
WATCHDOG_SECONDS: Final = 60
#: Where trio waits in the middle of an update of its own state: the end of a nursery, the taking of a token.
BOOKKEEPING: Final = frozenset({"_nested_child_finished", "cancel_shielded_checkpoint", "acquire_on_behalf_of"})
#: An actor that declares longer calls does not hang in them, to keep episodes short.
LONGEST_HANG: Final = 120.0
#: A process compiles each schema once; thousands of simulated ones share them.
ADAPTERS: Final = functools.cache(TypeAdapter)
#: Episodes of a family have the same files, in directories of the same name. None of them has a password.
PARSED: Final = functools.lru_cache(maxsize=256)(parse_router_file)
#: The same for the blocks of FRR's text: a process forgets those that it does not need any more.
BLOCKS: Final = functools.lru_cache(maxsize=4096)(difference._parse_block)
PARAMETERS: Final = functools.cache(lambda actor: frozenset(inspect.signature(actor).parameters))


class InjectedCrashError(Exception):
    """The bug that a fault puts into an actor."""


@dataclass
class Disturbance:
    """What is going to happen to one actor: after so many of its awaits it crashes, or hangs as soon as it works."""

    awaits: int
    hangs: bool


class SimulatedDaemon(Daemon):
    """The daemon, with what its actors take as arguments."""

    def __init__(
        self, world: World, life: Life, disturbances: dict[str, Disturbance], notifier: RecordingNotifier
    ) -> None:
        self._world, self._life, self._disturbances = world, life, disturbances
        super().__init__(world.settings, settings_file=world.directory / "etc/openperouter.yaml", notifier=notifier)
        # Ending the process is what it does where a child does not end.
        self.supervisor._abandon = life.abandon

    def children(self) -> list[ChildSpec]:
        """List the real children, each wrapped."""
        return [replace(spec, connect=partial(self._connect, spec)) for spec in super().children()]

    def _connect(self, spec: ChildSpec, ports: Ports) -> Body:
        body = spec.connect(ports)
        assert isinstance(body, partial)
        world = self._world
        # The machine itself uses no networks.
        arguments: dict[str, Any] = {"connect": world.api.connect, "read": self._credentials, "networks": tuple}
        arguments |= {"wall": world.wall, "clock": world.wall}
        taken = PARAMETERS(body.func)
        actor = partial(body, **{name: value for name, value in arguments.items() if name in taken})
        return lambda context: disturbed(actor(context), context, self._disturbances, self._life)

    async def _credentials(self, path: Path) -> Loaded:
        await trio.lowlevel.checkpoint()
        return Loaded(self._world.api.credentials(), {path: digest(path)})


@types.coroutine
def disturbed(
    actor: Coroutine[Any, Any, None], context: ActorContext, disturbances: dict[str, Disturbance], life: Life
) -> Any:
    """Run an actor, and let it crash or hang when one of its awaits returns.

    Not in the middle of trio's own bookkeeping; and it hangs only where it works: an idle one is meant to wait.
    """
    resume: Callable[[], Any] = partial(actor.send, None)
    while True:
        try:
            trap = resume()
        except StopIteration:
            return
        try:
            value = yield trap
            resume = partial(actor.send, value)
            fault = disturbances.get(context.name)
            if fault is None or _is_in_trio(actor):
                continue
            fault.awaits -= 1
            if fault.awaits > 0 or (fault.hangs and not _is_soon_missed(context)):
                continue
            del disturbances[context.name]
            if not fault.hangs:
                resume = partial(actor.throw, InjectedCrashError(f"a bug in {context.name}"))
            else:
                # Where the actor shields itself, only the end of the process ends this.
                yield from life.until_ended().__await__()
        except BaseException as error:  # noqa: BLE001 - handed on to the actor
            resume = partial(actor.throw, error)


def _is_soon_missed(context: ActorContext) -> bool:
    """Whether the supervisor or the actor's own deadline ends a hang, and not only after many minutes."""
    return context.mode != "idle" and (context.activity_deadline or 0) < trio.current_time() + LONGEST_HANG


def _is_in_trio(actor: Any) -> bool:
    while actor is not None:
        code = getattr(actor, "cr_code", None) or getattr(actor, "gi_code", None)
        if code is not None and code.co_name in BOOKKEEPING:
            return True
        actor = getattr(actor, "cr_await", None) or getattr(actor, "gi_yieldfrom", None)
    return False


@contextmanager
def simulated(world: World, seed: int) -> Iterator[None]:
    """Take the process's ways out to the world's, and make every choice the seed's."""
    generator = random.Random(seed)  # noqa: S311 - reproducible on purpose

    def kernel(_: Path, state: Any, await_zebra: Any = None, plugins: Any = None) -> SimulatedKernel:
        assert world.life is not None
        return SimulatedKernel(world, world.life, state)

    async def run_in_thread(function: Callable[..., Any], *arguments: Any, limiter: Any = None, **_: Any) -> Any:
        life = world.life
        world.work()
        await trio.lowlevel.checkpoint_if_cancelled()
        async with limiter or nullcontext():
            if limiter is not None and world.faults.slow_threads:
                with trio.CancelScope(shield=True):
                    await trio.sleep(world.faults.slow_threads)
            if life is not None and life.dead:
                raise Killed
            return function(*arguments)

    def no_events(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "events come from outside of the simulation")

    def no_group(name: str) -> NoReturn:
        raise KeyError(name)

    def parsed(content: bytes, path: Path, node: str, *, passwords: Any, **more: Any) -> FileContent:
        return PARSED(content, path, node, **more)

    def driver(_: Any) -> SimulatedDriver:
        assert world.life is not None
        return SimulatedDriver(world, world.life)

    replaced = (
        (trio.to_thread, "run_sync", run_in_thread),
        (netlink_actor, "LinuxKernel", kernel),
        (kernel_preview, "LinuxKernel", kernel),
        (netlink_actor, "open_monitor", world.open_monitor),
        (frr_actor, "VtyshDriver", driver),
        (PolledFrr, "of", lambda settings, seconds: SimulatedReader(world)),
        (difference, "_parse_block", BLOCKS),
        (atomic_file, "os", SimulatedDisk(world)),
        (static_files, "parse_router_file", parsed),
        (json_store, "TypeAdapter", ADAPTERS),
        (PathEvents, "_open", no_events),
        (grp, "getgrnam", no_group),
        (time, "time", world.wall),
        (secrets, "token_hex", lambda size: generator.randbytes(size).hex()),
        (secrets, "token_bytes", generator.randbytes),
        (trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
    )
    environment = {"WATCHDOG_USEC": str(WATCHDOG_SECONDS * 1_000_000)}
    state, scheduler = random.getstate(), trio_run._r.getstate()
    random.seed(seed)
    trio_run._r.seed(seed)
    try:
        with ExitStack() as stack:
            for owner, name, value in replaced:
                stack.enter_context(mock.patch.object(owner, name, value))
            stack.enter_context(mock.patch.dict(os.environ, environment))
            yield
    finally:
        random.setstate(state)
        trio_run._r.setstate(scheduler)
