"""What the scripts of the generated pages do with their text: print it, or with ``--write`` replace the page."""

from __future__ import annotations

import sys
from pathlib import Path


def print_or_write(page: Path, text: str) -> int:
    """Print a page's text, or write it as the command line says; return the exit code."""
    if sys.argv[1:] == ["--write"]:
        page.write_text(text)
    else:
        sys.stdout.write(text)
    return 0
