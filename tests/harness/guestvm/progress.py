"""Lines that show the current step and how long the program has run.

A first run downloads a distribution and boots a machine: silence for minutes looks like a hang.
"""

from __future__ import annotations

import sys
import time

_BEGIN = time.monotonic()


def elapsed() -> float:
    """Return the seconds since this process began to report."""
    return time.monotonic() - _BEGIN


def say(message: str) -> None:
    """Print one progress line on standard error, at once."""
    print(f"[{elapsed():6.1f}s] {message}", file=sys.stderr, flush=True)
