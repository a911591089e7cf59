"""Write the custom resource definitions beside this file from the models, so that both can never differ.

``python3 packaging/crds/generate.py`` prints them; ``--write`` replaces the files; a test compares both.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from config.crd.definitions import DEFINITIONS  # noqa: E402

TARGET: Final = ROOT / "packaging" / "crds"


def main() -> int:
    """Print the definitions, or write them."""
    if sys.argv[1:] == ["--write"]:
        for stale in set(TARGET.glob("*.yaml")) - {TARGET / one.file_name for one in DEFINITIONS}:
            stale.unlink()
        for definition in DEFINITIONS:
            (TARGET / definition.file_name).write_text(definition.to_yaml())
    else:
        sys.stdout.write("".join(definition.to_yaml() for definition in DEFINITIONS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
