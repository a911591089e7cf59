"""Named network namespaces, and how a thread enters one: ``os.setns`` came with Python 3.12."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

#: Where iproute2 and systemd keep named namespaces.
NAMESPACES: Final = Path("/run/netns")
_CLONE_NEWNET = 0x40000000


def enter(path: Path) -> tuple[int, int]:
    """Move the calling thread into a namespace; return its (device, inode). Raises OSError.

    It may be unable to come back, so it should be a thread of its own, which ends there.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return status.st_dev, status.st_ino
