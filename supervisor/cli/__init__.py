"""The command line: one verb per file, heavy imports inside the functions that need them.

``openperouter status`` must answer quickly on a slow and busy node, where importing the daemon's libraries takes longer
than everything else.
"""

from .program import main

__all__ = ["main"]
