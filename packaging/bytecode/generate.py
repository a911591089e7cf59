"""Record the bytecode that a start would compile: ``python3 packaging/bytecode/generate.py DIRECTORY``.

``DIRECTORY`` gets the files at their places beside the program's packages. They are for the Python and the libraries
that this runs with; with others a start compiles, as it does without these files. A start is recorded twice, with
different hashes of texts: what differs (attrs writes such a hash into its methods) would never be found.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from actors.frr.render import render, template_bytecode  # noqa: E402
from supervisor.process import bytecode_cache  # noqa: E402

#: Imports what ``openperouter run`` does, in a process that has imported next to nothing before, and writes all of it.
_RECORD: Final = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from supervisor.process import bytecode_cache
import supervisor.cli
with bytecode_cache.used():
    import supervisor.main
compiled = bytecode_cache.of_program().compiled
found = {text: bytecode_cache.encode_code(code) for text, code in compiled.items()}
Path(sys.argv[2]).write_bytes(bytecode_cache.encode(found))
"""
_SEEDS: Final = ("1", "2")
_SECONDS: Final = 300


def imports() -> dict[bytecode_cache.Text, bytes]:
    """Return what two starts have in common."""
    first, second = map(_recorded, _SEEDS)
    return {text: code for text, code in first.items() if second.get(text) == code}


def _recorded(seed: str) -> dict[bytecode_cache.Text, bytes]:
    with tempfile.NamedTemporaryFile() as file:
        command = [sys.executable, "-c", _RECORD, str(ROOT), file.name]
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, timeout=_SECONDS)
        return bytecode_cache.load(Path(file.name))


def templates() -> dict[template_bytecode.Key, bytes]:
    """Return the templates of FRR's configuration."""
    environment = render.environment()
    for name in environment.list_templates():
        environment.get_template(name)
    return template_bytecode.of_program().compiled


def main() -> None:
    """Write both files."""
    [directory] = sys.argv[1:]
    for file, found in ((bytecode_cache.FILE, imports()), (template_bytecode.FILE, templates())):
        if not found:
            raise SystemExit(f"nothing was compiled for {file.name}: is there one in the checkout?")
        target = Path(directory) / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(bytecode_cache.encode(found))


if __name__ == "__main__":
    main()
