"""Runs episodes: a daemon in its world, users' edits, faults, and the judgement.

Episode -> a new router with the final configuration (what is wanted)
        -> the history, every fault healed, the daemon left alone until it equals that -> silence -> Result
"""

from __future__ import annotations

import gc
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import ip_interface
from pathlib import Path
from typing import Any, Final
from unittest import mock

import trio

from actors.netlink.planning.observed import Link, LinkKind, Namespace, owned_address
from actors.netlink.planning.steps import CreateLink, DeleteLinks, MoveLink, Step
from actors.netlink.state_files import StateFiles
from config.problems import errors
from config.status import Status
from supervisor.process.signals import request_reload
from supervisor.runtime.faults import EXIT_BUG, EXIT_CONFIG

from . import invariants
from .daemon import Disturbance, InjectedCrashError, SimulatedDaemon, simulated
from .episode import NICS, Episode, Event, Item, What, draw
from .invariants import BYSTANDER, Device, Router, frr_lines, of_bystander
from .world import FOREIGN, Faults, Killed, Life, RecordingNotifier, World, devices

#: Within this many seconds after the last fault the router equals a new one.
CONVERGENCE_SECONDS: Final = 240.0
#: How long nothing may be written after that: more than two audits.
SILENCE_SECONDS: Final = 25.0
#: systemd's pause before it starts the daemon again.
RESTART_SECONDS: Final = 1.0
#: The same after a configuration that cannot be used at all.
UNUSABLE_SECONDS: Final = 10.0
#: Drift of a higher number comes without a notification: only an audit finds it.
UNNOTICED: Final = 6
#: Torn by the fault of that name. Not the journal of NICs: what is only there is lost with it.
STATE_FILES: Final = (
    "vrf-tables.json", "last-good.json", "in-force.json", "node.json", "node-labels.json", "api-snapshot.json",
)  # fmt: skip
#: The disks that a fault of this name fills, where it is not the disk's own name.
FULL: Final = {"all": frozenset({"state", "run", "etc"})}
#: Where a process has its virtual disks; memory where there is such a file system.
SCRATCH: Final = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)


@dataclass(frozen=True, slots=True)
class Result:
    """How an episode ended: ``violations`` of the invariants, one line each, and the trace."""

    episode: Episode
    violations: tuple[str, ...]
    trace: tuple[str, ...]
    digest: str
    router: Router | None = None

    def __str__(self) -> str:
        return "\n".join([str(self.episode), *(f"  VIOLATION {line[:600]}" for line in self.violations[:20])])

    def brief(self) -> Result:
        """Return it without its trace."""
        return replace(self, trace=(), router=None)


def run_many(seeds: Iterable[int]) -> Iterator[Result]:
    """Run many episodes. Most of the garbage has no cycles, so the collector runs between episodes only."""
    gc.freeze()
    gc.disable()
    try:
        for number, seed in enumerate(seeds):
            if number % 20 == 19:
                gc.collect()
            yield run(draw(seed))
    finally:
        gc.enable()
        gc.unfreeze()


def failures(seeds: Iterable[int]) -> list[Result]:
    """Run many episodes; return those that failed, without their traces."""
    return [result.brief() for result in run_many(seeds) if result.violations]


def run(episode: Episode) -> Result:
    """Run an episode and judge it against a new router with its final configuration."""
    fresh = new_router(Episode(0, final_items(episode), (), episode.bystander, episode.api))
    if fresh.router is None or fresh.violations:
        return replace(fresh, episode=episode)
    return run_in_new_world(episode, fresh.router)


_known: dict[str, Result] = {}


def new_router(episode: Episode) -> Result:
    """Return how an episode without a history ends; the last one is remembered."""
    if str(episode) not in _known:
        _known.clear()
        _known[str(episode)] = run_in_new_world(episode, None)
    return _known[str(episode)]


def run_in_new_world(episode: Episode, wanted: Router | None) -> Result:
    """Run an episode until its router is as ``wanted``; without that, until it is ready."""
    # Each disk of a process has the same name: what was parsed is remembered by its path.
    directory = Path(SCRATCH.name) / "disk"
    directory.mkdir()
    try:
        world = World(directory)
        with simulated(world, episode.seed), captured_log(world) as log:
            simulation = Simulation(world, episode, wanted, log)
            trio.run(simulation.run, clock=world.clock, strict_exception_groups=True)
        violations = tuple(dict.fromkeys(simulation.violations))
        return Result(episode, violations, tuple(world.trace.lines), world.trace.digest, simulation.router)
    finally:
        shutil.rmtree(directory)


def final_items(episode: Episode) -> tuple[Item, ...]:
    """Return the configuration after the whole history."""
    items = {(item.kind, item.name): item for item in episode.first}
    for event in episode.history:
        if event.what is What.PUT and event.item:
            items[event.item.kind, event.item.name] = event.item
        if event.what is What.DROP and event.item:
            items.pop((event.item.kind, event.item.name), None)
    return tuple(items.values())


class LogCounter(logging.Handler):
    """The daemon's log, as part of the trace; ``bugs`` are tracebacks that no fault explains."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self.world = world
        self.lines = 0
        self.bugs: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if self.world.life is None:
            return
        fields = getattr(record, "fields", {})
        self.lines += 1
        self.world.trace.add("log", f"{record.levelname} {record.name} {record.getMessage()} {fields}")
        error = record.exc_info[1] if record.exc_info else None
        # An actor that hangs is ended by its own deadline.
        if (
            error is not None
            and InjectedCrashError.__name__ not in repr(error)
            and not isinstance(error, trio.TooSlowError)
        ):
            self.bugs.append(f"{record.getMessage()}: {error!r}")


@contextmanager
def captured_log(world: World) -> Iterator[LogCounter]:
    """Count the daemon's log lines."""
    logger, counter = logging.getLogger("openperouter"), LogCounter(world)
    level, propagate = logger.level, logger.propagate
    # Who called, in which thread and process, is looked up for each record otherwise.
    lookups = mock.patch.multiple(
        logging, _srcfile=None, logThreads=False, logMultiprocessing=False, logProcesses=False
    )
    logger.addHandler(counter)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        with lookups:
            yield counter
    finally:
        logger.removeHandler(counter)
        logger.setLevel(level)
        logger.propagate = propagate


class Simulation:
    """One episode in one world."""

    def __init__(self, world: World, episode: Episode, wanted: Router | None, log: LogCounter) -> None:
        self.world, self.episode, self.wanted, self.log = world, episode, wanted, log
        self.violations: list[str] = []
        self.router: Router | None = None
        self.daemon: SimulatedDaemon | None = None
        self._disturbances: dict[str, Disturbance] = {}
        self._half_written: set[Path] = set()
        self._writes = 0
        self._is_established = False
        disturbing = (What.FRR_RESTART, What.FRR_DRIFT)
        self._frr_is_disturbed = any(event.what in disturbing for event in episode.history)
        self._vrfs: set[str] = set()
        self._over = False
        self._healing: list[tuple[float, Callable[[], object]]] = []
        world.on_write = self.written

    async def run(self) -> None:
        """Live through the episode, and judge it."""
        for item in self.episode.first:
            self.put(item)
        if self.episode.api:
            self.world.write_file(self.world.settings.credentials_dir / "kubeconfig", "the server in memory")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.keep_daemon_running)
            for event in self.episode.history:
                await self._until(event.at)
                self.world.trace.add("event", str(event))
                self.happen(event)
            await self._until(max([0.0, *(at for at, _ in self._healing)]))
            self._disturbances.clear()
            if self.world.life is not None:
                # A quiet daemon might reach the doomed write only while silence is expected.
                self.world.life.doom("", 0)
            await self.converge()
            self._over = True
            if self.world.life is not None:
                self.world.life.die()
            nursery.cancel_scope.cancel()

    async def keep_daemon_running(self) -> None:
        """Start the daemon whenever it has ended, as systemd does."""
        world = self.world
        while not self._over:
            life = world.life = Life(world)
            world.trace.add("daemon", "started")
            pause = RESTART_SECONDS
            notifier = RecordingNotifier(world)
            self.daemon = SimulatedDaemon(world, life, self._disturbances, notifier)
            try:
                with life.scope:
                    ending = await self.daemon.supervisor.run()
                    world.trace.add("daemon", f"ended: {ending}")
                    pause = UNUSABLE_SECONDS if ending.exit_code == EXIT_CONFIG else RESTART_SECONDS
                    if ending.exit_code == EXIT_BUG and InjectedCrashError.__name__ not in ending.reason:
                        self.violations.append(f"a bug ended the daemon: {ending.reason}")
            except* Killed:
                world.trace.add("daemon", "killed")
            world.close_monitors()
            self.violations += invariants.torn(path.name for path, _ in life.torn)
            for path, content in life.torn:
                if path.parent.is_dir():
                    path.write_bytes(content)
            await trio.sleep(pause)

    @property
    def running(self) -> SimulatedDaemon:
        """The daemon that runs, or that ran last."""
        assert self.daemon is not None
        return self.daemon

    async def _until(self, moment: float) -> None:
        """Sleep until a moment, and let faults end on the way."""
        for at, heal in sorted(self._healing, key=lambda pair: pair[0]):
            if at <= moment:
                await trio.sleep_until(at)
                heal()
        self._healing = [pair for pair in self._healing if pair[0] > moment]
        await trio.sleep_until(moment)

    # What users do

    def put(self, item: Item) -> None:
        """Write a resource where it is."""
        if item.namespace:
            self.world.api.put_kind(item.kind, item.name, dict(item.spec), namespace=item.namespace)
        else:
            self.world.write_file(self.world.settings.configs_dir / item.file, item.text)

    def drop(self, item: Item) -> None:
        """Remove a resource."""
        if item.namespace:
            self.world.api.delete_kind(item.kind, item.name, namespace=item.namespace)
        else:
            (self.world.settings.configs_dir / item.file).unlink()

    # What goes wrong

    def happen(self, event: Event) -> None:
        """Let an event happen, and note when it ends."""
        handlers: Mapping[What, Callable[[Event], Callable[[], object] | None]] = {
            What.PUT: self._edit,
            What.DROP: self._edit,
            What.HALF_WRITTEN: self._write_half,
            What.RELOAD: self._reload,
            What.CRASH: self._disturb,
            What.HANG: self._disturb,
            What.KILL: self._end_daemon,
            What.STOP: self._end_daemon,
            What.TORN_FILE: self._end_daemon,
            What.LOST_NOTIFICATIONS: lambda _: self._fault("notifications_lost", True),
            What.KERNEL_REFUSES: lambda event: self._fault("refused", {event.target: event.number}),
            What.SLOW_THREADS: lambda event: self._fault("slow_threads", float(event.number)),
            What.NIC_GONE: self._unplug,
            What.DRIFT: self._drift,
            What.FULL_DISK: lambda event: self._fault("full", FULL.get(event.target, frozenset({event.target}))),
            What.CLOCK: self._set_clock,
            What.API_ERROR: self._fail_api,
            What.API_GONE: self._forget_api,
            What.API_SILENT: lambda _: self.world.api.let_connections_die(),
            What.FRR_RESTART: self._restart_frr,
            What.FRR_HANGS: lambda _: self._fault("frr_hangs", True),
            What.FRR_DRIFT: self._drift_frr,
        }
        heal = handlers[event.what](event)
        if heal is not None:
            self._healing.append((event.at + event.seconds, heal))

    def _edit(self, event: Event) -> None:
        assert event.item is not None
        (self.put if event.what is What.PUT else self.drop)(event.item)

    def _reload(self, event: Event) -> None:
        request_reload(self.running.channels.reload)

    def _fault(self, name: str, value: object) -> Callable[[], None]:
        setattr(self.world.faults, name, value)
        return lambda: setattr(self.world.faults, name, getattr(Faults(), name))

    def _disturb(self, event: Event) -> None:
        self._disturbances[event.target] = Disturbance(event.number, hangs=event.what is What.HANG)

    def _unplug(self, event: Event) -> Callable[[], None]:
        self.world.unplug(event.target)
        return lambda: self.world.plug(event.target)

    def _set_clock(self, event: Event) -> None:
        self.world.faults.clock += event.number

    def _fail_api(self, event: Event) -> Callable[[], object]:
        names = ("api_reads", "api_writes") if event.target == "all" else (f"api_{event.target}",)
        heals = [self._fault(name, event.number) for name in names]
        self.world.api.break_watches()
        return lambda: [heal() for heal in heals]

    def _forget_api(self, event: Event) -> None:
        self.world.api.compact()
        self.world.api.break_watches()

    def _restart_frr(self, event: Event) -> Callable[[], None]:
        """Restart FRR; at every other time watchfrr ends the load of the configuration into bgpd halfway."""
        self.world.start_frr()
        if event.number % 2 == 0:
            self.world.frr.cut_short(event.number // 6 / 3)
            self._is_established = False
        return self._fault("frr_down", True)

    def _drift_frr(self, event: Event) -> None:
        """Change something that is not the bystander's, as an operator does in vtysh."""
        frr = self.world.frr
        lines = [one for one in sorted(frr_lines(frr.text)) if one not in of_bystander(frozenset({one}))]
        if lines and event.number % 2:
            *contexts, text = lines[event.number % len(lines)].split(" / ")
            frr.edit("\n".join([*contexts, f"no {text}"]))
        else:
            frr.edit("router bgp 64514\n neighbor 192.0.2.99 remote-as 65099")

    def _write_half(self, event: Event) -> Callable[[], None] | None:
        path = self.world.settings.configs_dir / (event.item.file if event.item else "")
        if not path.is_file() or path in self._half_written:
            return None
        text = path.read_text()
        half = text[: len(text) // 2]
        self.world.write_file(path, half)

        self._half_written.add(path)

        def write_the_rest() -> None:
            self._half_written.discard(path)
            if path.exists() and path.read_text() == half:
                self.world.write_file(path, text)

        return write_the_rest

    def _end_daemon(self, event: Event) -> None:
        world = self.world
        if world.life is None:
            return
        if event.what is What.STOP:
            self.running.supervisor.stop()
        elif event.what is What.KILL and event.target != "now":
            world.life.doom(event.target, event.number)
        else:
            world.life.die()
        if event.what is What.TORN_FILE:
            # Without a server its snapshot is lost for good: the daemon is meant to wait for an operator then.
            files = STATE_FILES if self.episode.api else STATE_FILES[:-1]
            path = world.settings.state_dir / files[event.number % len(files)]
            with suppress(FileNotFoundError):
                path.write_bytes(path.read_bytes()[:-9])

    def _drift(self, event: Event) -> None:
        """Change a device that is ours and not the bystander's: of the event's name, or another one."""
        kernel = self.world.kernel
        ours = [key for key, link in kernel.links.items() if link.ours and key not in BYSTANDER]
        named = [key for key in ours if key[1] == event.target]
        for key in named or ours[event.number % 5 :][:1]:
            link = kernel.links[key]
            match event.number % 4:
                case 0:
                    kernel._remove(key)
                case 1:
                    kernel.links[key] = replace(link, up=False, alias="", group=link.group)
                case 2 if kernel.addresses[key]:
                    kernel.addresses[key].append(owned_address(ip_interface("198.18.0.1/24")))
                case _:
                    kernel.addresses[key] = []
            if event.number <= UNNOTICED:
                self.world.notify(*key)

    # What is looked at

    def written(self, where: str, what: object) -> None:
        """Judge a write by what it has done."""
        self._writes += 1
        if isinstance(what, CreateLink | DeleteLinks) and not self._frr_is_disturbed:
            self.violations += invariants.before_frr(what, frr_lines(self.world.frr.text), self._vrfs)
        if where == "kernel":
            self._vrfs = {key[1] for key, link in self.world.kernel.links.items() if link.kind == LinkKind.VRF}
        if isinstance(what, MoveLink) and what.target is Namespace.ROUTER:
            self._judge_move(what.name)
        if where == "kernel":
            for nic in NICS:
                plugged = nic not in self.world.gone
                self.violations += invariants.misplaced(nic, self.world.kernel.links, plugged=plugged)
        if self.wanted is None or not self.episode.bystander:
            return
        changed = devices(what) if isinstance(what, Step) else set()
        if not self._is_established:
            self._is_established = self._has_bystander(self.wanted)
        elif where == "kernel":
            self.violations += invariants.touched(changed, what)
        else:
            self.violations += invariants.lost(of_bystander(self.wanted.frr), frr_lines(self.world.frr.text), str(what))

    def _has_bystander(self, wanted: Router) -> bool:
        """Whether the untouched tenant is in place, in the kernel and in FRR."""
        if not of_bystander(wanted.frr) <= frr_lines(self.world.frr.text):
            return False
        # Seldom, and asked at each write: the cheapest signs first.
        if any(
            (device in self.world.kernel.links) != (f"{device[0]} {device[1]}" in wanted.kernel) for device in BYSTANDER
        ):
            return False
        kernel = kernel_state(self.world, BYSTANDER)
        keys = [f"{namespace} {name}{what}" for namespace, name in BYSTANDER for what in ("", " addresses")]
        return all(kernel.get(key) == wanted.kernel.get(key) for key in keys)

    def _judge_move(self, nic: str) -> None:
        record = StateFiles.of(self.world.settings, read_only=True).journal().get(nic)
        if record is None or not record.addresses:
            self.violations.append(f"1: {nic} is moved although the journal on disk does not have its addresses")

    def observe(self) -> Router:
        """Return the router as it is."""
        world = self.world
        desired, status = self.running.channels.desired.peek(), self.running.channels.status.peek()
        return Router(
            kernel=kernel_state(world),
            frr=frr_lines(world.frr.text).difference(map(" / ".join, world.frr.lacking)),
            desired=desired.content() if desired else None,
            status=status_of(status),
            foreign={key: (world.kernel.links.get(key), tuple(world.kernel.addresses.get(key, ()))) for key in FOREIGN},
        )

    async def converge(self) -> None:
        """Wait until the router is as wanted, then expect silence."""
        deadline, found = trio.current_time() + CONVERGENCE_SECONDS, ["nothing observed"]
        while found and trio.current_time() < deadline:
            await trio.sleep(1)
            found = self._differences()
        self.violations += invariants.hurried(self.world.failed, endless=self.world.endless)
        if found:
            self.violations += (*found, *(f"a bug: {bug}" for bug in self.log.bugs))
            return
        self.router = self.observe()
        self.violations += invariants.broken(self.router.status)
        if self.wanted is not None:
            before, trace = self._writes, len(self.world.trace.lines)
            await trio.sleep(SILENCE_SECONDS)
            if self._writes != before:
                writes = [line for line in self.world.trace.lines[trace:] if " kernel: " in line or " frr: " in line]
                self.violations.append(f"2: {len(writes)} writes to a converged router: {writes[0]}")
            self.violations += self._differences()
        minutes = trio.current_time() / 60
        self.violations += invariants.bounded(self.log.lines, len(self.world.api.requests), minutes)
        self.violations += (f"a bug: {bug}" for bug in self.log.bugs)

    def _differences(self) -> list[str]:
        status = status_of(self.running.channels.status.peek())
        if not status["ready"] or status["api"] != ("server" if self.episode.api else "none"):
            return [f"2: not ready: {status}"]
        router = self.observe()
        return [] if self.wanted is None else list(invariants.differences(router, self.wanted))


def status_of(status: Status | None) -> dict[str, Any]:
    """Return what a status says about the configuration."""
    if status is None:
        return {"ready": False, "phase": "none"}
    return {
        "ready": status.ready,
        "phase": status.phase,
        "failures": sorted({str(one.resource) for one in status.failures}),
        "errors": sorted({f"{one.resource} {one.message}" for one in errors(status.problems)}),
        "api": status.api.source,
    }


@lru_cache(maxsize=4096)
def _comparable(link: Link) -> Link:
    """Return a device without what may differ between histories."""
    mac = "" if link.mac.startswith("02::") else link.mac
    return replace(link, index=0, peer_index=0, mac=mac, table=link.table and 1)


def kernel_state(world: World, only: Set[Device] = frozenset()) -> dict[str, Any]:
    """Return the kernel and the state files without what may differ between histories: indices, tables' numbers.

    Or ``only`` some devices.
    """
    kernel = world.kernel
    vrfs = {link.table: link.name for link in kernel.links.values() if link.table is not None}
    state: dict[str, Any] = {}
    for (namespace, name), link in kernel.links.items():
        if only and (namespace, name) not in only:
            continue
        state[f"{namespace} {name}"] = _comparable(link)
        state[f"{namespace} {name} addresses"] = frozenset(kernel.addresses.get((namespace, name), ())) or None
    if only:
        return state
    files = StateFiles.of(world.settings, read_only=True)
    journal = files.journal()
    for nic in NICS:
        state[f"{nic} routes"] = frozenset(kernel.routes.get(nic, ())) or None
        state[f"{nic} sysctls"] = kernel.nic_sysctls.get(nic) or None
        state[f"{nic} journal"] = journal.get(nic)
    state["sysctls"] = kernel.sysctls
    state["unreachable"] = frozenset((family, vrfs.get(table, table)) for family, table in kernel.unreachable)
    state["host_unreachable"] = frozenset(kernel.host_unreachable)
    state["tables"] = frozenset(files.tables())
    return state
