"""Which of FRR's daemons run, by their PID files: asking them would be a session with them (:mod:`.frr_access`)."""

from __future__ import annotations

from pathlib import Path


def pid_of(run_dir: Path, daemon: str) -> int | None:
    """Return the process that a daemon's PID file names, if it really is that daemon."""
    try:
        pid = int((run_dir / f"{daemon}.pid").read_text())
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except (OSError, ValueError):
        return None
    return pid if name == daemon else None


def running_daemons(run_dir: Path) -> frozenset[str]:
    """Return the daemons of one FRR that run, watchfrr among them."""
    return frozenset(file.stem for file in run_dir.glob("*.pid") if pid_of(run_dir, file.stem) is not None)
