"""The checkout's own files, as the checks see them."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Python that is ours: what runs on a node, and what tests it there.
CODE = ("supervisor", "actors", "config", "packaging")
TESTS = ("tests",)
_NOT_SOURCES = frozenset({".git", ".venv", ".venv-newest", "build", "dist", "__pycache__"})


@dataclass(frozen=True)
class Module:
    """One Python file: its path from the checkout's root, its dotted name and its text."""

    path: str
    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text, filename=self.path)

    @property
    def lines(self) -> int:
        """Its length."""
        return len(self.text.splitlines())

    def imports(self) -> Iterator[tuple[int, str]]:
        """Yield (line, absolute dotted name) of every import in the file; ``from a import b`` is ``a.b``."""
        package = self.name if self.path.endswith("/__init__.py") else self.name.rpartition(".")[0]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    parents = package.split(".")
                    above = ".".join(parents[: len(parents) - node.level + 1])
                    base = f"{above}.{base}" if base else above
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Yield every function and method."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


@cache
def modules(*folders: str) -> tuple[Module, ...]:
    """Return the Python modules below these folders of the checkout, in path order."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return tuple(_module(path) for path in paths if _NOT_SOURCES.isdisjoint(path.relative_to(ROOT).parts))


@cache
def _module(path: Path) -> Module:
    """Return one for each path, so that each file is parsed once."""
    relative = path.relative_to(ROOT)
    name = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
    return Module(str(relative), name, path.read_text(encoding="utf-8"))


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return the files that are part of the project: what git tracks, or without git everything but build products."""
    listed = _list_with_git()
    if listed is not None:
        return tuple(path for name in listed if name and (path := ROOT / name).is_file())
    every = (path for path in ROOT.rglob("*") if path.is_file())
    return tuple(path for path in every if _NOT_SOURCES.isdisjoint(path.relative_to(ROOT).parts))


def _list_with_git() -> list[str] | None:
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
