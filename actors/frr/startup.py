"""Sees whether FRR's own start is still under way, which ends by loading the configuration on disk.

FRR's start script starts all daemons and then runs ``vtysh -b``. The daemons answer long before that. Whoever sends a
configuration in between meets the script's in mgmtd 10.3, which may keep its datastores locked for good, and leave
zebra without lines that the running configuration shows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
#: The script that watchfrr runs to start daemons; it lasts until the configuration is loaded. Which pathspace it works
#: for is in its environment, which a process with fewer capabilities may not read: any will do, it takes seconds.
_SCRIPT: Final = "watchfrr.sh"


def is_loading(pathspace: str, proc: Path = PROC) -> bool:
    """Say whether the start of one pathspace's FRR goes on."""
    return any(_is_start(words, pathspace) for words in map(_arguments, proc.glob("[0-9]*")) if words)


def _arguments(process: Path) -> list[str]:
    """Return the words of a process's command line; none of one that has ended."""
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _is_start(words: list[str], pathspace: str) -> bool:
    if any(Path(word).name == _SCRIPT for word in words):
        return True
    return Path(words[0]).name == "vtysh" and "-b" in words and pathspace in words
