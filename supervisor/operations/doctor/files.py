"""Modes and owners of what root acts upon, and of what may hold secrets."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from actors.lib.kube.credentials import kubeconfig_path
from actors.static_config.trial import ACCEPTED_FILE, SAVED
from config.settings import Settings
from config.syntax.secret_files import SECRETS_DIRECTORY

from ..paths import conf_d
from .findings import Finding, error, ok, warning


@dataclass(frozen=True, slots=True)
class File:
    """One file or directory. ``mode`` has the permission bits only; owners are names, or numbers without one.

    ``sheltered`` says whether a directory above keeps others out, whatever the file's own mode.
    """

    path: str
    mode: int
    owner: str = "root"
    group: str = "root"
    directory: bool = False
    sheltered: bool = False


def read_files(settings: Settings, settings_file: Path) -> tuple[File, ...]:
    """Read modes and owners of all files that matter, those that exist."""
    return tuple(file for path in _paths(settings, settings_file) if (file := read_file(path)) is not None)


def _paths(settings: Settings, settings_file: Path) -> Iterator[Path]:
    yield from (settings_file, settings.node_config_file)
    for directory in (conf_d(settings_file), settings.configs_dir, settings.configs_dir / SECRETS_DIRECTORY):
        yield directory
        yield from sorted(directory.glob("*"))
    yield settings.state_dir
    yield from sorted(settings.state_dir.glob("*"))
    # Directories that others cannot enter: the files in them have the modes of those that they are copies of.
    yield from sorted((settings.state_dir / SAVED).glob("*"))
    # Who can open a lock can keep the daemon from starting; copies of the state are here, too.
    yield settings.run_dir
    yield from _sourced(settings)
    # A kubeconfig can name a program, which then runs as root.
    yield from (settings.credentials_dir, kubeconfig_path(settings))


def _sourced(settings: Settings) -> tuple[Path, Path]:
    """Return what FRR's scripts run as root when FRR starts, and the directory in which it could be replaced."""
    directory = settings.frr_etc_dir / settings.frr_pathspace
    return directory, directory / "daemons"


def read_file(path: Path) -> File | None:
    """Read one file's mode and owners; None when it does not exist."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    mode = stat.S_IMODE(status.st_mode)
    owner, group = _user(status.st_uid), _group(status.st_gid)
    return File(str(path), mode, owner, group, stat.S_ISDIR(status.st_mode), _sheltered(path))


def _sheltered(path: Path) -> bool:
    """Whether a directory above keeps others out. The path is judged as it is written, links and all."""
    return any(not above.stat().st_mode & stat.S_IXOTH for above in path.absolute().parents)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def permissions(settings: Settings, files: tuple[File, ...]) -> Iterator[Finding]:
    """May others read our secrets, or write what root acts upon?"""
    complaints = [finding for file in files for finding in _permissions(settings, file)]
    yield from complaints
    if not complaints:
        yield ok("files", f"modes and owners of {len(files)} files are correct")


def narrow(settings: Settings, files: tuple[File, ...]) -> Iterator[str]:
    """Take the rights away that the findings are about; yield what was done. Only for root.

    That is safe: no user gets a right, owners and contents stay. What is not root's, what is in a directory that others
    may write (they could put another file in its place), links, and what has changed meanwhile are left alone.
    """
    for file in files:
        wanted = file.mode & ~_excess(settings, file)
        above = read_file(Path(file.path).parent)
        if wanted == file.mode or file.owner != "root" or above is None or above.owner != "root" or above.mode & 0o022:
            continue
        try:
            descriptor = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue  # The finding stays.
        try:
            status = os.fstat(descriptor)
            single = file.directory or status.st_nlink == 1  # a second name may be another program's file
            if single and status.st_uid == 0 and stat.S_IMODE(status.st_mode) == file.mode:
                os.fchmod(descriptor, wanted)
                yield f"{file.path} has mode {wanted:04o} now; it had {file.mode:04o}"
        finally:
            os.close(descriptor)


def _excess(settings: Settings, file: File) -> int:
    """Return the permission bits that must not be there."""
    excess = 0
    if _others_write(file):
        excess |= stat.S_IWOTH | stat.S_IWGRP
    if _is_secret(settings, file.path) or _is_open(settings, file):
        excess |= stat.S_IRWXO
    return excess


def _others_write(file: File) -> bool:
    return bool(file.mode & stat.S_IWOTH or (file.mode & stat.S_IWGRP and file.group != "root"))


def _is_open(settings: Settings, file: File) -> bool:
    """Whether any user can read a file of the configuration. In a directory that keeps others out any mode will do."""
    inside = _below(file.path, settings.configs_dir) and not (file.directory or file.sheltered)
    return inside and bool(file.mode & stat.S_IROTH)


def _permissions(settings: Settings, file: File) -> Iterator[Finding]:
    shown = f"{file.path} has mode {file.mode:04o}"
    if _others_write(file):
        yield error(
            "files", f"{shown}: users other than root can change what the router does", f"chmod go-w {file.path}"
        )
    elif file.owner != "root" and Path(file.path) in _sourced(settings):
        message = f"{file.path} belongs to {file.owner}, who could run commands as root when FRR starts"
        yield error("files", message, f"chown root: {file.path}")
    elif file.owner != "root":
        yield warning("files", f"{file.path} belongs to {file.owner}, not to root", f"chown root: {file.path}")
    fix = f"chmod {'0750' if file.directory else '0600'} {file.path}"
    if _is_secret(settings, file.path) and file.mode & 0o007:
        yield error("files", f"{shown} and may hold passwords: any user can open it", fix)
    # A neighbour's password may be in any of these.
    elif _is_open(settings, file):
        fix = f"{fix}; or for all of them chmod 0750 {settings.configs_dir}"
        yield error("files", f"{shown} and may hold passwords: any user can read it", fix)


def _is_secret(settings: Settings, path: str) -> bool:
    secret = (settings.state_dir, settings.run_dir, settings.configs_dir / SECRETS_DIRECTORY)
    return any(path == str(one) or _below(path, one) for one in secret)


def _below(path: str, directory: Path) -> bool:
    return path.startswith(f"{directory}/")


def trial(settings: Settings, files: tuple[File, ...]) -> Iterator[Finding]:
    """Was a trial confirmed by a program that was killed before it wrote the files?"""
    accepted = settings.state_dir / ACCEPTED_FILE
    if any(file.path == str(accepted) for file in files):
        yield warning(
            "trial",
            "a trial was confirmed but its files were not written: the daemon continues with the trial's configuration",
            "openperouter try --confirm completes it, openperouter try --revert reverts it",
        )


CHECKS = (permissions, trial)
