"""Publish the files' contribution: complete, settled, and never less than what is known.

Reading is ``config.sources.static_files``; this actor adds watching, the identity of the node, and memory: the last
good texts and the last known index are on disk, so that a broken file or a late interface does not cost a restarted
daemon what it had. Files that can be read but leave the underlay in doubt are not published: the last ones that did
not stay in force, with the problems of the new ones. A configuration on trial (``trial``) is published instead of the
files, and is not remembered as last good or as in force: what comes back after it is what was there before it.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from pathlib import Path

import trio

from config.outcomes import NodeIdentity, StaticSnapshot
from config.problems import Origin, Problem, Reason, Severity, errors
from config.resolve.resolution import resolve
from config.settings import Settings
from config.sources.static_files import StaticRead, read_directory, read_remembered
from config.store.last_good import LastGood
from config.syntax.secret_files import SECRETS_DIRECTORY
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader
from supervisor.runtime.faults import ConfigFault

from .file_watch import Fingerprint, fingerprint, wait_changed
from .node_identity import Addresses, Identification, identify
from .settings_changes import settings_problems
from .state_store import StateStore
from .trial import Journal, Trial, current_trial

log = get_logger("static_config")

IN_FORCE = "everything stays as it was last configured"
#: Seconds between two looks at an interface from which the index should derive and that is not there yet.
INTERFACE_SECONDS = 5.0
#: Seconds between two attempts to write what a full or failing disk has refused.
DISK_RETRY_SECONDS = 60.0
#: A settle time of 0 is a legal setting; looking without any pause would be a busy loop.
SHORTEST_SETTLE_SECONDS = 0.05
#: Seconds that one reading may take: bounded files on a local disk need milliseconds.
READ_SECONDS = 30.0


async def run(
    ctx: ActorContext,
    *,
    settings: Settings,
    settings_file: Path,
    reload: LatestReader[int],
    out: Latest[StaticSnapshot],
    addresses: Addresses,
) -> None:
    """Publish a snapshot at start, after each settled change, and for each reload request.

    ``settings`` are what ``settings_file`` said at start; a reload tells what it says otherwise.

    Raises :class:`ConfigFault` when nothing was published yet, there is something to configure, and nothing tells, or
    ever told, which node this is: such a start can never work, a running router goes on as it is.
    """
    memory = StateStore(settings.state_dir)
    memory.load()
    ctx.started()
    reload_id = 0
    differing: tuple[Problem, ...] = ()
    before = Reading(None)
    while True:
        request = reload.take()
        reload_id = max(reload_id, request or 0)
        seen = look(settings)
        with ctx.working("reading the configuration files", READ_SECONDS):
            if request is not None:
                differing = await trio.to_thread.run_sync(settings_problems, settings_file, settings)
            asked = Asked(reload_id, out.peek(), differing)
            reading = await trio.to_thread.run_sync(read, settings, memory, asked, addresses)
        if reading.snapshot is not None and reading.snapshot != out.peek():
            out.set(reading.snapshot)
        tell_changes(before, reading)
        resources = len(reading.snapshot.resources) if reading.snapshot else 0
        on_trial = str(reading.trial) if reading.trial else None
        ctx.note(resources=resources, waiting_for=reading.waiting_for or None, on_trial=on_trial)
        ctx.note(memory="not on disk" if memory.is_behind else None)
        before = reading
        with ctx.idle():
            await wait_for_work(settings, seen, reload, reading.seconds(memory))


@dataclass(frozen=True, slots=True)
class Asked:
    """Why there is a reading: ``reload_id`` is the newest request, ``previous`` what was published last.

    ``differing`` is what the last reload found in the settings.
    """

    reload_id: int
    previous: StaticSnapshot | None
    differing: tuple[Problem, ...] = ()

    @property
    def is_reload(self) -> bool:
        """Whether somebody who could see what was published has asked; a restarted actor finds old requests again."""
        return self.previous is not None and self.reload_id > self.previous.reload_id


@dataclass(frozen=True, slots=True)
class Reading:
    """What one look at everything gave.

    ``snapshot`` is None at a start while an interface is missing that may still appear: READY would be too early.
    """

    snapshot: StaticSnapshot | None
    waiting_for: str = ""
    trial: Trial | None = None

    def seconds(self, memory: StateStore) -> float | None:
        """Return after how many seconds to look again although nothing has changed; None is never."""
        waits = [INTERFACE_SECONDS] if self.waiting_for else []
        if memory.is_behind:
            waits.append(DISK_RETRY_SECONDS)
        if self.trial is not None and not self.trial.accepted:
            waits.append(memory.journal.left(self.trial))
        return min(waits, default=None)


def tell_changes(before: Reading, after: Reading) -> None:
    """Log what differs between two readings beyond the snapshot, which others tell of."""
    if after.waiting_for != before.waiting_for:
        waiting = bool(after.waiting_for)
        told = log.warning if waiting else log.info
        interface = after.waiting_for or before.waiting_for
        event = message_ids.WAITING_FOR_INTERFACE if waiting else None
        told("the node's index derives from an interface", message_id=event, interface=interface, there=not waiting)
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


def read(settings: Settings, memory: StateStore, asked: Asked, addresses: Addresses) -> Reading:
    """Read everything once."""
    who = identify(settings.node_config_file, socket.gethostname(), settings.log_level, addresses, memory.node)
    name = who.node.name if who.node else socket.gethostname()
    trial = current_trial(memory.journal)
    files = read_directory(
        settings.configs_dir,
        name,
        memory.last_good,
        namespace=settings.namespace,
        absence_confirmed=asked.is_reload,
    )
    tried = read_trial(settings, trial, name, memory) if trial else None
    if who.node is None and (tried or files).resources:
        memory.keep(files.last_good, memory.in_force, None)
        return Reading(unidentified(who, tried or files, asked), who.waiting_for, trial)
    # Who has nothing to configure needs no identity.
    node = who.node or NodeIdentity(name, 0)
    chosen, kept = settle_underlay(settings, files, node, memory)
    if trial and tried:
        chosen, kept = settle_trial(trial, tried, chosen, node, memory), memory.in_force
    memory.keep(files.last_good, kept, who.node)
    # A machine on which nothing is configured yet lacks nothing.
    untouched = not (chosen.resources or chosen.problems or settings.node_config_file.exists())
    problems = () if untouched else (*who.problems, *chosen.problems)
    problems = (*asked.differing, *problems)
    snapshot = StaticSnapshot(node, chosen.resources, problems, asked.reload_id, on_trial=trial is not None)
    return Reading(snapshot, who.waiting_for, trial)


def read_trial(settings: Settings, trial: Trial, node_name: str, memory: StateStore) -> StaticRead:
    """Return what the texts on trial say, as if they were in their place."""
    texts = LastGood().with_texts(trial.texts, memory.last_good.secrets)
    return read_remembered(settings.configs_dir, node_name, texts, namespace=settings.namespace)


def settle_trial(
    trial: Trial, tried: StaticRead, files: StaticRead, node: NodeIdentity, memory: StateStore
) -> StaticRead:
    """Return the trial with a warning that says so, or the files with an error when it leaves the underlay in doubt."""
    doubt = resolve(tried.resources, node)
    place = Origin(path=str(memory.journal.accepted_file if trial.accepted else memory.journal.open_file))
    if doubt.desired is None:
        message = "the configuration on trial has no usable underlay"
        refused = Problem(message, place, reason=Reason.FILE_INVALID, in_force="the files stay in force")
        return replace(files, problems=(refused, *tried.problems, *doubt.problems, *files.problems))
    what_to_do = "openperouter try --confirm keeps it" + ("" if trial.accepted else ", --revert ends it now")
    message = f"in force instead of the files: {trial}; {what_to_do}"
    warning = Problem(message, place, severity=Severity.WARNING, reason=Reason.FILE_INVALID)
    return replace(tried, problems=(warning, *tried.problems))


def settle_underlay(
    settings: Settings, files: StaticRead, node: NodeIdentity, memory: StateStore
) -> tuple[StaticRead, LastGood]:
    """Return what to publish and what to remember as in force.

    These are the files as read, unless they leave the underlay in doubt and what was last in force did not.
    """
    doubt = resolve(files.resources, node)
    if doubt.desired is not None:
        return files, files.last_good
    kept = read_remembered(settings.configs_dir, node.name, memory.in_force, namespace=settings.namespace)
    if not kept.resources or resolve(kept.resources, node).desired is None:
        return files, memory.in_force
    problems = (*files.problems, *doubt.problems)
    told = tuple(replace(problem, in_force=problem.in_force or IN_FORCE) for problem in problems)
    return replace(kept, problems=told), memory.in_force


def unidentified(who: Identification, files: StaticRead, asked: Asked) -> StaticSnapshot | None:
    """Return what to publish while nothing tells which node this is: what was published last, with the problems of now.

    At a start there is no such thing: None while an interface may still appear, else raises :class:`ConfigFault`.
    """
    if asked.previous is not None:
        told = (replace(one, in_force=one.in_force or IN_FORCE) if errors([one]) else one for one in who.problems)
        problems = (*asked.differing, *told, *files.problems)
        return replace(asked.previous, problems=problems, reload_id=asked.reload_id)
    if who.waiting_for:
        return None
    raise ConfigFault("no node index: " + "; ".join(str(problem) for problem in errors(who.problems)))


def look(settings: Settings) -> Fingerprint:
    """Return the fingerprint of everything that a reading depends on."""
    secrets = settings.configs_dir / SECRETS_DIRECTORY
    journal = Journal(settings.state_dir)
    trial = (journal.open_file, journal.accepted_file)
    return fingerprint((settings.node_config_file, settings.configs_dir, secrets, *trial))


async def wait_for_work(
    settings: Settings, seen: Fingerprint, reload: LatestReader[int], seconds: float | None
) -> None:
    """Return when files have changed, a reload is requested, or ``seconds`` have passed."""
    async with trio.open_nursery() as nursery:
        if seconds is not None:
            nursery.cancel_scope.deadline = trio.current_time() + seconds

        async def reloaded() -> None:
            await reload.wait_pending()
            nursery.cancel_scope.cancel()

        nursery.start_soon(reloaded)
        await wait_changed(lambda: look(settings), seen, max(settings.settle_seconds, SHORTEST_SETTLE_SECONDS))
        nursery.cancel_scope.cancel()
