"""The last good content of every configuration file: a broken edit takes nothing out of force.

Texts rather than results are stored: whatever version of the program runs reads them again, and nothing derived from
them can go stale. Stored with them are the passwords of the password files that they refer to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import AfterValidator

from config.desired import Secret

from .json_store import JsonStore

_NO_TEXTS: Final[Mapping[str, str]] = MappingProxyType({})
_NO_SECRETS: Final[Mapping[str, Secret]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LastGood:
    """``texts`` by file path, ``secrets`` by the path of the password file. Equal values need no new write."""

    texts: Mapping[str, str] = field(default_factory=lambda: _NO_TEXTS, repr=False)
    secrets: Mapping[str, Secret] = field(default_factory=lambda: _NO_SECRETS, repr=False)

    def with_texts(self, texts: Mapping[str, str], secrets: Mapping[str, Secret] = _NO_SECRETS) -> LastGood:
        """Return a value with exactly these files and these passwords."""
        new = LastGood(MappingProxyType(dict(texts)), MappingProxyType(dict(secrets)))
        return self if new == self else new


def _encodable(text: str) -> str:
    """Return a text that a file can hold: JSON can spell halves of surrogate pairs, which UTF-8 cannot."""
    text.encode("utf-8")
    return text


_Text = Annotated[str, AfterValidator(_encodable)]


@dataclass(frozen=True, slots=True)
class _Password:
    """The support bundle recognises the value by its key, and leaves it out."""

    path: _Text
    password: _Text


@dataclass(frozen=True, slots=True)
class _Content:
    """Files of early versions have no ``secrets``."""

    files: dict[_Text, _Text]
    secrets: tuple[_Password, ...] = ()


_STORE: Final = JsonStore(_Content, "store of configuration files", version=1)


def to_json(last_good: LastGood) -> str:
    """Return the value as text, the same for equal values. It holds passwords."""
    passwords = (_Password(path, one.reveal()) for path, one in sorted(last_good.secrets.items()))
    return _STORE.encode(_Content(dict(sorted(last_good.texts.items())), tuple(passwords)))


def from_json(text: str | bytes) -> LastGood:
    """Return what :func:`to_json` wrote. Raises :class:`~.json_store.StoreError`."""
    return _last_good(_STORE.decode(text))


def read_texts(path: Path) -> LastGood:
    """Return what is stored at ``path``, empty when there is no file. Raises :class:`~.json_store.StoreError`."""
    content = _STORE.read(path)
    return LastGood() if content is None else _last_good(content)


def _last_good(content: _Content) -> LastGood:
    secrets = {one.path: Secret(one.password) for one in content.secrets}
    return LastGood(MappingProxyType(content.files), MappingProxyType(secrets))
