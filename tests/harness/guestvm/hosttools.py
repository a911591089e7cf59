"""Which programs of the host the guest needs, which Debian package brings each, and running one.

A missing program is found before any work starts, and the message names the package: no one should have to guess from
``No such file or directory`` in the middle of a build.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Sequence

from .errors import GuestError

#: Program to Debian package, the same in Debian 12 and 13.
PACKAGE_OF = {
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "qemu-img": "qemu-utils",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "setpriv": "util-linux",
    "tar": "tar",
    "patchelf": "patchelf",
}

#: Needed by the builds although no program of ours calls into them: the archive's keys.
SUPPORT_PACKAGES = ("debian-archive-keyring",)


def host_packages() -> list[str]:
    """Return the Debian packages to install on the host, sorted."""
    return sorted({*PACKAGE_OF.values(), *SUPPORT_PACKAGES})


def require(programs: Iterable[str]) -> None:
    """Raise :class:`GuestError` naming each program that is missing and the package it comes in."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        packages = " ".join(sorted({PACKAGE_OF[program] for program in missing}))
        raise GuestError(f"missing on this host: {', '.join(missing)}; install with: apt-get install {packages}")


def run(command: Sequence[str], *, seconds: float) -> None:
    """Run a program; raise :class:`GuestError` when it fails, with the end of what it says, or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise GuestError(f"{command[0]} did not finish in {seconds:g} s") from error
    if done.returncode != 0:
        raise GuestError(f"{command[0]} failed ({done.returncode}):\n{done.stderr[-4000:]}")
