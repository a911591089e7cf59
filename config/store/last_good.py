"""The last good content of every configuration file, kept so that a broken edit takes nothing out of force.

Texts rather than results are kept: they are read again by whatever version of the program runs, and nothing that was
derived from them can grow stale. With them go the passwords of the password files that they refer to. Whoever stores
this does so with mode 0600.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from config.desired import Secret

#: Grows when the stored form changes its meaning; an unknown version counts as nothing stored.
_VERSION: Final = 1
_NO_TEXTS: Final[Mapping[str, str]] = MappingProxyType({})
_NO_SECRETS: Final[Mapping[str, Secret]] = MappingProxyType({})


class LastGoodError(ValueError):
    """What is stored is not what :func:`to_json` wrote, or cannot be read. Going on with ``LastGood()`` is safe."""


@dataclass(frozen=True, slots=True)
class LastGood:
    """``texts`` by file path, ``secrets`` by the path of the password file. Equal values need no new write."""

    texts: Mapping[str, str] = field(default_factory=lambda: _NO_TEXTS, repr=False)
    secrets: Mapping[str, Secret] = field(default_factory=lambda: _NO_SECRETS, repr=False)

    def with_texts(self, texts: Mapping[str, str], secrets: Mapping[str, Secret] = _NO_SECRETS) -> LastGood:
        """Return a value that knows exactly these files and these passwords."""
        new = LastGood(MappingProxyType(dict(texts)), MappingProxyType(dict(secrets)))
        return self if new == self else new


def to_json(last_good: LastGood) -> str:
    """Return the value as text, the same for equal values. It holds passwords."""
    document = {
        "version": _VERSION,
        "files": dict(sorted(last_good.texts.items())),
        # The key says to whoever collects texts that its value is a secret.
        "secrets": [{"path": path, "password": one.reveal()} for path, one in sorted(last_good.secrets.items())],
    }
    return json.dumps(document, indent=1) + "\n"


def from_json(text: str) -> LastGood:
    """Return what :func:`to_json` wrote. Raises :class:`LastGoodError`, which never quotes the text."""
    try:
        stored: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise LastGoodError("not JSON") from None
    if not isinstance(stored, dict) or stored.get("version") != _VERSION:
        raise LastGoodError(f"not a version {_VERSION} store of configuration files")
    files = stored.get("files")
    if not isinstance(files, dict) or not all(_is_text(one) for item in files.items() for one in item):
        raise LastGoodError("its files are not texts by path")
    return LastGood(MappingProxyType(dict(files)), MappingProxyType(_secrets(stored.get("secrets", []))))


def _secrets(stored: Any) -> dict[str, Secret]:
    """Return the stored passwords; versions that knew none stored none."""
    if not isinstance(stored, list) or not all(isinstance(one, dict) for one in stored):
        raise LastGoodError("its secrets are not a list of objects")
    pairs = [(one.get("path"), one.get("password")) for one in stored]
    if not all(_is_text(part) for pair in pairs for part in pair):
        raise LastGoodError("its secrets are not texts by path")
    return {path: Secret(password) for path, password in pairs}


def read_texts(path: Path) -> LastGood:
    """Return what is stored at ``path``, an empty value when there is no such file. Raises :class:`LastGoodError`."""
    try:
        return from_json(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        return LastGood()
    except UnicodeDecodeError:
        raise LastGoodError("not UTF-8") from None
    except OSError as error:
        raise LastGoodError(f"cannot be read: {error.strerror}") from None


def _is_text(value: object) -> bool:
    """Whether it is a text that a file can hold: JSON can spell halves of characters, which UTF-8 has not."""
    if not isinstance(value, str):
        return False
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
