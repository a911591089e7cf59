"""The templates' bytecode: the package's build compiles them, so that a start need not.

A template that is not in the file as it is now, or only for another Jinja or Python, is compiled as always.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Final

from jinja2 import BytecodeCache
from jinja2.bccache import Bucket, bc_magic

from supervisor.process import bytecode_cache

#: A template's name, the checksum of its text, and what Jinja and Python it is for.
Key = tuple[str, str, bytes]

#: In the package only.
FILE: Final = Path(__file__).with_name("templates.bytecode")


class TemplateBytecode(BytecodeCache):
    """Takes templates from ``found``; ``compiled`` collects others, as they would be found."""

    def __init__(self, found: Mapping[Key, bytes]) -> None:
        self.found = found
        self.compiled: dict[Key, bytes] = {}

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the name alone: the package is built elsewhere than where it is installed."""
        return name

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill in a template's code if it is known."""
        if (found := self.found.get(_key(bucket))) is not None:
            bucket.code = bytecode_cache.decode_code(found)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Collect what was compiled."""
        if bucket.code is not None:
            self.compiled[_key(bucket)] = bytecode_cache.encode_code(_without_path(bucket.code, bucket.key))


def _without_path(code: CodeType, name: str) -> CodeType:
    """Return the code with a template's name where it has the place of the build."""
    constants = (_without_path(one, name) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=name, co_consts=tuple(constants))


def _key(bucket: Bucket) -> Key:
    return bucket.key, bucket.checksum, bc_magic


@cache
def of_program() -> TemplateBytecode:
    """Return the content of the program's file."""
    return TemplateBytecode(bytecode_cache.load(FILE))
