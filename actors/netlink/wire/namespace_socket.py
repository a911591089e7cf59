"""Our end of one network namespace: a thread in it, a socket of it, and the indices of its links by name."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..planning.observed import NamespaceView
from .addresses import dump_addresses
from .links import dump_links, index_of
from .namespace_thread import NamespaceThread
from .nic_sysctls import Sysctls, own_sysctls
from .socket import KernelRefusal, RouteSocket

T = TypeVar("T")
SYSCTLS = Path("/proc/sys")


class NamespaceEnd:
    """Opened where ``path`` leads (None: the process's own namespace); NamespaceMissing when it leads nowhere."""

    def __init__(self, name: str, path: Path | None) -> None:
        self._thread = NamespaceThread(name, path)
        self.identity = self._thread.identity
        try:
            self.socket = self._thread.run(RouteSocket)
        except BaseException:
            self._thread.close()
            raise
        self._indices: dict[str, int] = {}

    def close(self) -> None:
        """Let go of the namespace, which a socket alone would keep alive."""
        self._thread.run(self.socket.close)
        self._thread.close()

    def call(self, function: Callable[[RouteSocket], T]) -> T:
        """Run a function of the socket inside the namespace."""
        return self._thread.run(lambda: function(self.socket))

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
        """Return a link's index, asking the kernel only for links that it did not know at the last dump."""
        if name not in self._indices:
            self._indices[name] = self.call(lambda socket: index_of(socket, name))
        return self._indices[name]

    def forget(self, name: str) -> None:
        """Drop what is known of a link that was created, moved or deleted."""
        self._indices.pop(name, None)

    def read_sysctl(self, key: str) -> str | None:
        """Return a sysctl's text, or None when this kernel does not have it."""
        path = SYSCTLS / key.replace(".", "/")
        try:
            return self._thread.run(path.read_text).strip()
        except FileNotFoundError:
            return None

    def own_sysctls(self, nic: str) -> Sysctls:
        """Return the sysctls that a NIC has of its own."""
        return self._thread.run(partial(own_sysctls, nic))

    def write_sysctl(self, path: str, value: str) -> None:
        """Write a sysctl by its path below /proc/sys; KernelRefusal when it cannot be done."""
        file = SYSCTLS / path
        try:
            self._thread.run(lambda: file.write_text(value))
        except OSError as error:
            raise KernelRefusal(error.errno or errno.EIO, f"{path}: {error.strerror}") from error
