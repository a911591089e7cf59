"""Reads files of a bounded size, distinguishes missing files from unreadable ones, and detects changes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TypeAlias

from config.problems import Origin, Problem, Reason

#: Identity and age of one path; None when it does not exist or is not accessible.
Mark: TypeAlias = tuple[int, int, int, int, int] | None


class UnreadableFileError(Exception):
    """A file or directory exists but cannot be used; the text gives the reason. ``denied``: not by this user."""

    def __init__(self, path: Path, reason: str, *, denied: bool = False) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
        self.denied = denied

    @classmethod
    def of(cls, path: Path, error: OSError) -> UnreadableFileError:
        """Return what a system call's failure means for a file."""
        return cls(path, describe(error), denied=isinstance(error, PermissionError))

    def problem(self, *, in_force: str = "") -> Problem:
        """Return it as a problem for the user to fix."""
        return Problem(
            message=self.reason, origin=Origin(path=str(self.path)), reason=Reason.FILE_INVALID, in_force=in_force
        )


def read_bounded(path: Path, limit: int, *, within: Path | None = None) -> tuple[bytes, int]:
    """Return up to ``limit + 1`` bytes of a regular file, and its mode bits.

    One byte more than the limit means that the file is too large. ``within`` is the directory in which the opened file
    has to be, whatever links lead to it. Raises FileNotFoundError when there is no such file,
    :class:`UnreadableFileError` for every other failure. Never blocks on a FIFO or a device.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableFileError.of(path, error) from None
    try:
        status = os.fstat(descriptor)
        # The descriptor's own path: one that was resolved before could have become another file's by now.
        if within is not None and not Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(within.resolve()):
            raise UnreadableFileError(path, f"links to a file outside {within}")
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableFileError(path, "is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            return stream.read(limit + 1), stat.S_IMODE(status.st_mode)
    except OSError as error:
        raise UnreadableFileError.of(path, error) from None
    finally:
        os.close(descriptor)


def list_directory(path: Path) -> list[str]:
    """Return a directory's entries, sorted; none when it does not exist. Else raises :class:`UnreadableFileError`."""
    try:
        return scan_directory(path)
    except FileNotFoundError:
        return []


def scan_directory(path: Path) -> list[str]:
    """Return a directory's entries, sorted.

    Raises FileNotFoundError when there is no such directory, :class:`UnreadableFileError` for every other failure, a
    symbolic link to nowhere among them: its target may be missing for a moment only.
    """
    try:
        return sorted(os.listdir(path))  # noqa: PTH208 - names, not paths, are wanted
    except FileNotFoundError:
        if path.is_symlink():
            raise UnreadableFileError(path, "is a symbolic link to a directory that does not exist") from None
        raise
    except OSError as error:
        raise UnreadableFileError.of(path, error) from None


def mark(path: Path | str) -> Mark:
    """Return what changes when a file is edited, replaced or swapped; symbolic links are followed."""
    try:
        # Files are looked at twice a second indefinitely, and Path.stat() takes several times as long.
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)


def describe(error: OSError) -> str:
    """Return the system's text of an error, without the path."""
    return f"cannot be read: {os.strerror(error.errno or errno.EIO)}"
