"""A tree as a bootable disk: a raw ext4 file with its kernel and initrd beside it.

The disk is never written to after it was made; a machine boots from a copy-on-write overlay. Root logs in with a key
that is made once per cache and handed to the guest at boot as a systemd credential, so no secret is inside the image.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from .cache import build_once, cache_dir, locked
from .errors import GuestError
from .hosttools import require, run
from .progress import say
from .tree import NODE, Recipe, ensure_tree

#: Sparse; large enough for journals, a package build and a few upgrades.
_DISK_SIZE = "8G"
#: mke2fs copies the tree; most of it is for a busy machine.
_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Image:
    """The files that a machine boots from. ``host_key`` is the guest's public ssh host key."""

    disk: Path
    kernel: Path
    initrd: Path
    host_key: str


def ensure_image(recipe: Recipe = NODE) -> Image:
    """Return the recipe's disk, building tree and disk when they are not there yet."""
    tree = ensure_tree(recipe)
    directory = build_once("images", recipe.digest(), lambda target: _build(tree, target))
    host_key = (directory / "host_key.pub").read_text().split()
    return Image(directory / "disk.raw", directory / "vmlinuz", directory / "initrd.img", " ".join(host_key[:2]))


def ensure_login_key() -> Path:
    """Return the private key that opens every guest of this cache."""
    key = cache_dir() / "ssh" / "id_ed25519"
    with locked("ssh"):
        if not key.exists():
            require(["ssh-keygen"])
            key.parent.mkdir(mode=0o700, exist_ok=True)
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "openperouter-guest", "-f", str(key)]
            run(command, seconds=_SECONDS)
    return key


def _build(tree: Path, directory: Path) -> None:
    require(["mke2fs"])
    say("making the guest's disk")
    for source, name in (("vmlinuz-*", "vmlinuz"), ("initrd.img-*", "initrd.img")):
        found = sorted((tree / "boot").glob(source))
        if not found:
            raise GuestError(f"no {source} in {tree}/boot: delete this tree and build again")
        shutil.copyfile(found[-1], directory / name)
    shutil.copyfile(tree / "etc/ssh/ssh_host_ed25519_key.pub", directory / "host_key.pub")
    # No journal: the overlay is thrown away after a crash, and emulated writes are dear.
    options = ["-q", "-t", "ext4", "-O", "^has_journal", "-d", str(tree)]
    run(["mke2fs", *options, str(directory / "disk.raw"), _DISK_SIZE], seconds=_SECONDS)
