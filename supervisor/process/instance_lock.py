"""One instance at a time.

The lock is a ``flock`` on a file that stays: the kernel releases it with the process however that ends, so a file left
by a killed instance is no obstacle. The file holds its owner's process ID, which a second instance reports.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..runtime.faults import AlreadyRunningFault, DependencyFault, PermissionFault


@contextmanager
def single_instance(run_dir: Path) -> Iterator[Path]:
    """Hold ``<run_dir>/lock`` while inside; give its path. The directory is made if it is missing.

    No other user can open the file: one who could could lock it. Raises :class:`AlreadyRunningFault`, naming the
    holder, or :class:`DependencyFault` when the file cannot be made: :class:`PermissionFault` when that is because of
    who runs the program.
    """
    path = run_dir / "lock"
    try:
        run_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
        descriptor = _open_locked(path)
    except PermissionError:
        raise PermissionFault(f"permission denied: {path}; only root can run the router") from None
    except OSError as error:
        raise DependencyFault(f"cannot lock {path}: {error.strerror or error}") from error
    try:
        yield path
    finally:
        os.close(descriptor)


def _open_locked(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, descriptor):
                # The lock counts; the text is for messages, and the disk may be full.
                with suppress(OSError):
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                return descriptor
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise AlreadyRunningFault(f"already running: {_describe(holder)} holds {path}") from None
        except BaseException:
            os.close(descriptor)
            raise
        # The file was removed between opening and locking: a lock on it would exclude no other instance.
        os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _describe(pid: str) -> str:
    if not pid.isdigit():
        return "another process"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"pid {pid}"
    command = b" ".join(word for word in words if word).decode(errors="replace")
    printable = "".join(character for character in command if character.isprintable())[:200]
    return f"pid {pid} ({printable})" if printable else f"pid {pid}"
