"""FRR's processes, seen through their PID files and /proc: connecting to them would be a session (:mod:`.frr_lock`)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
#: The daemons that every configuration is sent to, and all that ours may be sent to.
CORE_DAEMONS: Final = frozenset({"zebra", "mgmtd", "bgpd"})
DAEMONS: Final = CORE_DAEMONS | {"bfdd", "staticd"}
#: The script that watchfrr runs to start daemons; it lasts until the configuration is loaded. Its pathspace is in its
#: environment, which a process with fewer capabilities may not read; any will do, since it takes only seconds.
_START_SCRIPT: Final = "watchfrr.sh"


def pid_of(run_dir: Path, daemon: str) -> int | None:
    """Return the process that a daemon's PID file names, if it really is that daemon."""
    try:
        pid = int((run_dir / f"{daemon}.pid").read_text())
        name = (PROC / f"{pid}/comm").read_text().strip()
    except (OSError, ValueError):
        return None
    return pid if name == daemon else None


def running_daemons(run_dir: Path) -> frozenset[str]:
    """Return the running daemons of one FRR, watchfrr among them."""
    return frozenset(file.stem for file in run_dir.glob("*.pid") if pid_of(run_dir, file.stem) is not None)


def is_loading(pathspace: str, proc: Path = PROC) -> bool:
    """Return whether FRR's start script still runs: it starts all daemons and then loads the configuration on disk.

    The daemons accept sessions long before that. In mgmtd 10.3 a second configuration during the load may leave the
    datastores locked, and zebra without lines that the running configuration shows.
    """
    return any(_loads(words, pathspace) for words in map(_arguments, proc.glob("[0-9]*")) if words)


def _arguments(process: Path) -> list[str]:
    """Return a process's command-line arguments; none if it has ended."""
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _loads(words: list[str], pathspace: str) -> bool:
    if any(Path(word).name == _START_SCRIPT for word in words):
        return True
    return Path(words[0]).name == "vtysh" and "-b" in words and pathspace in words
