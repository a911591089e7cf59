"""Typed channels that outlive the actors at their ends.

Every channel is a :class:`Latest`: a conflating cell for *state*. A slow reader skips intermediate values but never the
last one, and a restarted reader sees the current value at once, so no producer has to send again after a consumer's
crash. There is no request-reply: replies make cycles, and cycles make deadlocks. The composition root owns every
channel; an actor holds only the ends that its ``Ports`` gave it.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import trio

T = TypeVar("T")

#: Marks a cell that was never written; None is a legal value.
_EMPTY: Final = object()


class Latest(Generic[T]):
    """A named cell that keeps its last value.

    Writing never blocks and never fails. Every write makes a new version, even of an equal value: whether a change
    matters is the reader's business.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = 0
        self._value: object = _EMPTY
        #: Those who wait for the next value; a mapping for its order, which makes wake-ups repeatable.
        self._waiting: dict[trio.Event, None] = {}

    def set(self, value: T) -> None:
        """Replace the value and wake every waiting reader."""
        self._value = value
        self.version += 1
        for changed in self._waiting:
            changed.set()
        self._waiting.clear()

    def peek(self) -> T | None:
        """Return the current value without consuming it, or None when nothing was ever written."""
        return None if self._value is _EMPTY else self._value  # type: ignore[return-value]

    def reader(self) -> LatestReader[T]:
        """Return a new reading end that has seen nothing yet."""
        return LatestReader(self)

    async def wait_newer(self, version: int) -> int:
        """Wait until the cell's version exceeds ``version``; return the new one."""
        while self.version <= version:
            await _change_of(self)
        return self.version


class LatestReader(Generic[T]):
    """One reader's position on a :class:`Latest` cell."""

    def __init__(self, cell: Latest[T]) -> None:
        self._cell = cell
        self._seen = 0

    def another(self) -> LatestReader[T]:
        """Return a reading end of the same channel that has seen nothing yet."""
        return LatestReader(self._cell)

    @property
    def pending(self) -> bool:
        """Whether :meth:`receive` would return at once."""
        return self._cell.version > self._seen

    async def receive(self) -> T:
        """Wait for a value this reader has not seen, and return the newest one.

        The first call returns the current value at once when there is one. Atomic with respect to cancellation: a
        cancelled call has consumed nothing.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._seen = await self._cell.wait_newer(self._seen)
        return self._cell.peek()  # type: ignore[return-value]

    def peek(self) -> T | None:
        """Return the current value without consuming it, or None when nothing was ever written."""
        return self._cell.peek()

    async def wait_pending(self) -> None:
        """Wait until :attr:`pending` holds, without consuming the value."""
        await self._cell.wait_newer(self._seen)

    def take(self) -> T | None:
        """Return the newest unseen value without waiting, or None."""
        if not self.pending:
            return None
        self._seen = self._cell.version
        return self._cell.peek()


async def wait_any(*readers: LatestReader[Any]) -> None:
    """Wait until at least one reader has a value it has not seen; consume nothing."""
    if any(reader.pending for reader in readers):
        await trio.lowlevel.checkpoint()
        return
    await _change_of(*(reader._cell for reader in readers))


async def _change_of(*cells: Latest[Any]) -> None:
    """Wait until one of the cells is written, without a task for each: most of the daemon waits like this."""
    changed = trio.Event()
    for cell in cells:
        cell._waiting[changed] = None
    try:
        await changed.wait()
    finally:
        for cell in cells:
            cell._waiting.pop(changed, None)
