"""Publish the files' resources: complete, settled, and never less than what was known.

    changed files, reload request, end of a trial -> read everything once -> StaticSnapshot

Reading is ``config.sources.static_files``. This actor watches the files, determines the node's identity, and stores the
last good texts and the last known index on disk, so that a restart with a broken file or a late interface loses
nothing. Files whose underlay is unusable are not published: the last usable ones stay in force, with the problems of
the new ones. A configuration on trial (``trial``) is published instead of the files, but never stored as last good or
as in force, so that ending the trial restores what was there before.

Files are watched by comparing fingerprints, some ten ``stat`` calls: a directory removed and created again, replaced by
a rename or swapped behind a symbolic link is a change like any other. Events of the kernel say when to compare; without
one, the files are compared every half minute. A burst of writes is one change. Once nothing has changed for a part of
the settle interval, the files are parsed ahead: reading them at its end takes in what is still the same.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import trio

from config.desired import IPNetwork
from config.outcomes import NodeIdentity, StaticSnapshot
from config.problems import RUNNING_KEPT, Kind, Origin, Problem, Reason, Severity, errors
from config.resolve.host_networks import HostNetwork, Surroundings, ranges
from config.resolve.underlay import underlay_doubts
from config.settings import Settings, restart_problems
from config.sources.api_objects import read_objects
from config.sources.static_files import ParsedFiles, StaticRead, read_directory, read_remembered
from config.store.api_snapshot_file import read_saved
from config.store.json_store import StoreError
from config.store.last_good import LastGood
from config.syntax.files import Mark, mark
from config.syntax.secret_files import SECRETS_DIRECTORY
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.change_events import PathEvents
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader
from supervisor.runtime.faults import ConfigFault

from .node_identity import Addresses, Identification, identify
from .state_store import StateStore
from .trial import Journal, Trial, current_trial
from .waiting import Gate, hold

log = get_logger("static_config")

Fingerprint = tuple[tuple[str, Mark], ...]

#: Seconds between two polls of an absent interface from which the index is to be derived.
INTERFACE_SECONDS = 5.0
#: Seconds between two attempts to write to a full or failing disk.
DISK_RETRY_SECONDS = 60.0
#: A settle time of 0 is a legal setting; polling without any pause would be a busy loop.
SHORTEST_SETTLE_SECONDS = 0.05
#: A directory that is written to continuously is read after this many settle intervals at the latest.
MAX_SETTLE_INTERVALS = 4
#: Looks at changing files in a settle interval at most: a later write is noticed a tenth of the interval late.
LOOKS_UNTIL_SETTLED = 10
#: Files without a change for this part of the settle interval are parsed ahead.
QUIET_PART = 0.25
#: Seconds that one reading may take: bounded files on a local disk need milliseconds.
READ_SECONDS = 30.0
#: Deadline of writing three small files.
DISK_SECONDS = 30.0


async def run(
    ctx: ActorContext,
    *,
    settings: Settings,
    settings_file: Path,
    reload: LatestReader[int],
    out: Latest[StaticSnapshot],
    addresses: Addresses,
    networks: Callable[[], tuple[HostNetwork, ...]] = tuple,
) -> None:
    """Publish a snapshot at start, after each settled change, and for each reload request.

    ``settings`` are those of ``settings_file`` at start; a reload reports which have changed since. ``networks`` reads
    what the machine uses; files whose tunnel endpoints would take some of that do not replace those in force.

    Raises :class:`ConfigFault` at a start with something to configure when the node's index is unknown now and from
    before: such a start can never work. A running router continues as it is.
    """
    memory = StateStore(settings.state_dir)
    memory.load()
    gate = Gate(settings)
    ctx.started()
    reload_id = 0
    differing: tuple[Problem, ...] = ()
    before = Reading(None)
    paths = watched(settings)
    take = partial(fingerprint, paths)
    parsed: ParsedFiles = {}

    async def parse_ahead() -> None:
        if settings.auto_apply:
            with ctx.working("parsing the configuration files", READ_SECONDS):
                await trio.to_thread.run_sync(parse_files, parsed, settings, memory)

    with PathEvents(lambda: dict(take())) as events:
        seconds = max(settings.settle_seconds, SHORTEST_SETTLE_SECONDS)
        wait = partial(wait_changed, take, events, settle_seconds=seconds, quiet=parse_ahead)
        while True:
            request = reload.take()
            reload_id = max(reload_id, request or 0)
            seen = take()
            with ctx.working("reading the configuration files", READ_SECONDS):
                if request is not None:
                    differing = await trio.to_thread.run_sync(restart_problems, settings_file, settings)
                wanted = ReadRequest(reload_id, out.peek(), differing, networks, before.ranges, parsed)
                reading = await trio.to_thread.run_sync(read_or_hold, settings, memory, wanted, addresses, gate)
            if reading.snapshot is not None and reading.snapshot != out.peek():
                out.set(reading.snapshot)
            # Afterwards, since a disk may be slow: what a restart would find meanwhile are the files themselves. Where
            # a reload decides what counts of them, it is on disk already.
            with ctx.working("saving the last good configuration", DISK_SECONDS):
                await trio.to_thread.run_sync(memory.save)
            log_changes(before, reading)
            resources = len(reading.snapshot.resources) if reading.snapshot else 0
            on_trial = str(reading.trial) if reading.trial else None
            ctx.note(resources=resources, waiting_for=reading.waiting_for or None, on_trial=on_trial)
            running = reading.trial is not None and not reading.trial.accepted
            ctx.note(trial_ends_at=reading.trial.ends_at if reading.trial and running else None)
            ctx.note(
                memory="not on disk" if memory.is_behind else None, waiting_files=len(reading.waiting_files) or None
            )
            before = reading
            with ctx.idle():
                await wait_for_work(partial(wait, seen), reload, reading.seconds(memory))


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Why the files are read: ``reload_id`` is the newest reload, ``previous`` what was published last.

    ``differing`` is what the last reload found in the settings; ``networks`` reads what the machine uses; ``ranges`` of
    tunnel endpoints are known to be in force; ``parsed`` are the files as they were parsed last.
    """

    reload_id: int
    previous: StaticSnapshot | None
    differing: tuple[Problem, ...] = ()
    networks: Callable[[], tuple[HostNetwork, ...]] = tuple
    ranges: frozenset[IPNetwork] = frozenset()
    parsed: ParsedFiles = field(default_factory=dict)

    @property
    def is_asked_for(self) -> bool:
        """Whether a reload is newer than what was published, if anything was."""
        return self.reload_id > (self.previous.reload_id if self.previous else 0)

    @property
    def is_reload(self) -> bool:
        """Whether the request is newer than what was published; a restarted actor sees old requests again."""
        return self.previous is not None and self.reload_id > self.previous.reload_id


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading everything once.

    ``snapshot`` is None at a start while an interface is missing that may still appear: READY would be too early.
    ``waiting_files`` have changes that a reload will take in. ``ranges`` are those of the files if they are in force.
    """

    snapshot: StaticSnapshot | None
    waiting_for: str = ""
    trial: Trial | None = None
    waiting_files: tuple[str, ...] = ()
    ranges: frozenset[IPNetwork] = frozenset()

    def seconds(self, memory: StateStore) -> float | None:
        """Return after how many seconds to read again although nothing has changed; None is never."""
        waits = [INTERFACE_SECONDS] if self.waiting_for else []
        if memory.is_behind:
            waits.append(DISK_RETRY_SECONDS)
        if self.trial is not None and not self.trial.accepted:
            waits.append(memory.journal.left(self.trial))
        return min(waits, default=None)


def log_changes(before: Reading, after: Reading) -> None:
    """Log what differs between two readings beyond the snapshot, which later stages log."""
    if after.waiting_files and after.waiting_files != before.waiting_files:
        log.info("changed files wait for a reload", files=",".join(after.waiting_files))
    if after.waiting_for != before.waiting_for:
        waiting = bool(after.waiting_for)
        write = log.warning if waiting else log.info
        interface = after.waiting_for or before.waiting_for
        event = message_ids.WAITING_FOR_INTERFACE if waiting else None
        write("the node's index is derived from an interface", message_id=event, interface=interface, there=not waiting)
    if after.trial is not None and after.trial != before.trial:
        names = ",".join((*after.trial.changed, *after.trial.removed))
        log.warning(
            f"in force instead of the files: {after.trial}",
            message_id=message_ids.TRIAL_IN_FORCE,
            files=names,
            trial=after.trial.id,
        )
    elif after.trial is None and before.trial is not None:
        log.info("the trial is over; the files are in force", message_id=message_ids.TRIAL_OVER, trial=before.trial.id)


def read_or_hold(
    settings: Settings, memory: StateStore, request: ReadRequest, addresses: Addresses, gate: Gate
) -> Reading:
    """Read everything once, or return what is in force while changes wait for a reload."""
    trial = current_trial(memory.journal)
    who = identify(settings.node_config_file, socket.gethostname(), settings.log_level, addresses, memory.node)
    names = () if trial or request.is_asked_for else gate.waiting(memory)
    held = hold(names, settings, memory, who.node, request.previous) if names else None
    if held is not None:
        return Reading(held, waiting_files=names)
    if trial is None:
        gate.take_in(memory)
    return read(settings, memory, request, who, trial)


def read(
    settings: Settings, memory: StateStore, request: ReadRequest, who: Identification, trial: Trial | None
) -> Reading:
    """Read everything once."""
    name = who.node.name if who.node else socket.gethostname()
    files = read_directory(
        settings.configs_dir,
        name,
        memory.last_good,
        namespace=settings.namespace,
        # A command that starts a trial sends a reload of its own.
        absence_confirmed=request.is_reload and trial is None,
        parsed=request.parsed,
    )
    tried = read_trial(settings, trial, name, memory) if trial else None
    if who.node is None and (tried or files).resources:
        memory.keep(files.last_good, memory.in_force, None)
        # Here, since a start without an identity ends with this reading.
        memory.save()
        return Reading(unidentified(who, tried or files, request), who.waiting_for, trial)
    # A node with nothing to configure needs no identity.
    node = who.node or NodeIdentity(name, 0)
    # What is in force may keep what it has, and reading the kernel takes longer than reading the files. At a start no
    # ranges are known, only the texts that were in force.
    known = files.last_good == memory.in_force or ranges(files.resources) <= request.ranges
    compared = trial is not None or not known
    around = Surroundings(request.networks() if compared else ())
    chosen, kept = settle_underlay(settings, files, node, memory, around)
    if trial and tried:
        around = replace(around, in_force=ranges_in_force(settings, node, memory, request.previous))
        doubts = underlay_doubts(tried.resources, node, around)
        chosen, kept = settle_trial(trial, tried, chosen, memory, doubts), memory.in_force
    memory.keep(files.last_good, kept, who.node)
    if request.is_asked_for:
        # Before the reload is answered.
        memory.save()
    # On a machine with no configuration at all, a missing node configuration is no problem.
    untouched = not (chosen.resources or chosen.problems or settings.node_config_file.exists())
    problems = () if untouched else (*who.problems, *chosen.problems)
    problems = (*request.differing, *problems)
    snapshot = StaticSnapshot(node, chosen.resources, problems, request.reload_id, on_trial=trial is not None)
    in_force = ranges(files.resources) if kept is files.last_good else frozenset()
    return Reading(snapshot, who.waiting_for, trial, ranges=in_force)


def parse_files(parsed: ParsedFiles, settings: Settings, memory: StateStore) -> None:
    """Parse the files into ``parsed``, without any other effect."""
    name = memory.node.name if memory.node else socket.gethostname()
    read_directory(settings.configs_dir, name, LastGood(), namespace=settings.namespace, parsed=parsed)


def read_trial(settings: Settings, trial: Trial, node_name: str, memory: StateStore) -> StaticRead:
    """Return the resources of the texts on trial, as if those were the files."""
    texts = LastGood().with_texts(trial.texts, memory.last_good.secrets)
    return read_remembered(settings.configs_dir, node_name, texts, namespace=settings.namespace)


def settle_trial(
    trial: Trial, tried: StaticRead, files: StaticRead, memory: StateStore, doubts: tuple[Problem, ...] | None
) -> StaticRead:
    """Return the trial with a warning that says so, or the files with an error when it has ``doubts``."""
    place = Origin(path=str(memory.journal.accepted_file if trial.accepted else memory.journal.open_file))
    if doubts is not None:
        message = "the configuration on trial has no usable underlay"
        refused = Problem(message, place, reason=Reason.FILE_INVALID, in_force="the files stay in force")
        return replace(files, problems=(refused, *tried.problems, *doubts, *files.problems))
    what_to_do = "openperouter try --confirm keeps it" + ("" if trial.accepted else ", --revert ends it now")
    message = f"in force instead of the files: {trial}; {what_to_do}"
    warning = Problem(message, place, severity=Severity.WARNING, reason=Reason.FILE_INVALID)
    return replace(tried, problems=(warning, *tried.problems))


def settle_underlay(
    settings: Settings, files: StaticRead, node: NodeIdentity, memory: StateStore, around: Surroundings
) -> tuple[StaticRead, LastGood]:
    """Return what to publish and what to store as in force.

    These are the files as read, unless their underlay is unusable and that of the last files in force is not.
    ``around`` has the machine's networks; which ranges are in force is determined only where one is in the way.
    """
    doubts = underlay_doubts(files.resources, node, around)
    if doubts is None:
        return files, files.last_good
    kept = read_remembered(settings.configs_dir, node.name, memory.in_force, namespace=settings.namespace)
    in_force = ranges(kept.resources) | ranges_of_api(settings, node.name)
    doubts = underlay_doubts(files.resources, node, replace(around, in_force=in_force))
    if doubts is None:
        return files, files.last_good
    if not kept.resources or underlay_doubts(kept.resources, node) is not None:
        return files, memory.in_force
    problems = (*files.problems, *doubts)
    return replace(kept, problems=tuple(map(running_kept, problems))), memory.in_force


def ranges_in_force(
    settings: Settings, node: NodeIdentity, memory: StateStore, previous: StaticSnapshot | None
) -> frozenset[IPNetwork] | None:
    """Return the ranges that a trial may keep: those of files and API, and its own if it is in force already.

    At a start it may have been in force before: None, all.
    """
    if previous is None:
        return None
    kept = read_remembered(settings.configs_dir, node.name, memory.in_force, namespace=settings.namespace)
    trials = ranges(previous.resources if previous.on_trial else ())
    return trials | ranges(kept.resources) | ranges_of_api(settings, node.name)


def ranges_of_api(settings: Settings, node_name: str) -> frozenset[IPNetwork]:
    """Return the ranges of the API's Underlay in force, as saved, so that it can move to a file whatever its range.

    None if nothing is saved, or it cannot be read.
    """
    try:
        saved = read_saved((settings.run_dir, settings.state_dir), node_name)
    except StoreError:
        return frozenset()
    if saved is None or saved.snapshot is None:
        return frozenset()
    known = (one for one in saved.snapshot.objects if one.kind is Kind.UNDERLAY and one.id in saved.standing)
    resources, _ = read_objects(replace(saved.snapshot, objects=tuple(known)), settings.namespace)
    return ranges(resources)


def running_kept(problem: Problem) -> Problem:
    """Return a problem with what stays in force, unless it names something else."""
    return replace(problem, in_force=problem.in_force or RUNNING_KEPT)


def unidentified(who: Identification, files: StaticRead, request: ReadRequest) -> StaticSnapshot | None:
    """Return what to publish while the node's index is unknown: the last snapshot, with the problems of now.

    At a start there is none: None while an interface may still appear, else raises :class:`ConfigFault`.
    """
    if request.previous is not None:
        own = (running_kept(one) if one.severity is Severity.ERROR else one for one in who.problems)
        problems = (*request.differing, *own, *files.problems)
        return replace(request.previous, problems=problems, reload_id=request.reload_id)
    if who.waiting_for:
        return None
    raise ConfigFault("no node index: " + "; ".join(str(problem) for problem in errors(who.problems)))


def watched(settings: Settings) -> tuple[str, ...]:
    """Return the files and directories that a reading depends on."""
    journal = Journal(settings.state_dir)
    secrets = settings.configs_dir / SECRETS_DIRECTORY
    paths = (settings.node_config_file, settings.configs_dir, secrets, journal.open_file, journal.accepted_file)
    return tuple(map(str, paths))


def fingerprint(paths: Iterable[str]) -> Fingerprint:
    """Return the marks of ``paths`` and of everything directly inside those that are directories, in a stable order."""
    marks: dict[str, Mark] = {}
    for path in paths:
        found = marks[path] = mark(path)
        if found is None or not stat.S_ISDIR(found[-1]):
            continue
        try:
            names = os.listdir(path)  # noqa: PTH208 - names, not paths, are wanted
        except OSError:
            continue
        for name in names:
            entry = f"{path}/{name}"
            marks[entry] = mark(entry)
    return tuple(sorted(marks.items()))


async def wait_for_work(
    changed: Callable[[], Awaitable[None]], reload: LatestReader[int], seconds: float | None
) -> None:
    """Return when files have changed, a reload is requested, or ``seconds`` have passed."""
    async with trio.open_nursery() as nursery:
        if seconds is not None:
            nursery.cancel_scope.deadline = trio.current_time() + seconds

        async def reloaded() -> None:
            await reload.wait_pending()
            nursery.cancel_scope.cancel()

        nursery.start_soon(reloaded)
        await changed()
        nursery.cancel_scope.cancel()


async def wait_changed(
    take: Callable[[], Fingerprint],
    events: PathEvents,
    seen: Fingerprint,
    settle_seconds: float,
    quiet: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
) -> None:
    """Return once the fingerprint differs from ``seen`` and is stable, or has kept changing for too long.

    ``quiet`` is called when it has been stable for a part of the time that it takes.
    """
    while (current := take()) == seen:
        await events.wait(settle_seconds)
    now = trio.current_time()
    latest, settled, called = now + MAX_SETTLE_INTERVALS * settle_seconds, now + settle_seconds, False
    while (now := trio.current_time()) < (end := min(settled, latest)):
        quiet_at = settled - (1 - QUIET_PART) * settle_seconds
        if now >= quiet_at and not called:
            called = True
            await quiet()
            continue
        await events.wait(settle_seconds / LOOKS_UNTIL_SETTLED, (end if called else min(quiet_at, end)) - now)
        if (found := take()) != current:
            current, settled, called = found, trio.current_time() + settle_seconds, False
