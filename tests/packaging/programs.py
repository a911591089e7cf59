"""Packaging's programs as modules: they are in no package."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

PACKAGING: Final = Path(__file__).resolve().parents[2] / "packaging"


@cache
def load(path: str) -> ModuleType:
    """Import the program at a path below ``packaging``."""
    file = PACKAGING / path
    sys.path[:0] = [str(file.parent), str(PACKAGING / "docs")]
    spec = importlib.util.spec_from_file_location(f"packaging_{file.stem}_{file.parent.name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look for their module there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
