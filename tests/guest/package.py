"""Debian packages for tests: ours, built once for the present checkout, and higher versions of others."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from demo.topology import CHECKOUT
from guestvm.tree import ensure_tree

_BUILD_SECONDS = 900
#: What of an installed package's maintainer files is in the package itself; dpkg makes the others.
_CONTROL_FILES = ("preinst", "postinst", "prerm", "postrm", "conffiles", "md5sums", "shlibs", "triggers")


@functools.cache
def built_package() -> Path:
    """Build the package and return its path. Raises when the build or lintian fails, or a second build differs.

    ``make test`` has built it, for two runs beside each other.
    """
    if built := os.environ.get("OPENPEROUTER_PACKAGE"):
        return Path(built)
    command = [sys.executable, str(CHECKOUT / "packaging" / "deb" / "build.py"), "--verify-reproducible"]
    subprocess.run(command, check=True, timeout=_BUILD_SECONDS)
    (package,) = (CHECKOUT / "build" / "deb").glob("*.deb")
    return package


def next_version(package: Path, directory: Path) -> Path:
    """Make a package with a version that is one higher out of another; return its path. Not compressed."""
    staged, made = directory / "staged", directory / "openperouter.deb"
    subprocess.run(["dpkg-deb", "-R", str(package), str(staged)], check=True)
    control = staged / "DEBIAN" / "control"
    control.write_text(re.sub(r"^(Version: .*)$", r"\1+1", control.read_text(), flags=re.MULTILINE))
    subprocess.run(["dpkg-deb", "-Znone", "-b", str(staged), str(made)], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(staged)
    return made


def higher_version(name: str, directory: Path) -> Path:
    """Make a package out of what the guest has installed of one, with a version that is one higher; return its path.

    The guests have no network to upgrade from. Not compressed: unpacking costs more there than copying.
    """
    tree, staged = ensure_tree(), directory / name
    (staged / "DEBIAN").mkdir(parents=True)
    info = tree / "var/lib/dpkg/info"
    for file in _CONTROL_FILES:
        if (info / f"{name}.{file}").exists():
            shutil.copy2(info / f"{name}.{file}", staged / "DEBIAN" / file)
    control = _stanza(name, (tree / "var/lib/dpkg/status").read_text())
    (staged / "DEBIAN" / "control").write_text(re.sub(r"^(Version: .*)$", r"\1+1", control, flags=re.MULTILINE))
    for line in (info / f"{name}.list").read_text().splitlines():
        _copy(tree, staged, line.lstrip("/"))
    package = directory / f"{name}.deb"
    subprocess.run(["dpkg-deb", "-Znone", "-b", str(staged), str(package)], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(staged)
    return package


def _stanza(name: str, status: str) -> str:
    """Return a package's fields as its control file has them."""
    stanza = next(part for part in status.split("\n\n") if part.startswith(f"Package: {name}\n"))
    return re.sub(r"^(?:Status: .*\n|Conffiles:\n(?: .*\n)+)", "", f"{stanza}\n", flags=re.MULTILINE)


def _copy(tree: Path, staged: Path, name: str) -> None:
    source, target = tree / name, staged / name
    # The guest leaves manual pages out.
    if not source.is_symlink() and not source.exists():
        return
    if source.is_dir() and not source.is_symlink():
        target.mkdir(parents=True, exist_ok=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)
    status = source.lstat()
    shutil.chown(target, status.st_uid, status.st_gid) if not target.is_symlink() else None
