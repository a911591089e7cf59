"""How state is written to disk as JSON and read back, the same for every file.

A file's content is a dataclass; pydantic turns it into JSON data and checks what is read. Three layouts exist:

    {"version": 1, ...content...}                       a version, checked: another one is refused
    {"version": 1, "sha256": "...", "content": {...}}   the same with a checksum over the content
    {...content...}                                     no version that is checked

Members that this version does not know are ignored, those that it misses take their defaults.

Encoding gives equal texts for equal values, so that a file is only written when it changes. Writing itself is
:func:`supervisor.process.atomic_file.write_atomic`, with mode 0600: these files may hold passwords. For the same reason
no error ever quotes the content.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")


class StoreError(ValueError):
    """A file is not what :meth:`JsonStore.encode` wrote, or cannot be read. Continuing without it is safe."""


class JsonStore(Generic[T]):
    """One kind of file: ``content`` is the dataclass that it holds, ``name`` what messages call it.

    ``version`` grows when the stored form changes its meaning; additions with a default keep it. None: the file has no
    version, or one that no reader checks.
    """

    def __init__(self, content: type[T], name: str, *, version: int | None = None, checksum: bool = False) -> None:
        self._content: Final = content
        self._name: Final = name
        self._version: Final = version
        self._checksum: Final = checksum

    def encode(self, value: T) -> str:
        """Return the text of a file; it may hold passwords."""
        content = self._adapter.dump_python(value, mode="json")
        if self._checksum:
            # Files with a checksum can be large: compact, since Python indents slowly.
            document = {"version": self._version, "sha256": _sha256(content), "content": content}
            return json.dumps(document) + "\n"
        if self._version is not None:
            content = {"version": self._version} | content
        return json.dumps(content, indent=1) + "\n"

    def decode(self, text: str | bytes) -> T:
        """Return what :meth:`encode` wrote. Raises :class:`StoreError`."""
        try:
            stored: Any = json.loads(text if isinstance(text, str) else text.decode("utf-8"))
        except (ValueError, RecursionError):
            raise StoreError("not JSON") from None
        if self._version is not None and (not isinstance(stored, dict) or stored.get("version") != self._version):
            raise StoreError(f"not a version {self._version} {self._name}")
        if self._checksum:
            content = stored.get("content")
            if stored.get("sha256") != _sha256(content):
                raise StoreError("damaged: the checksum does not match")
            stored = content
        try:
            return self._adapter.validate_python(stored)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "document"
            raise StoreError(f"not a valid {self._name}: {place}: {first['msg']}") from None
        except (TypeError, AttributeError):
            raise StoreError(f"not a valid {self._name}") from None

    def read(self, path: Path) -> T | None:
        """Return the content of a file, None when there is none. Raises :class:`StoreError`."""
        try:
            text = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"cannot be read: {error.strerror}") from None
        return self.decode(text)

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        """Return the compiled schema: compiling takes milliseconds, which a program that reads nothing saves."""
        return TypeAdapter(self._content)


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
