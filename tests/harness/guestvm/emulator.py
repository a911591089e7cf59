"""QEMU of the guest's Debian release, beside the cache's other programs, whatever the host's own release is.

Debian 12's needs a third more CPU time for a boot, and now and then runs code that the guest's kernel is just patching,
which ends that kernel (fixed in 8.1 by QEMU's deba78709a). What it links with is unpacked together with it, and the
loader is named on the command line.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from .cache import build_once
from .progress import say
from .tree import STABLE, unpack

_PACKAGES = ("qemu-system-x86", "qemu-system-data", "seabios")
_PROGRAM = "usr/bin/qemu-system-x86_64"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"


def ensure_emulator() -> tuple[str, ...]:
    """Return how each command line of QEMU begins, fetching it first when it is not there (needs root and a mirror)."""
    digest = hashlib.sha256(f"1 {STABLE} {_PACKAGES}".encode()).hexdigest()[:12]
    root = build_once("emulators", digest, _build)
    libraries = root / _LIBRARIES
    firmware = [option for name in ("qemu", "seabios") for option in ("-L", str(root / "usr/share" / name))]
    loader = [str(libraries / "ld-linux-x86-64.so.2"), "--library-path", str(libraries)]
    return (*loader, str(root / _PROGRAM), *firmware)


def _build(directory: Path) -> None:
    say(f"fetching Debian {STABLE}'s QEMU (once)")
    unpack(_PACKAGES, _PROGRAM, directory)
