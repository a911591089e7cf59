"""Recorded modules: taken when Python would find the same source at the same place, and in no other case."""

from __future__ import annotations

import importlib
import marshal
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from supervisor.process import module_cache
from supervisor.process.module_cache import RecordedLoader, Source

SOURCES = {
    "recorded_single": "recorded_single.py",
    "recorded_pack": "recorded_pack/__init__.py",
    "recorded_pack.inner": "recorded_pack/inner.py",
}
TEXT = "made_from = 'source'\n"


class Library:
    """A directory with modules, and a file in which all of them are recorded, with code that differs."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "library"
        self.file = root / "modules.bytecode"
        for place in SOURCES.values():
            path = self.directory / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(TEXT)
        self.write(*SOURCES)

    def source(self, name: str) -> Path:
        return self.directory / SOURCES[name]

    def write(self, *names: str) -> None:
        """Record some modules."""
        self.file.write_bytes(module_cache.encode(map(self._recorded, names)))

    def _recorded(self, name: str) -> tuple[str, Source, CodeType]:
        source = self.source(name)
        status = source.stat()
        package = source.parent if source.name == "__init__.py" else None
        directory = (package or source).parent
        place = (str(source), status.st_size, int(status.st_mtime), str(directory), str(package or ""))
        return name, place, compile("made_from = 'record'\n", str(source), "exec")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    library = Library(tmp_path)
    monkeypatch.setattr(module_cache, "FILE", library.file)
    monkeypatch.syspath_prepend(library.directory)
    yield library
    for name in SOURCES:
        sys.modules.pop(name, None)


def imported(name: str) -> ModuleType:
    with module_cache.used():
        return importlib.import_module(name)


def test_a_recorded_module_is_like_an_imported_one(library: Library) -> None:
    module = imported("recorded_pack.inner")
    package = sys.modules["recorded_pack"]
    assert [one.made_from for one in (module, package, imported("recorded_single"))] == ["record"] * 3
    assert module.__file__ == str(library.source("recorded_pack.inner"))
    assert module.__package__ == "recorded_pack"
    assert module.__spec__ is not None
    assert module.__spec__.cached == importlib.util.cache_from_source(str(module.__file__))
    assert package.__path__ == [str(library.directory / "recorded_pack")]
    assert isinstance(module.__loader__, RecordedLoader)
    assert module.__loader__.get_source("recorded_pack.inner") == TEXT


def test_a_record_serves_one_import(library: Library) -> None:
    """It would stay in memory."""
    module = imported("recorded_single")
    assert importlib.reload(module).made_from == "source"
    assert library.source("recorded_single").exists()


@pytest.mark.parametrize("name", SOURCES)
def test_an_edited_source_is_imported(library: Library, name: str) -> None:
    source = library.source(name)
    before = source.stat()
    source.write_text(TEXT + "\n")
    os.utime(source, (before.st_atime, before.st_mtime))
    assert imported(name).made_from == "source"
    assert sys.modules[name].__file__ == str(source)


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_of_another_time_is_imported(library: Library, name: str) -> None:
    source = library.source(name)
    os.utime(source, (0, source.stat().st_mtime + 2))
    assert imported(name).made_from == "source"


@pytest.mark.parametrize("name", SOURCES)
def test_a_module_that_is_gone_is_not_found(library: Library, name: str) -> None:
    library.source(name).unlink()
    if name == "recorded_pack":
        # What is left is a package without a file of its own.
        assert not hasattr(imported(name), "made_from")
    else:
        with pytest.raises(ModuleNotFoundError, match=name):
            imported(name)


def test_an_earlier_directory_comes_first(library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "recorded_single.py").write_text("made_from = 'another directory'\n")
    monkeypatch.syspath_prepend(other)
    assert imported("recorded_single").made_from == "another directory"
    assert imported("recorded_pack.inner").made_from == "record"


def test_a_package_s_own_search_path_counts(library: Library, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "inner.py").write_text("made_from = 'another directory'\n")
    package = imported("recorded_pack")
    package.__path__.insert(0, str(other))
    assert imported("recorded_pack.inner").made_from == "another directory"


@pytest.mark.parametrize("content", [None, b"", b"nonsense", marshal.dumps(((b"3.9", 0), {}))])
def test_a_file_of_no_use_is_as_good_as_none(library: Library, content: bytes | None) -> None:
    library.file.unlink()
    if content is not None:
        library.file.write_bytes(content)
    assert imported("recorded_pack.inner").made_from == "source"


def test_modules_are_found_as_always_afterwards(library: Library) -> None:
    before = list(sys.meta_path)
    library.source("recorded_single").write_text("1 / 0\n")
    library.write("recorded_pack")
    with pytest.raises(ZeroDivisionError):
        imported("recorded_single")
    assert sys.meta_path == before
    assert importlib.import_module("recorded_pack").made_from == "source"


def test_a_checkout_has_no_file() -> None:
    """It would be of some other state of it."""
    assert not module_cache.FILE.exists()
