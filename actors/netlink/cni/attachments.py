"""Making, checking and removing interfaces by calling CNI plugins.

A record is written before the first plugin is called and goes when the last one has removed what it made, so a crash at
any point leaves a record from which the interface is removed. A failed ADD is followed by DEL at once (specification
1.0.0, section 3); if that fails as well, the record stays and the next pass repeats it. Everything blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config.desired import CniAttachment, IPInterface
from config.settings import Settings
from supervisor.logs.logger import get_logger
from supervisor.process.subprocesses import Completed
from supervisor.runtime.faults import DependencyFault

from ..planning.observed import CniRecord, Link, NamespaceView
from ..state_files import StateFiles
from .protocol import PluginError, checks, environment, plugin_input, plugins_of, refusal, reserves, result_of

log = get_logger("netlink")

#: How long one plugin may take. Each of its interface's plugins holds up the pass, which has other things to do.
PLUGIN_SECONDS: Final = 10.0
#: After this many seconds a CHECK that found out nothing is repeated.
CHECK_AGAIN_SECONDS: Final = 60.0

#: Runs a program with this environment and standard input; DependencyFault when it cannot run or does not end.
Run = Callable[[Path, Mapping[str, str], str], Completed]

#: Whether the router has the interface now.
Exists = Callable[[], bool]


class AttachmentRefused(Exception):  # noqa: N818 - named like the kernel's refusals
    """Plugins did not make or remove an interface. The message is the plugin's."""


@dataclass(frozen=True, slots=True)
class _Checked:
    """A CHECK's outcome: for which state of the kernel, when, and why it failed (None: it succeeded)."""

    state: tuple[str, Link, frozenset[IPInterface]]
    when: float
    error: PluginError | None = None

    def holds(self, state: tuple[str, Link, frozenset[IPInterface]], now: float) -> bool:
        return self.state == state and (self.error is None or now < self.when + CHECK_AGAIN_SECONDS)


class Attachments:
    """The plugins of one directory, with the records of what they made. ``container`` is CNI's container ID."""

    def __init__(self, directory: Path, state: StateFiles, run: Run, container: str) -> None:
        self._directory = directory
        self._state = state
        self._run = run
        self._container = container
        self._checked: dict[str, _Checked] = {}
        #: Made and not checked since; and those of which CHECK refuses what ADD made, and is not asked.
        self._new: set[str] = set()
        self._trusted: set[str] = set()

    @classmethod
    def of(cls, settings: Settings, state: StateFiles, run: Run) -> Attachments:
        """Return the plugins of this installation."""
        return cls(settings.cni_plugin_dir, state, run, f"{settings.netns}-underlay")

    def attach(self, attachment: CniAttachment, netns: Path, exists: Exists) -> None:
        """Make an interface. Raises :class:`AttachmentRefused` with nothing left behind, and OSError of the disk."""
        self._forget_checks(attachment.name)
        self._state.save_cni(CniRecord(attachment))
        result = ""
        try:
            for index, plugin in enumerate(plugins_of(attachment)):
                result = result_of(plugin, self._call("ADD", attachment, index, result, netns))
        except PluginError as error:
            self._undo(attachment, netns, exists, error)
        self._state.save_cni(CniRecord(attachment, result))
        self._new.add(attachment.name)

    def _forget_checks(self, name: str) -> None:
        self._checked.pop(name, None)
        self._new.discard(name)
        self._trusted.discard(name)

    def _undo(self, attachment: CniAttachment, netns: Path, exists: Exists, error: PluginError) -> None:
        try:
            self.detach(attachment.name, netns, exists)
        except AttachmentRefused as second:
            raise AttachmentRefused(f"{error}; removing what it left behind: {second}") from None
        raise AttachmentRefused(str(error)) from None

    def detach(self, name: str, netns: Path, exists: Exists) -> None:
        """Remove an interface, and its record. Raises :class:`AttachmentRefused` with the record kept, and OSError.

        Each plugin is called, even after another one failed, so that the others remove their part.
        A refusal does not count once the interface is gone and nothing else was reserved: macvlan (1.1.1) refuses DEL
        without its master, with which the kernel removed the interface.
        """
        self._forget_checks(name)
        record = self._state.cni().get(name)
        if record is None:
            return
        refused: list[str] = []
        for index, _ in reversed(list(enumerate(plugins_of(record.attachment)))):
            try:
                self._call("DEL", record.attachment, index, record.result, netns)
            except PluginError as error:
                refused.append(str(error))
        if refused and (exists() or reserves(record.attachment)):
            raise AttachmentRefused("; ".join(refused))
        self._state.forget_cni(name)

    def check(self, wanted: CniAttachment, view: NamespaceView, netns: Path) -> PluginError | None:
        """Return why an interface is not as its plugins made it; the kernel's state was checked before: None.

        An error that is ``unable`` says nothing about the interface. Nor does the refusal of what ADD has just made:
        otherwise it would be made again and again.
        """
        name = wanted.name
        record, link = self._state.cni().get(name), view.links.get(name)
        if record is None or record.attachment != wanted or not record.result or link is None:
            return None
        if name in self._trusted or not checks(wanted):
            return None
        state, now = (record.result, link, view.interfaces(name)), time.monotonic()
        known = self._checked.get(name)
        if known is not None and known.holds(state, now):
            return known.error
        error = self._check(record, netns)
        if error is not None and not error.unable:
            if name not in self._new:
                return error
            log.info("CNI's CHECK refuses what ADD has just made, and is not used", interface=name, error=error)
            self._trusted.add(name)
            return None
        self._checked[name] = _Checked(state, now, error)
        if error is None:
            self._new.discard(name)
        return error

    def _check(self, record: CniRecord, netns: Path) -> PluginError | None:
        for index, _ in enumerate(plugins_of(record.attachment)):
            try:
                self._call("CHECK", record.attachment, index, record.result, netns)
            except PluginError as error:
                return error
        return None

    def _call(self, command: str, attachment: CniAttachment, index: int, previous: str, netns: Path) -> str:
        plugin = plugins_of(attachment)[index]
        variables = environment(
            command, attachment.name, container=self._container, netns=netns, directory=self._directory
        )
        try:
            done = self._run(self._directory / plugin, variables, plugin_input(attachment, index, previous))
        except DependencyFault as fault:
            raise PluginError(plugin, str(fault), unable=True) from None
        if done.returncode != 0:
            raise refusal(plugin, done.returncode, done.stdout, done.stderr)
        return done.stdout
