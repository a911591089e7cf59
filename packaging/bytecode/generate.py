"""Record the bytecode that a start would compile, and that of the modules that it imports.

    PYTHONHASHSEED=0 python3 packaging/bytecode/generate.py DIRECTORY [--strip ROOT ...]

``DIRECTORY`` has the program's packages as they will be installed, and gets the files at their places beside them. With
``--strip``, what is below ``ROOT`` now is below ``/`` when it is used. The files are for the Python and the libraries
that this runs with; with others a start compiles and imports as it does without these files. For the files to be the
same each time the hashes of texts must be: attrs writes some into its methods, which a start, whose hashes differ,
never finds.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
_PROGRAM: Final = ("actors", "config", "supervisor")
sys.path.insert(0, str(ROOT))

# Nothing else before: what has been imported already is not recorded.
from supervisor.process import bytecode_cache, module_cache  # noqa: E402


def imports() -> tuple[dict[bytecode_cache.Text, bytes], frozenset[str]]:
    """Import what ``openperouter run`` does, and all other commands.

    Return what that compiled, and the modules that the daemon imports.
    """
    from supervisor.cli.program import build_parser

    build_parser("run")
    before = {*sys.modules}
    with bytecode_cache.used():
        import supervisor.main  # noqa: F401 - only imported
    modules = frozenset({*sys.modules} - before)
    build_parser()
    compiled = bytecode_cache.of_program().compiled
    return {text: bytecode_cache.encode_code(code) for text, code in compiled.items()}, modules


def recorded_modules(
    names: Iterable[str], program: Path, roots: Iterable[Path]
) -> Iterator[tuple[str, module_cache.Source, CodeType]]:
    """Yield each module that has a source, as it will be where it is used, for the file; ``program`` has ours."""
    # dpkg-deb gives the package's files no later time.
    newest = int(os.environ.get("SOURCE_DATE_EPOCH", sys.maxsize))
    for name in sorted(names):
        spec = sys.modules[name].__spec__
        if spec is None or type(spec.loader) is not SourceFileLoader or spec.origin is None:
            continue
        source, ours = Path(spec.origin), name.partition(".")[0] in _PROGRAM
        if ours:
            source = program / source.relative_to(ROOT)
        status = source.stat()
        time = min(int(status.st_mtime), newest) if ours else int(status.st_mtime)
        place = installed(source, roots)
        loader: Any = spec.loader
        code = loader.source_to_code(source.read_bytes(), str(place))
        package = place.parent if spec.submodule_search_locations else None
        directory = (package or place).parent
        yield name, (str(place), status.st_size, time, str(directory), str(package or "")), code


def installed(path: Path, roots: Iterable[Path]) -> Path:
    """Return the path that a file has where it is used."""
    below = next((root for root in roots if path.is_relative_to(root)), None)
    return path if below is None else "/" / path.relative_to(below)


def main() -> None:
    """Write all files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--strip", type=Path, default=[], action="append")
    arguments = parser.parse_args()
    texts, names = imports()
    modules = module_cache.encode(recorded_modules(names, arguments.directory, arguments.strip))
    from actors.frr.render import render, template_bytecode

    environment = render.environment()
    for name in environment.list_templates():
        environment.get_template(name)
    templates = template_bytecode.of_program().compiled
    if not texts or not templates:
        raise SystemExit("nothing was compiled: are there files of bytecode in the checkout?")
    for file, content in (
        (bytecode_cache.FILE, bytecode_cache.encode(texts)),
        (module_cache.FILE, modules),
        (template_bytecode.FILE, bytecode_cache.encode(templates)),
    ):
        target = arguments.directory / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


if __name__ == "__main__":
    main()
