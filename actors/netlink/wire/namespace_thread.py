"""A thread that lives in one network namespace, with its own sockets, for as long as it lives.

A thread that enters a namespace and comes back can fail to come back, and then everything that it does later happens
in the wrong place. So one never comes back: the router's thread enters once, opens its sockets, serves calls one at a
time, and ends. ``/proc/sys/net`` shows the namespace of the thread that opens it, so sysctls go through it as well.
"""

from __future__ import annotations

import ctypes
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from supervisor.runtime.faults import DependencyFault

T = TypeVar("T")
CLONE_NEWNET = 0x40000000


class NamespaceMissing(DependencyFault):
    """The router's network namespace is not there: its unit makes it, we never do."""


def enter(path: Path) -> tuple[int, int]:
    """Move the calling thread into a namespace; return (device, inode) of what it entered."""
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


class NamespaceThread:
    """Runs callables in a namespace; ``path`` None means the process's own."""

    def __init__(self, name: str, path: Path | None) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self.identity: tuple[int, int] = (0, 0)
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, args=(path, ready), name=f"netns-{name}", daemon=True)
        self._thread.start()
        ready.result()

    def _serve(self, path: Path | None, ready: Future[None]) -> None:
        try:
            if path is not None:
                self.identity = enter(path)
        except NamespaceMissing as error:
            ready.set_exception(error)
            return
        ready.set_result(None)
        while (call := self._calls.get()) is not None:
            future, function = call
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is, and re-raised there
                future.set_exception(error)

    def run(self, function: Callable[[], T]) -> T:
        """Run a callable in the namespace and return its result; blocks the calling thread."""
        if not self._thread.is_alive():
            raise NamespaceMissing(f"{self._thread.name} has ended")
        future: Future[T] = Future()
        self._calls.put((future, function))
        return future.result()

    def close(self) -> None:
        """End the thread; the namespace is free of us when this returns."""
        self._calls.put(None)
        self._thread.join()
