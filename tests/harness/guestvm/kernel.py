"""The User-Mode-Linux kernel of the guest's Debian release, with its modules: the version that nodes run.

In Debian 13's, processes start twice as quickly as in Debian 12's. It needs a newer C library than Debian 12 has, so it
is unpacked together with that library, and the library's loader is written into it: it executes itself again through
/proc/self/exe, where a loader named on a command line would be lost. It is not in the tree, since that becomes a
disk.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from .cache import build_once, cache_dir
from .hosttools import require, run
from .progress import say
from .tree import STABLE, unpack

_KIND = "kernels"
_PROGRAM = "usr/bin/linux.uml"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
#: Of a few megabytes; most of it is for a busy machine.
_PATCH_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Kernel:
    """``program`` runs on any Debian host; ``modules`` has a directory per kernel version, as /lib/modules has."""

    program: Path
    modules: Path


def ensure_kernel() -> Kernel:
    """Return the kernel, fetching it first when it is not there yet (needs root and a mirror)."""
    cache = cache_dir().resolve()
    # The loader's path is absolute, so a cache that was moved gets a kernel of its own.
    digest = hashlib.sha256(f"1 {STABLE} {cache}".encode()).hexdigest()[:12]
    directory = build_once(_KIND, digest, lambda target: _build(target, cache / _KIND / digest))
    return Kernel(directory / _PROGRAM, directory / "usr/lib/uml/modules")


def _build(directory: Path, final: Path) -> None:
    require(["patchelf"])
    say(f"fetching Debian {STABLE}'s User-Mode Linux (once)")
    unpack(["user-mode-linux"], _PROGRAM, directory)
    program = directory / _PROGRAM
    libraries = final / _LIBRARIES
    loader = libraries / "ld-linux-x86-64.so.2"
    command = ["patchelf", "--set-interpreter", str(loader), "--set-rpath", str(libraries), str(program)]
    run(command, seconds=_PATCH_SECONDS)
    shutil.rmtree(directory / "usr/share", ignore_errors=True)
