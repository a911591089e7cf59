"""Access to one network namespace: a thread that stays in it, an rtnetlink socket of it, and its sysctls.

A thread that enters a namespace and leaves it again can fail to leave, and then all its later work happens in the wrong
place. So the thread of a :class:`NamespaceHandle` never leaves: it enters once, opens a socket, and runs what it is
given until it ends. ``/proc/sys/net`` shows the namespace of the thread that opens it, so sysctls go through it too.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from supervisor.runtime.faults import DependencyFault

from ..planning.observed import NamespaceView
from .addresses import dump_addresses
from .links import dump_links, index_of
from .nic_sysctls import Sysctls, own_sysctls
from .socket import KernelRefusal, RouteSocket

T = TypeVar("T")
CLONE_NEWNET = 0x40000000
#: Where iproute2 and systemd keep named namespaces.
NAMESPACES = Path("/run/netns")
SYSCTLS = Path("/proc/sys")


class NamespaceMissing(DependencyFault):
    """The router's network namespace does not exist: its unit creates it, we never do."""


def enter(path: Path) -> tuple[int, int]:
    """Move the calling thread into a namespace; return the namespace's (device, inode)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NamespaceMissing(f"netns {path.name} missing: {error.strerror}") from error
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, CLONE_NEWNET) != 0:
            raise NamespaceMissing(f"netns {path.name} missing: {path}: {os.strerror(ctypes.get_errno())}")
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return status.st_dev, status.st_ino


class NamespaceHandle:
    """An open namespace: that of ``path``, or the process's own for None. NamespaceMissing when there is none.

    All methods block. ``identity`` is the namespace's (device, inode).
    """

    def __init__(self, name: str, path: Path | None) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"netns-{name}")
        self.identity = (0, 0)
        try:
            if path is not None:
                self.identity = self._run(partial(enter, path))
            self._socket = self._run(RouteSocket)
        except BaseException:
            self._thread.shutdown()
            raise
        self._indices: dict[str, int] = {}

    def close(self) -> None:
        """Close the socket, which alone would keep the namespace alive, and end the thread."""
        self._run(self._socket.close)
        self._thread.shutdown()

    def _run(self, function: Callable[[], T]) -> T:
        return self._thread.submit(function).result()

    def call(self, function: Callable[[RouteSocket], T]) -> T:
        """Run a function of the socket inside the namespace and return its result."""
        return self._run(lambda: function(self._socket))

    def view(self) -> NamespaceView:
        """Return all links and addresses."""
        links = self.call(dump_links)
        addresses = self.call(partial(dump_addresses, names={link.index: link.name for link in links}))
        self._indices = {link.name: link.index for link in links}
        return NamespaceView(
            {link.name: link for link in links},
            {link.name: addresses[link.index] for link in links if link.index in addresses},
        )

    def index(self, name: str) -> int:
        """Return a link's index, from the last dump if the link was in it, else from the kernel."""
        if name not in self._indices:
            self._indices[name] = self.call(lambda socket: index_of(socket, name))
        return self._indices[name]

    def forget(self, name: str) -> None:
        """Drop the index of a link that was created, moved or deleted."""
        self._indices.pop(name, None)

    def read_sysctl(self, key: str) -> str | None:
        """Return a sysctl's text, or None when this kernel does not have it."""
        return self.read_sysctls((key,))[key]

    def read_sysctls(self, keys: Iterable[str]) -> dict[str, str | None]:
        """Return the text of several sysctls by key, None for those that this kernel does not have."""
        wanted = tuple(keys)
        return self._run(lambda: {key: _text_of(SYSCTLS / key.replace(".", "/")) for key in wanted})

    def own_sysctls(self, nic: str) -> Sysctls:
        """Return the sysctls that are set for a NIC alone."""
        return self._run(partial(own_sysctls, nic))

    def write_sysctl(self, path: str, value: str) -> None:
        """Write a sysctl by its path below /proc/sys; KernelRefusal when the kernel refuses."""
        file = SYSCTLS / path
        try:
            self._run(lambda: file.write_text(value))
        except OSError as error:
            raise KernelRefusal(error.errno or errno.EIO, f"{path}: {error.strerror}") from error


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return None
