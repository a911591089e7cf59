"""Moves a thread into a network namespace: ``os.setns`` came with Python 3.12."""

from __future__ import annotations

import ctypes
import os

_CLONE_NEWNET = 0x40000000


def join(descriptor: int) -> None:
    """Move the calling thread into the open namespace. Raises OSError.

    It may be unable to come back: give it a thread of its own, which ends there.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
