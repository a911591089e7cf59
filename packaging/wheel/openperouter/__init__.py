"""The command ``openperouter`` as pip installs it: finds the private packages beside this file and hands over.

They are called supervisor, actors and config, names that must not be claimed in a directory that others install into.
The Debian package has them in /usr/share/openperouter, for the same reason.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """Run one command; return the process's exit code."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from supervisor.cli import main as run

    return run()
