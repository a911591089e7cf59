"""A directory tree with an installed Debian 13: the node's software, and what User-Mode Linux boots for kernel tests.

The tree's name is the digest of everything it is made from, so a changed recipe makes a new tree and an unchanged one
costs nothing. The tree is read-only: make a copy, or an image, to change something.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .cache import build_once
from .errors import GuestError
from .hosttools import require, run
from .progress import say

_HERE = Path(__file__).resolve().parent.parent

#: A cold mirror on a slow line; typical is half a minute.
_BUILD_SECONDS = 1200


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a tree is made from: ``rootfs`` is copied over the installed tree, then ``customize`` gets its path."""

    suite: str
    packages: tuple[str, ...]
    rootfs: Path
    customize: Path

    def digest(self) -> str:
        """Return a short name that changes with any ingredient (package versions are the mirror's business)."""
        parts = hashlib.sha256(repr((self.suite, self.packages)).encode())
        files = sorted(path for path in self.rootfs.rglob("*") if path.is_file())
        for path in [*files, self.customize]:
            place = path.relative_to(self.rootfs) if path in files else path.name
            parts.update(f"{place} {path.stat().st_mode:o}\n".encode() + path.read_bytes())
        return parts.hexdigest()[:12]


#: Debian's name of the release on the guest. "forky" (testing) is tried by hand: make test-deb OPENPEROUTER_SUITE=forky
STABLE = "trixie"
SUITE = os.environ.get("OPENPEROUTER_SUITE", STABLE)

#: The node: systemd and sshd to drive it, what the product depends on, what its tests and a person at the prompt use.
NODE = Recipe(
    suite=SUITE,
    packages=(
        *("systemd", "systemd-sysv", "dbus", "udev", "kmod", "linux-image-cloud-amd64", "openssh-server"),
        *("iproute2", "nftables", "frr", "frr-pythontools"),
        *("python3-trio", "python3-pyroute2", "python3-pydantic", "python3-jinja2", "python3-sdnotify", "python3-yaml"),
        *("python3-httpx", "python3-kubernetes", "python3-prometheus-client"),
        *("python3-pytest", "python3-pytest-trio", "python3-hypothesis", "python3-pytest-timeout"),
        *("iputils-ping", "procps", "less", "tcpdump", "bash-completion", "bird2"),
        "containernetworking-plugins",
    ),
    rootfs=_HERE / "rootfs",
    customize=_HERE / "customize.sh",
)

#: A node whose FRR runs in containers. catatonit is the first process of a pod.
PODMAN_NODE = replace(NODE, packages=(*NODE.packages, "podman", "catatonit"))
#: A node that Ansible installs, whose module for packages imports this.
ANSIBLE_NODE = replace(NODE, packages=(*NODE.packages, "python3-apt"))


def ensure_tree(recipe: Recipe = NODE) -> Path:
    """Return the tree's directory, building it first when this recipe was new here (needs root and a mirror)."""
    return build_once("trees", recipe.digest(), lambda directory: _build(recipe, directory))


def unpack(packages: Sequence[str], program: str, directory: Path) -> None:
    """Unpack packages of the guest's release with what they depend on, which runs on hosts of other releases too.

    They are not installed: neither apt nor a shell is there. Raises :class:`GuestError` when ``program`` is not there.
    """
    require(["mmdebstrap"])
    command = ["mmdebstrap", "--quiet", "--variant=extract", f"--include={','.join(packages)}", STABLE, str(directory)]
    run(command, seconds=_BUILD_SECONDS)
    if not (directory / program).is_file():
        raise GuestError(f"Debian {STABLE}'s package {packages[0]} has no {program}")
    for unused in ("dev", "etc", "tmp", "var"):
        shutil.rmtree(directory / unused, ignore_errors=True)


def _build(recipe: Recipe, directory: Path) -> None:
    require(["mmdebstrap"])
    say(f"installing Debian {recipe.suite} into a directory (once; about half a minute with a near mirror)")
    command = [
        *("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(recipe.packages)}"),
        # Before the kernel package arrives, so that its initrd is made by the guest's rules.
        f'--essential-hook=cp -r {recipe.rootfs}/. "$1"',
        # Once more at the end: maintainer scripts have their own ideas of /etc/hosts and the like.
        f'--customize-hook=cp -r {recipe.rootfs}/. "$1"',
        f'--customize-hook={recipe.customize} "$1"',
        *("--dpkgopt=force-confold", "--dpkgopt=path-exclude=/usr/share/man/*"),
        # Lists of releases in the making expire within days, and a mirror that stands still is good enough for a trial.
        *(() if recipe.suite == STABLE else ('--aptopt=Acquire::Check-Valid-Until "false"',)),
        *(recipe.suite, str(directory)),
    ]
    run(command, seconds=_BUILD_SECONDS)
