"""The clean Debian 13 in which the package is built: a cached directory tree, and commands run inside it.

A build sees a read-only tree with exactly the build dependencies, its own sources, no network, no other processes,
and an unprivileged user. What works there works on a build daemon.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/harness"))

from guestvm.errors import GuestError  # noqa: E402
from guestvm.hosttools import require  # noqa: E402
from guestvm.progress import say  # noqa: E402
from guestvm.tree import Recipe, ensure_tree  # noqa: E402

#: Build-Depends of debian/control (a test compares them), and what examines the result.
BUILD_DEPENDS = (
    *("debhelper", "dh-python", "bash-completion"),
    *("python3", "python3-argparse-manpage", "python3-jinja2", "python3-pydantic", "python3-sdnotify"),
    *("python3-shtab", "python3-trio", "python3-yaml"),
)
RECIPE = Recipe(
    suite="trixie",
    packages=("build-essential", *BUILD_DEPENDS, "lintian", "systemd", "udev"),
    rootfs=HERE / "buildroot",
    customize=HERE / "customize.sh",
)

#: A build takes seconds; this catches one that hangs.
COMMAND_SECONDS = 600

#: Runs in namespaces of its own, so that whatever it mounts disappears with it. $1 tree, $2 work directory, then the
#: command.
_ENTER = """
set -eu
tree=$1 work=$2
shift 2
mount --bind "$tree" "$tree"
mount --bind "$work" "$tree/build"
mount -o remount,bind,ro "$tree"
mount -t tmpfs -o mode=1777 tmp "$tree/tmp"
mount -t tmpfs -o mode=1777 tmp "$tree/var/tmp"
mount -t proc proc "$tree/proc"
mount -t tmpfs -o mode=755 dev "$tree/dev"
for node in null zero full random urandom; do
    touch "$tree/dev/$node"
    mount --bind "/dev/$node" "$tree/dev/$node"
done
ln -s /proc/self/fd "$tree/dev/fd"
exec chroot "$tree" setpriv --reuid 2000 --regid 2000 --clear-groups --no-new-privs --bounding-set=-all "$@"
"""


@dataclass(frozen=True, slots=True)
class BuildRoot:
    """A tree and a directory of the host that commands see, writable, as ``/build``."""

    tree: Path
    work: Path

    def run(
        self, argv: Sequence[str], *, directory: str = "/build", environment: Mapping[str, str] | None = None
    ) -> str:
        """Run a command and return what it printed; :class:`GuestError` with its output when it fails."""
        variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}
        settings = [f"{name}={value}" for name, value in {**variables, **(environment or {})}.items()]
        inside = ["env", "-i", "-C", directory, *settings, *argv]
        isolate = ["unshare", "--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child"]
        command = [*isolate, "sh", "-c", _ENTER, "enter", str(self.tree), str(self.work), *inside]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise GuestError(f"{argv[0]} did not finish in {COMMAND_SECONDS} s") from error
        if done.returncode != 0:
            raise GuestError(f"{' '.join(argv)} failed ({done.returncode}):\n{done.stdout[-8000:]}")
        return done.stdout


def ensure_build_tree() -> Path:
    """Return the build root's tree, made first when its recipe was new here (needs root and a mirror)."""
    require(["mmdebstrap", "unshare", "setpriv"])
    say("build root: Debian 13 with the build dependencies")
    return ensure_tree(RECIPE)
