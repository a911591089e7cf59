"""Where built things are kept, and how two builders never break each other's work.

Everything lives below ``$OPENPEROUTER_CACHE`` (default ``/var/cache/openperouter-dev``) and may be deleted at any time
when nothing runs. A thing is built under a temporary name, by one process at a time, and renamed when complete: what
exists under its final name is whole.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

DEFAULT_CACHE = "/var/cache/openperouter-dev"


def cache_dir() -> Path:
    """Return the cache's root, created when missing."""
    directory = Path(os.environ.get("OPENPEROUTER_CACHE", DEFAULT_CACHE))
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock of that name, waiting for another owner. The kernel releases it when the owner ends."""
    with (cache_dir() / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def build_once(kind: str, digest: str, build: Callable[[Path], None]) -> Path:
    """Return the directory ``<cache>/<kind>/<digest>``; call ``build(empty directory)`` first when it does not exist.

    ``build`` may raise: then nothing remains under the final name. Leftovers of a killed build are removed by the next
    one.
    """
    parent = cache_dir() / kind
    final = parent / digest
    if final.is_dir():
        return final
    parent.mkdir(exist_ok=True)
    with locked(kind):
        if final.is_dir():
            return final
        for stale in parent.glob("building-*"):
            shutil.rmtree(stale, ignore_errors=True)
        building = Path(tempfile.mkdtemp(prefix="building-", dir=parent))
        try:
            building.chmod(0o755)
            build(building)
            building.rename(final)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return final
