"""Writing a confirmed trial into the configuration directory, and taking that back.

The command line does this, since the daemon never writes to /etc. The daemon goes on with the trial's texts until all
files are in their place, so it sees one change, whatever happens in between; each step may be done twice, so that a
run that was killed is completed by the next. The files as they were are kept below ``before-trial`` in the state
directory, those of the newest confirmed trial only.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Final

from actors.static_config.trial import Trial
from supervisor.process.atomic_file import remove_stale, write_atomic

SAVED: Final = "before-trial"
#: Of the directory of configuration files where there was none, as the package makes it.
_DIRECTORY_MODE: Final = 0o750


def saved_directory(state_dir: Path, trial: Trial) -> Path:
    """Return where the files are as they were before a trial was kept."""
    return state_dir / SAVED / trial.id


def put_in_place(trial: Trial, configs_dir: Path, state_dir: Path) -> Path:
    """Save the files that the trial changes, then write it; return where they are saved. Raises OSError."""
    saved = saved_directory(state_dir, trial)
    _forget_older(saved)
    for directory in (saved.parent, saved):
        # With "parents" only the last one would get the mode.
        directory.mkdir(mode=0o700, exist_ok=True)
    configs_dir.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    for name in (*trial.changed, *trial.removed):
        path = configs_dir / name
        # Absent or already as it should be: nothing to save, or an earlier run has done so.
        if path.exists() and not _is_in_place(trial, path):
            _copy(path, saved / name)
    for name in trial.changed:
        _write(trial, configs_dir / name)
    for name in trial.removed:
        (configs_dir / name).unlink(missing_ok=True)
    _sync(configs_dir)
    return saved


def take_back(trial: Trial, configs_dir: Path, state_dir: Path) -> None:
    """Undo a :func:`put_in_place` that has not been completed. Raises OSError."""
    saved = saved_directory(state_dir, trial)
    for name in (*trial.changed, *trial.removed):
        path = configs_dir / name
        if (saved / name).exists():
            _copy(saved / name, path)
        elif path.exists() and _is_in_place(trial, path):
            path.unlink()
    _sync(configs_dir)


def _is_in_place(trial: Trial, path: Path) -> bool:
    return path.name in trial.changed and path.read_bytes() == trial.texts[str(path)].encode()


def _write(trial: Trial, path: Path) -> None:
    """Write one file; one that exists keeps its mode and owner."""
    remove_stale(path)
    if path.exists():
        status = path.stat()
        mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
        write_atomic(path, trial.texts[str(path)], mode=mode, owner=owner)
    else:
        write_atomic(path, trial.texts[str(path)], mode=trial.modes.get(path.name, 0o600))


def _copy(source: Path, target: Path) -> None:
    status = source.stat()
    owner = (status.st_uid, status.st_gid)
    write_atomic(target, source.read_bytes(), mode=stat.S_IMODE(status.st_mode), owner=owner)


def _forget_older(saved: Path) -> None:
    if saved.parent.is_dir():
        for older in saved.parent.iterdir():
            if older != saved:
                shutil.rmtree(older)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
