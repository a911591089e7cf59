#!/usr/bin/python3
"""Build the Debian package: ``python3 packaging/deb/build.py`` on a Debian 12 or 13 machine, as root.

The sources are the tracked files of this checkout, with their present content. They are built in a clean Debian 13
(see ``buildroot``), examined by lintian there, and the result is put into ``build/deb``. ``--verify-reproducible``
builds twice, the second time elsewhere in time and place, and compares the bytes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

from buildroot import BuildRoot, ensure_build_tree  # noqa: E402

from guestvm.errors import GuestError  # noqa: E402
from guestvm.progress import say  # noqa: E402

OUTPUT = ROOT / "build" / "deb"
#: The sources' directory, whose name is also in the source package.
SOURCES = "openperouter"
#: The user of the build root.
BUILDER = 2000
#: Folders whose untracked files probably belong into the package.
SHIPPED = ("actors", "config", "debian", "docs", "packaging", "supervisor")
#: File modes as in git, whatever the umask of this checkout was.
PLAIN, EXECUTABLE = 0o644, 0o755


def tracked_files(*, untracked: bool) -> list[str]:
    """Return the checkout's files, relative to it; with ``untracked`` untracked ones as well."""
    listed = git("ls-files", "-z", "--cached", *(("--others", "--exclude-standard") if untracked else ()))
    return sorted(name for name in set(listed.split("\0")) if name and os.path.lexists(ROOT / name))


def git(*arguments: str) -> str:
    """Run git on the checkout; :class:`GuestError` when it fails."""
    command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise GuestError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def warn_of_untracked() -> None:
    """Print which files will be missing in the package because they are untracked."""
    missing = git("ls-files", "--others", "--exclude-standard", "--", *SHIPPED).splitlines()
    if missing:
        say(f"untracked, hence not in the package: {', '.join(missing[:5])}{' ...' if missing[5:] else ''}")


def export(target: Path, names: list[str]) -> None:
    """Copy files of the checkout into an empty directory."""
    for name in names:
        source, copy = ROOT / name, target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            copy.symlink_to(source.readlink())
        else:
            shutil.copyfile(source, copy)
            copy.chmod(EXECUTABLE if source.stat().st_mode & 0o100 else PLAIN)


def own(directory: Path) -> None:
    """Give a directory and everything in it to the builder."""
    for path in (directory, *directory.rglob("*")):
        os.lchown(path, BUILDER, BUILDER)


@contextmanager
def workspace(names: list[str], place: str) -> Iterator[Path]:
    """Give a directory with the sources in ``place``/openperouter below it; removed at the end."""
    with tempfile.TemporaryDirectory(prefix="openperouter-deb-") as directory:
        work = Path(directory)
        work.chmod(0o755)
        export(work / place / SOURCES, names)
        own(work)
        yield work


def build(tree: Path, names: list[str], keep: Path, place: str = "one", **environment: str) -> list[Path]:
    """Build in the tree and move the results to ``keep``; return them."""
    with workspace(names, place) as work:
        root = BuildRoot(tree, work)
        variables = {"DEB_BUILD_OPTIONS": "terse", **environment}
        root.run(["dpkg-buildpackage", "-us", "-uc"], directory=f"/build/{place}/{SOURCES}", environment=variables)
        results = sorted(path for path in (work / place).iterdir() if path.is_file())
        keep.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copyfile(path, keep / path.name)) for path in results]


def examine(tree: Path, results: list[Path]) -> None:
    """Run lintian over a build's results; :class:`GuestError` when it finds an error or a warning."""
    with tempfile.TemporaryDirectory(prefix="openperouter-lintian-") as directory:
        for path in results:
            shutil.copyfile(path, Path(directory) / path.name)
        own(Path(directory))
        [changes] = [path.name for path in results if path.suffix == ".changes"]
        options = ["--fail-on", "error,warning", "--display-info", "--tag-display-limit", "0"]
        output = BuildRoot(tree, Path(directory)).run(["lintian", *options, changes])
    for line in output.splitlines():
        if re.match(r"[EWIPX]: ", line):
            say(f"lintian: {line}")


def compare(first: list[Path], second: list[Path]) -> None:
    """Raise :class:`GuestError` when two builds differ in anything that is installed or built from."""
    again = {path.name: path for path in second}
    for path in first:
        if path.suffix in (".deb", ".dsc", ".xz") and path.read_bytes() != again[path.name].read_bytes():
            raise GuestError(
                f"not reproducible: compare {path} with {again[path.name]} (diffoscope shows how they differ)"
            )


def publish(results: list[Path]) -> Path:
    """Replace what an earlier build left in the output directory; return the package's path."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    published = [Path(shutil.copyfile(path, OUTPUT / path.name)) for path in results]
    return next(path for path in published if path.suffix == ".deb")


def build_all(options: argparse.Namespace) -> Path:
    """Build, examine and publish; return the package's path."""
    tree = ensure_build_tree()
    if not options.untracked:
        warn_of_untracked()
    names = tracked_files(untracked=options.untracked)
    with tempfile.TemporaryDirectory(prefix="openperouter-results-") as directory:
        say(f"building from {len(names)} files")
        results = build(tree, names, Path(directory) / "first")
        say("examining with lintian")
        examine(tree, results)
        if options.verify_reproducible:
            say("building again, in another directory, time zone and locale")
            elsewhere = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "DEB_BUILD_OPTIONS": "terse parallel=7"}
            compare(results, build(tree, names, Path(directory) / "second", "an/other", **elsewhere))
            say("reproducible: both builds have the same bytes")
        return publish(results)


def main() -> int:
    """Parse the command line and build; a failure is printed as a message."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--verify-reproducible", action="store_true", help="build twice and compare the bytes")
    parser.add_argument("--untracked", action="store_true", help="include untracked files")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.exit(1, "build.py needs root: it creates a Debian tree and enters it\n")
    try:
        package = build_all(options)
    except GuestError as error:
        say(f"FAILED: {error}")
        return 1
    say(f"done: {package.relative_to(ROOT)} ({package.stat().st_size // 1024} KiB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
