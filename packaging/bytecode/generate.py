"""Record the bytecode that a start would compile.

    PYTHONHASHSEED=0 python3 packaging/bytecode/generate.py DIRECTORY

``DIRECTORY`` gets the files at their places beside the program's packages. They are for the Python and the libraries
that this runs with; with others a start compiles, as it does without these files. For the files to be the same each
time the hashes of texts must be: attrs writes some into its methods, which a start, whose hashes differ, never finds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

# Nothing else before: what has been imported already is not recorded.
from supervisor.process import bytecode_cache  # noqa: E402


def imports() -> dict[bytecode_cache.Text, bytes]:
    """Import what ``openperouter run`` does, and all other commands; return what that compiled."""
    from supervisor.cli.program import build_parser

    build_parser()
    with bytecode_cache.used():
        import supervisor.main  # noqa: F401 - only imported
    compiled = bytecode_cache.of_program().compiled
    return {text: bytecode_cache.encode_code(code) for text, code in compiled.items()}


def main() -> None:
    """Write both files."""
    [directory] = sys.argv[1:]
    recorded = imports()
    from actors.frr.render import render, template_bytecode

    environment = render.environment()
    for name in environment.list_templates():
        environment.get_template(name)
    templates = template_bytecode.of_program().compiled
    for file, found in ((bytecode_cache.FILE, recorded), (template_bytecode.FILE, templates)):
        if not found:
            raise SystemExit(f"nothing was compiled for {file.name}: is there one in the checkout?")
        target = Path(directory) / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(bytecode_cache.encode(found))


if __name__ == "__main__":
    main()
