"""The bytecode of code that is text until it is imported.

Dataclasses, attrs, named tuples and annotations come as text, which Python compiles at each start: for the daemon 1,300
texts, a quarter of the CPU of its imports. The package's build records their bytecode, and a start takes it from there.
The key is the text itself, so a text that is not in the file, because a library or Python is another one, is compiled
as always: nothing but the time of a start depends on the file.

The builtins ``compile``, ``exec`` and ``eval`` are replaced while modules are imported, and no longer.
"""

from __future__ import annotations
import __future__

import builtins
import marshal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

#: Text, file name and mode as ``compile`` takes them, and the future statements that apply.
Text = tuple[str, str, str, int]

#: In the package, beside the program; a checkout and the wheel have none.
FILE: Final = Path(__file__).parents[2] / "imports.bytecode"
#: Bytecode is good for one version of Python, with or without ``-O``.
_VALID_FOR: Final = (MAGIC_NUMBER, sys.flags.optimize)
#: The version of marshal's format; it is read in two thirds of the time that version 2 takes.
_MARSHAL: Final = 4
_COMPILE, _EXEC, _EVAL = compile, exec, eval
#: All bits of a code object's flags that ``compile`` inherits; ``nested_scopes`` has another meaning there.
_FUTURE: Final = sum(
    getattr(__future__, name).compiler_flag for name in __future__.all_feature_names if name != "nested_scopes"
)


class Texts:
    """Stand-ins for the three builtins. They look into ``found``; ``compiled`` collects the code of other texts."""

    def __init__(self, found: Mapping[Text, bytes]) -> None:
        self.found = found
        self.compiled: dict[Text, CodeType] = {}

    def compile(  # noqa: PLR0917 - the builtin's
        self,
        source: Any,
        filename: Any,
        mode: str,
        flags: int = 0,
        dont_inherit: bool = False,
        optimize: int = -1,
        **others: Any,
    ) -> Any:
        """Do what the builtin does."""
        if not dont_inherit:
            flags |= _future(sys._getframe(1))
        if isinstance(source, str) and isinstance(filename, str) and not flags & ~_FUTURE and optimize == -1:
            return self._code((source, filename, mode, flags))
        return _COMPILE(source, filename, mode, flags, dont_inherit=True, optimize=optimize, **others)

    def exec(self, source: Any, globals: Any = None, locals: Any = None, **others: Any) -> None:  # noqa: A002
        """Do what the builtin does."""
        caller = sys._getframe(1)
        _EXEC(self._text(source, "exec", caller), *_scopes(globals, locals, caller), **others)

    def eval(self, source: Any, globals: Any = None, locals: Any = None) -> Any:  # noqa: A002
        """Do what the builtin does."""
        caller = sys._getframe(1)
        return _EVAL(self._text(source, "eval", caller), *_scopes(globals, locals, caller))

    def _text(self, source: Any, mode: str, caller: FrameType) -> Any:
        """Return a text's code, or what is code already."""
        if not isinstance(source, str):
            return source
        text = source.lstrip(" \t") if mode == "eval" else source
        return self._code((text, "<string>", mode, _future(caller)))

    def _code(self, text: Text) -> CodeType:
        if (found := self.found.get(text)) is not None:
            return decode_code(found)
        source, filename, mode, flags = text
        code: CodeType = _COMPILE(source, filename, mode, flags, dont_inherit=True)
        self.compiled[text] = code
        return code


def _future(frame: FrameType) -> int:
    flags: int = frame.f_code.co_flags & _FUTURE
    return flags


def _scopes(in_globals: Any, in_locals: Any, caller: FrameType) -> tuple[Any, Any]:
    if in_globals is None:
        return caller.f_globals, caller.f_locals if in_locals is None else in_locals
    return in_globals, in_locals


@contextmanager
def used(texts: Texts | None = None) -> Iterator[None]:
    """Let what is imported meanwhile take its bytecode from the program's file, or from ``texts``."""
    texts = texts or of_program()
    names = ("compile", "exec", "eval")
    before = [getattr(builtins, name) for name in names]
    for name in names:
        setattr(builtins, name, getattr(texts, name))
    try:
        yield
    finally:
        for name, builtin in zip(names, before, strict=True):
            setattr(builtins, name, builtin)


@cache
def of_program() -> Texts:
    """Return the content of the program's file. Megabytes: ``of_program.cache_clear()`` once all is imported."""
    return Texts(load(FILE))


def load(path: Path) -> dict[Any, Any]:
    """Return what a file holds; nothing when there is none, or when it is for another Python."""
    try:
        valid_for, found = marshal.loads(path.read_bytes())  # noqa: S302 - as trusted as the program that it belongs to
    except (OSError, EOFError, ValueError, TypeError):
        return {}
    return found if valid_for == _VALID_FOR else {}


def encode(found: Mapping[Any, Any]) -> bytes:
    """Return the bytes of a file; keys and values are texts, numbers, bytes, and tuples of them."""
    return marshal.dumps((_VALID_FOR, dict(sorted(found.items()))), _MARSHAL)


def encode_code(code: CodeType) -> bytes:
    """Return one value of a file: the same bytes for the same code, so that packages can be compared.

    The format depends on what else refers to a constant, which for code that has just been read is nothing.
    """
    return marshal.dumps(marshal.loads(marshal.dumps(code, _MARSHAL)), _MARSHAL)  # noqa: S302 - written right here


def decode_code(found: bytes | memoryview) -> CodeType:
    """Return what :func:`encode_code` took."""
    code: CodeType = marshal.loads(found)  # noqa: S302 - see load
    return code
