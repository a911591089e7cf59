"""The command line: one verb a file, nothing heavy imported before a verb needs it.

``openperouter status`` has to answer quickly on a slow and busy node, where importing the daemon's libraries takes
longer than everything else; so verbs import what they use inside their functions.
"""

from .program import main

__all__ = ["main"]
