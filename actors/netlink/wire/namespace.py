"""Access to one network namespace: a thread that stays in it, an rtnetlink socket of it, and its sysctls.

A thread that enters a namespace and leaves it again can fail to leave, and then all its later work happens in the wrong
place. So the thread of a :class:`NamespaceHandle` never leaves: it enters once, opens a socket, and runs what it is
given until it ends. ``/proc/sys/net`` shows the namespace of the thread that opens it, so sysctls go through it too.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from actors.lib import network_namespace
from actors.lib.network_namespace import NAMESPACES
from supervisor.process.change_events import PathEvents
from supervisor.runtime.faults import DependencyFault, PermissionFault

from ..planning.observed import Link, NamespaceView
from .addresses import AddressDump
from .links import LinkDump, get_index, index_in, read_others
from .message import NetlinkRequest
from .nic_sysctls import Sysctls, own_sysctls
from .socket import KernelRefusal, RouteSocket

T = TypeVar("T")
SYSCTLS = Path("/proc/sys")
_SYSCTLS = f"{SYSCTLS}/"
#: One read returns all of a sysctl up to this size, bytes; ours are numbers and short lists.
_LONGEST_SYSCTL = 4096


def namespace_events() -> PathEvents:
    """Return events of names of namespaces that come and go.

    Not of a name's own file: a watch there keeps the namespace alive after its deletion, with the NIC in it.
    """
    return PathEvents(lambda: (NAMESPACES,))


class NamespaceMissing(DependencyFault):
    """The router's network namespace does not exist: its unit creates it, we never do."""


class NamespaceClosed(NamespaceMissing, PermissionFault):
    """It exists as far as is known, and this user may not enter it."""


def enter(path: Path) -> tuple[int, int]:
    """Move the calling thread into a namespace; return the namespace's (device, inode)."""
    try:
        return network_namespace.enter(path)
    except OSError as error:
        # An error of opening it names the path itself.
        raise _unusable(path, error.errno, "" if error.filename else f"{path}: ") from error


def _unusable(path: Path, number: int | None, place: str) -> NamespaceMissing:
    why = os.strerror(number or 0)
    if number in (errno.EPERM, errno.EACCES):
        return NamespaceClosed(f"netns {path.name} cannot be entered: {why}; root can")
    return NamespaceMissing(f"netns {path.name} missing: {place}{why}")


@dataclass(frozen=True, slots=True)
class SysctlWrite:
    """One sysctl to write, by its path below /proc/sys."""

    path: str
    value: str


#: What one step takes: sysctls, or requests that are sent together and in order.
Work = Sequence[SysctlWrite] | Sequence[NetlinkRequest]


class NamespaceHandle:
    """An open namespace: that of ``path``, or the process's own for None. NamespaceMissing when there is none.

    All methods block. ``identity`` is the namespace's (device, inode).
    """

    def __init__(self, name: str, path: Path | None) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"netns-{name}")
        self._path = path
        self.identity = (0, 0)
        try:
            if path is not None:
                self.identity = self._run(partial(enter, path))
            self._socket = self._run(RouteSocket)
        except BaseException:
            self._thread.shutdown()
            raise
        self._indices: dict[str, int] = {}
        self._links, self._addresses = LinkDump(), AddressDump()

    def close(self) -> None:
        """Close the socket, which alone would keep the namespace alive, and end the thread."""
        self._run(self._socket.close)
        self._thread.shutdown()

    def is_current(self) -> bool:
        """Return whether the namespace still is the one of that name; the process's own always is."""
        if self._path is None:
            return True
        try:
            status = self._path.stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self.identity

    def _run(self, function: Callable[[], T]) -> T:
        return self._thread.submit(function).result()

    def call(self, function: Callable[[RouteSocket], T]) -> T:
        """Run a function of the socket inside the namespace and return its result."""
        return self._run(lambda: function(self._socket))

    def view(self) -> NamespaceView:
        """Return all links and addresses."""
        return self._run(self._view)

    def _view(self) -> NamespaceView:
        links = self._links.read(self._socket)
        self._indices = {link.name: link.index for link in links}
        return self._with_addresses(links)

    def _with_addresses(self, links: Iterable[Link]) -> NamespaceView:
        by_name = {link.name: link for link in links}
        addresses = self._addresses.read(self._socket, {link.index: link.name for link in by_name.values()})
        return NamespaceView(
            by_name, {link.name: addresses[link.index] for link in by_name.values() if link.index in addresses}
        )

    def others(self) -> tuple[dict[int, str], NamespaceView]:
        """Return the name of every link by its index, and the links that are not ours with their addresses."""

        def read() -> tuple[dict[int, str], NamespaceView]:
            names, links = read_others(self._socket)
            return names, self._with_addresses(links)

        return self._run(read)

    def indices(self, names: Iterable[str]) -> Mapping[str, int]:
        """Return links' indices, from the last dump for those that were in it; without those that do not exist."""
        unknown = tuple(dict.fromkeys(name for name in names if name not in self._indices))
        if unknown:
            answers = self._run(lambda: self._socket.send([get_index(name) for name in unknown]))
            for name, answer in zip(unknown, answers, strict=True):
                if not isinstance(answer, KernelRefusal):
                    self._indices[name] = index_in(answer[0])
                elif answer.errno != errno.ENODEV:
                    raise answer
        return self._indices

    def index(self, name: str) -> int:
        """Return a link's index; KernelRefusal (ENODEV) when there is no such link."""
        try:
            return self.indices((name,))[name]
        except KeyError:
            raise KernelRefusal(errno.ENODEV) from None

    def forget(self, name: str) -> None:
        """Drop the index of a link that was created, moved or deleted."""
        self._indices.pop(name, None)

    def request(self, *requests: NetlinkRequest) -> None:
        """Carry out requests together, in order; KernelRefusal for the first that the kernel refuses."""
        [refusal] = self.carry_out([requests])
        if refusal is not None:
            raise refusal

    def carry_out(self, works: Sequence[Work]) -> list[KernelRefusal | None]:
        """Carry out independent works in one go, sysctls first; return what was refused of each, its first refusal."""
        return self._run(lambda: self._carry_out(works))

    def _carry_out(self, works: Sequence[Work]) -> list[KernelRefusal | None]:
        results: list[KernelRefusal | None] = [None] * len(works)
        requests: list[NetlinkRequest] = []
        owners: list[int] = []
        for number, work in enumerate(works):
            for item in work:
                if isinstance(item, NetlinkRequest):
                    requests.append(item)
                    owners.append(number)
                else:
                    results[number] = results[number] or _write(item)
        for number, answer in zip(owners, self._socket.send(requests), strict=True):
            if isinstance(answer, KernelRefusal):
                results[number] = results[number] or answer
        return results

    def read_sysctls(self, keys: Iterable[str]) -> dict[str, str | None]:
        """Return each sysctl's text, or None when this kernel does not have it."""
        return self._run(lambda: {key: _read(key) for key in keys})

    def own_sysctls(self, nic: str) -> Sysctls:
        """Return the sysctls that are set for a NIC alone."""
        return self._run(partial(own_sysctls, nic))


def _read(key: str) -> str | None:
    # Hundreds of these files are read in a row: pathlib takes twice as long, and suppress() a tenth.
    try:
        descriptor = os.open(_SYSCTLS + key.replace(".", "/"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, _LONGEST_SYSCTL).decode().strip()
    except FileNotFoundError:
        # The device is gone by now.
        return None
    finally:
        os.close(descriptor)


def _write(sysctl: SysctlWrite) -> KernelRefusal | None:
    try:
        (SYSCTLS / sysctl.path).write_text(sysctl.value)
    except OSError as error:
        return KernelRefusal(error.errno or errno.EIO, f"{sysctl.path}: {error.strerror}")
    return None
