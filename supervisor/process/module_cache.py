"""The modules that a start imports, as bytecode in one file.

For each of 500 modules Python searches directories, opens its file of bytecode, and compares that with the source's
size and time. The package's build records the bytecode of all modules that the daemon imports, and a start reads it at
once.

A recorded module counts if Python would find it at the same place, with a source of the recorded size and time: the
rule of Python's own files. Any other one, since the source was edited or a library or Python is another one, is
imported as always: nothing but the time of a start depends on the file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType
from typing import Final

from . import bytecode_cache

#: A source's path, its size in bytes and its time in Unix seconds, the directory that was searched, and the package's
#: own directory (empty if it is a module).
Source = tuple[str, int, int, str, str]
#: The same, and where its bytecode begins and ends in that of all modules.
Recorded = tuple[str, int, int, str, str, int, int]

#: In the package, beside the program; a checkout and the wheel have none.
FILE: Final = bytecode_cache.FILE.with_name("modules.bytecode")


class RecordedLoader(SourceFileLoader):
    """Python's loader, with bytecode that needs no reading; like a module itself, that is needed once."""

    def __init__(self, fullname: str, path: str, code: memoryview) -> None:
        super().__init__(fullname, path)
        self._code: memoryview | None = code

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the module's code."""
        code, self._code = self._code, None
        return super().get_code(fullname) if code is None else bytecode_cache.decode_code(code)


class RecordedFinder:
    """Finds recorded modules by their full names. ``code`` is the bytecode of all of them."""

    def __init__(self, modules: Mapping[str, Recorded], code: bytes) -> None:
        self._modules = modules
        self._code = memoryview(code)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is, as Python's own finder does, or None for that to look."""
        if (recorded := self._modules.get(fullname)) is None:
            return None
        source, size, time, directory, package, *place = recorded
        code = self._code[slice(*place)]
        if path is None:
            # The directories of libraries are searched in order: another one may have it as well.
            spec = PathFinder.find_spec(fullname, None, target)
            if spec is not None and spec.origin == source and _is_unchanged(source, size, time):
                spec.loader = RecordedLoader(fullname, source, code)
            return spec
        if list(path) != [directory] or not _is_unchanged(source, size, time):
            return None
        loader = RecordedLoader(fullname, source, code)
        locations = [package] if package else None
        return spec_from_file_location(fullname, source, loader=loader, submodule_search_locations=locations)


def _is_unchanged(source: str, size: int, time: int) -> bool:
    try:
        found = os.stat(source)  # noqa: PTH116 - with path objects 500 of these take five times as long
    except OSError:
        return False
    return (found.st_size, int(found.st_mtime)) == (size, time)


def encode(modules: Iterable[tuple[str, Source, CodeType]]) -> bytes:
    """Return the bytes of a file, from names, sources and code.

    All bytecode is in one piece: its memory is free again after the imports, which that of 500 pieces is not.
    """
    found: dict[str, Recorded] = {}
    code = bytearray()
    for name, source, one in modules:
        start = len(code)
        code += bytecode_cache.encode_code(one)
        found[name] = (*source, start, len(code))
    return bytecode_cache.encode({"code": bytes(code), "modules": found})


@contextmanager
def used() -> Iterator[None]:
    """Let what is imported meanwhile come from the program's file."""
    found = bytecode_cache.load(FILE)
    finder = RecordedFinder(found.get("modules", {}), found.get("code", b""))
    del found
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
