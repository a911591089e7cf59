"""The key-value store below the API server: the machine's own etcd, or Debian's, unpacked into the cache.

Unpacked, not installed: installing the package starts a service and makes an account, and neither is wanted here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from guestvm.cache import build_once
from guestvm.progress import say

from .errors import ClusterError

PROGRAM: Final = "etcd"
_PACKAGE: Final = "etcd-server"
_OLDEST: Final = (3, 4)
#: An index of packages may have to be fetched first.
_SECONDS: Final = 300


def ensure() -> Path:
    """Return the program, checked. Raises :class:`ClusterError`."""
    installed = shutil.which(PROGRAM)
    if installed is not None:
        return _checked(Path(installed))
    return _checked(build_once(PROGRAM, "debian", _unpack) / "usr/bin" / PROGRAM)


def _unpack(directory: Path) -> None:
    say(f"fetching Debian's {_PACKAGE}")
    try:
        _download(directory)
    except ClusterError:
        # A machine that was just made has no index of packages, or one that is out of date.
        _run(["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "update"], directory)
        _download(directory)
    for package in directory.glob("*.deb"):
        _run(["dpkg-deb", "-x", package.name, "."], directory)
        package.unlink()


def _download(directory: Path) -> None:
    """Fetch the package; apt has checked it against the archive's signature."""
    # As this user: apt's own may not write here.
    _run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", _PACKAGE], directory)


def _run(command: list[str], directory: Path) -> str:
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"{command[0]}: {error}; install {_PACKAGE} by hand") from error
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def _checked(program: Path) -> Path:
    output = _run([str(program), "--version"], Path(os.sep))
    found = re.search(r"etcd Version: (\d+)\.(\d+)", output)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST:
        raise ClusterError(f"{program} says {output[:100]!r}; needed is {'.'.join(map(str, _OLDEST))} or newer")
    return program
