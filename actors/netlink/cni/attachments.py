"""Making, checking and removing interfaces by calling CNI plugins.

A record is written before the first plugin is called and goes when the last one has removed what it made, so a crash at
any point leaves a record from which the interface is removed. A failed ADD is followed by DEL at once (specification
1.0.0, section 3); if that fails as well, the record stays and the next pass repeats it. Everything blocks.

Addresses from DHCP are leases, which :mod:`.dhcp` keeps: each run of that daemon has to acquire them again, by asking
the plugin ``dhcp`` alone, and an interface whose lease has another address then is made again. CHECK is not asked of a
plugin with such addresses, since that would acquire another lease each time; they are compared here.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from config.desired import CniAttachment, IPInterface
from config.models.cni import DHCP
from config.settings import Settings
from supervisor.logs.logger import get_logger
from supervisor.process.subprocesses import CommandTimeout, Completed
from supervisor.runtime.faults import DependencyFault

from ..planning.observed import CniRecord, Link, NamespaceView
from ..state_files import StateFiles
from .dhcp import Leases
from .protocol import (
    PluginError,
    addresses_of,
    checks,
    environment,
    leasing,
    plugin_input,
    plugins_of,
    refusal,
    reserves,
    result_of,
)

log = get_logger("netlink")
T = TypeVar("T")

#: How long one plugin may take. Each of its interface's plugins holds up the pass, which has other things to do.
PLUGIN_SECONDS: Final = 10.0
#: After this many seconds a CHECK that found out nothing is repeated.
CHECK_AGAIN_SECONDS: Final = 60.0

#: What a container ID must not have (specification 1.0.0, section 2).
_NOT_IN_IDS: Final = re.compile(r"[^a-zA-Z0-9_.-]", re.ASCII)

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


@dataclass(frozen=True, slots=True)
class _Asked:
    """What came of acquiring a lease again: by which run of the daemon, when, and why it is of no use (None: it is)."""

    run: int
    when: float
    error: PluginError | None = None


class Attachments:
    """The plugins of one directory, with the records of what they made. ``container`` is CNI's container ID.

    Without ``leases`` there is no DHCP.
    """

    def __init__(
        self, directory: Path, state: StateFiles, run: Run, container: str, leases: Leases | None = None
    ) -> None:
        self._directory = directory
        self._state = state
        self._run = run
        self._container = container
        self._leases = leases
        #: By interface, the run of the DHCP daemon that was asked for its lease.
        self._asked: dict[str, _Asked] = {}
        self._checked: dict[str, _Checked] = {}
        #: Made and not checked since.
        self._new: set[str] = set()

    @classmethod
    def of(cls, settings: Settings, state: StateFiles, run: Run, leases: Leases | None = None) -> Attachments:
        """Return the plugins of this installation."""
        return cls(settings.cni_plugin_dir, state, run, f"{settings.netns}-underlay", leases)

    def attach(self, attachment: CniAttachment, netns: Path, exists: Exists) -> None:
        """Make an interface. Raises :class:`AttachmentRefused` with nothing left behind, and OSError of the disk."""
        self._forget_checks(attachment.name)
        try:
            run = self._ready() if leasing(attachment) else 0
        except PluginError as error:
            raise AttachmentRefused(str(error)) from None
        self._state.save_cni(CniRecord(attachment))
        result = ""
        try:
            for index, plugin in enumerate(plugins_of(attachment)):
                result = result_of(plugin, self._call("ADD", attachment, index, result, netns))
        except PluginError as error:
            self._undo(attachment, netns, exists, error)
        self._state.save_cni(CniRecord(attachment, result))
        self._new.add(attachment.name)
        if leasing(attachment):
            self._asked[attachment.name] = _Asked(run, time.monotonic())

    def _ready(self) -> int:
        """Return the number of the DHCP daemon's run. PluginError: it does not answer."""
        if self._leases is None:
            raise PluginError(DHCP, "this program runs no DHCP daemon", unable=True)
        try:
            return self._leases.ready()
        except DependencyFault as fault:
            raise PluginError(DHCP, str(fault), unable=True) from None

    def _forget_checks(self, name: str) -> None:
        self._checked.pop(name, None)
        self._asked.pop(name, None)
        self._new.discard(name)

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
        asked = self._asked.get(name)
        self._forget_checks(name)
        record = self._state.cni().get(name)
        if record is None:
            return
        if record.trusted:
            # Only what ADD made is: plugins that fail, or a crash, leave something else.
            self._state.save_cni(replace(record, trusted=False))
        refused: list[str] = []
        leases = leasing(record.attachment)
        if leases:
            # Without the daemon DEL is refused, and is asked all the same: the interface may be gone.
            run = self._try(self._ready, refused)
            if run is not None and (asked is None or asked.run != run) and record.result and exists():
                # The daemon releases only what this run of it has acquired.
                self._acquire(record, frozenset(), netns)
        for index, _ in reversed(list(enumerate(plugins_of(record.attachment)))):
            self._try(partial(self._call, "DEL", record.attachment, index, record.result, netns), refused)
        if refused and leases and not exists():
            # The plugin refused before it came to its lease.
            for index in leases:
                self._try(
                    partial(self._call, "DEL", record.attachment, index, record.result, netns, program=DHCP), refused
                )
        if refused and (exists() or reserves(record.attachment)):
            raise AttachmentRefused("; ".join(refused))
        self._state.forget_cni(name)

    @staticmethod
    def _try(call: Callable[[], T], refused: list[str]) -> T | None:
        try:
            return call()
        except PluginError as error:
            refused.append(str(error))
            return None

    def check(self, wanted: CniAttachment, view: NamespaceView, netns: Path) -> PluginError | None:
        """Return why an interface is not as its plugins made it; the kernel's state was checked before: None.

        An error that is ``unable`` says nothing about the interface. Nor does the refusal of what ADD has just made:
        otherwise it would be made again and again.
        """
        name = wanted.name
        record, link = self._state.cni().get(name), view.links.get(name)
        if record is None or record.attachment != wanted or not record.result or link is None:
            return None
        state = record.result, link, view.interfaces(name)
        error = self._check_lease(record, link, state[2], netns) if leasing(wanted) else None
        if error is not None or record.trusted or not checks(wanted):
            return error
        return self._check_once(record, state, netns)

    def _check_once(
        self, record: CniRecord, state: tuple[str, Link, frozenset[IPInterface]], netns: Path
    ) -> PluginError | None:
        """Return what CHECK says, which is asked once for each state of the kernel."""
        name, now = record.attachment.name, time.monotonic()
        known = self._checked.get(name)
        if known is not None and known.holds(state, now):
            return known.error
        error = self._check(record, netns)
        if error is not None and not error.unable:
            if name not in self._new:
                return error
            log.info("CNI's CHECK refuses what ADD has just made, and is not used", interface=name, error=error)
            # While no disk takes it, CHECK is asked again.
            with suppress(OSError):
                self._state.save_cni(replace(record, trusted=True))
            return None
        self._checked[name] = _Checked(state, now, error)
        if error is None:
            self._new.discard(name)
        return error

    def _check(self, record: CniRecord, netns: Path) -> PluginError | None:
        leases = leasing(record.attachment)
        for index, _ in enumerate(plugins_of(record.attachment)):
            if index in leases:
                continue
            try:
                self._call("CHECK", record.attachment, index, record.result, netns)
            except PluginError as error:
                return error
        return None

    def _check_lease(
        self, record: CniRecord, link: Link, addresses: frozenset[IPInterface], netns: Path
    ) -> PluginError | None:
        """Return why an interface does not have its lease's address, or why that is not known."""
        leased = addresses_of(record.result)
        if not link.up:
            return PluginError(DHCP, "the interface is down, as when its lease has ended", unable=False)
        if not leased <= addresses:
            return PluginError(DHCP, f"the interface lacks {_listed(leased - addresses)}", unable=False)
        try:
            run = self._ready()
        except PluginError as error:
            return error
        name, now = record.attachment.name, time.monotonic()
        known = self._asked.get(name)
        if known is None or known.run != run or (known.error is not None and now >= known.when + CHECK_AGAIN_SECONDS):
            known = self._asked[name] = _Asked(run, now, self._acquire(record, leased, netns))
        return known.error

    def _acquire(self, record: CniRecord, leased: frozenset[IPInterface], netns: Path) -> PluginError | None:
        """Acquire an interface's leases again; return why that failed, or that an address is another one."""
        found: set[IPInterface] = set()
        for index in leasing(record.attachment):
            try:
                answer = self._call("ADD", record.attachment, index, "", netns, program=DHCP)
                found |= addresses_of(result_of(DHCP, answer))
            except PluginError as error:
                return PluginError(DHCP, f"the lease cannot be acquired again: {error}", unable=True)
        if found <= leased:
            return None
        return PluginError(DHCP, f"the lease is {_listed(found - leased)} now, not {_listed(leased)}", unable=False)

    def _call(
        self, command: str, attachment: CniAttachment, index: int, previous: str, netns: Path, *, program: str = ""
    ) -> str:
        """Call one plugin, or with its input another ``program``, as the plugin does for its addresses."""
        plugin = program or plugins_of(attachment)[index]
        leases = leasing(attachment)
        variables = environment(
            command,
            attachment.name,
            container=self._client() if leases else self._container,
            netns=netns,
            directory=self._directory,
        )
        text = plugin_input(attachment, index, previous, None if self._leases is None else self._leases.socket)
        try:
            done = self._run(self._directory / plugin, variables, text)
        except CommandTimeout as fault:
            waiting = ", waiting for a DHCP server or for the daemon" if index in leases else ""
            raise PluginError(plugin, f"{fault}{waiting}", unable=True) from None
        except DependencyFault as fault:
            raise PluginError(plugin, str(fault), unable=True) from None
        if done.returncode != 0:
            raise refusal(plugin, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def _client(self) -> str:
        """Return the container ID for DHCP, whose servers know clients by it: it has the node's name."""
        return f"{self._container}-{_NOT_IN_IDS.sub('-', socket.gethostname())}"


def _listed(addresses: frozenset[IPInterface] | set[IPInterface]) -> str:
    return ", ".join(sorted(map(str, addresses)))
