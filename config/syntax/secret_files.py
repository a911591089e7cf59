"""Passwords in files of their own, beside the router configuration.

``passwordSecret: fabric`` in ``configs/openpe_x.yaml`` means the file ``configs/secrets/fabric``. Its content
never appears in a message.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from config.desired import Secret
from config.models.types import check_password

from .files import UnreadableFileError, read_bounded

#: Directory of the password files, inside that of the configuration files.
SECRETS_DIRECTORY: Final = "secrets"
#: A password has at most 128 characters; the rest is room for a line end.
_MAX_BYTES: Final = 256
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class SecretUnusableError(ValueError):
    """The password is unavailable; the text gives the file and the reason, never the content."""


@dataclass(slots=True)
class Passwords:
    """Reads password files; ``known`` are the last good ones, ``used`` what was read, to be stored.

    Both are by the path of the password file. ``asked`` is whether any was to be read, usable or not.
    """

    known: Mapping[str, Secret] = field(default_factory=dict, repr=False)
    used: dict[str, Secret] = field(default_factory=dict, repr=False)
    asked: bool = False

    def read(self, directory: Path, name: str) -> tuple[Secret, str]:
        """Return what :func:`read_secret` does. Raises :class:`SecretUnusableError`."""
        self.asked = True
        secret, warning = read_secret(directory, name)
        self.used[str(secret_path(directory, name))] = secret
        return secret, warning

    def kept(self, directory: Path, name: str) -> Secret | None:
        """Return the last good password instead of one that cannot be read; None when none is known."""
        path = str(secret_path(directory, name))
        secret = self.known.get(path)
        if secret is not None:
            self.used[path] = secret
        return secret


def secret_path(directory: Path, name: str) -> Path:
    """Return where the password called ``name`` is, for the configuration files in ``directory``."""
    return directory / SECRETS_DIRECTORY / name


def read_secret(directory: Path, name: str) -> tuple[Secret, str]:
    """Return the password called ``name`` and a warning about its file's mode, empty when there is none.

    One line end is not part of the password. Raises :class:`SecretUnusableError`.
    """
    path = secret_path(directory, name)
    try:
        content, mode = read_bounded(path, _MAX_BYTES)
    except FileNotFoundError:
        raise SecretUnusableError(f"{path} does not exist") from None
    except UnreadableFileError as error:
        raise SecretUnusableError(str(error)) from None
    if len(content) > _MAX_BYTES:
        raise SecretUnusableError(f"{path} is too large for a password")
    try:
        text = check_password(content.decode("ascii").removesuffix("\n").removesuffix("\r"))
    except UnicodeDecodeError:
        raise SecretUnusableError(f"{path}: a password must have printable ASCII characters only") from None
    except ValueError as error:
        raise SecretUnusableError(f"{path}: {error}") from None
    return Secret(text), open_to_others(path, mode)


def open_to_others(path: Path, mode: int) -> str:
    """Return a warning when more than a file's owner has access to the password in it, else nothing."""
    if mode & _OTHERS:
        return f"{path} holds a password and has mode {mode:04o}; make it 0600"
    return ""
