#!/usr/bin/python3
"""Build the container image: ``python3 packaging/image/build_image.py`` on a Debian 12 or 13 machine, as root.

    a tree with Debian 13 ──the files of some packages──┐
    this checkout ──packaging/install.sh────────────────┴─> rootfs, bill of materials ──buildah──> OCI archive

The files are those of the packages in :data:`PACKAGES` and of all that they depend on: files that a package needs
for its installation only are left out. The result is moved to ``build/image`` after its program was run in it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/harness"), str(ROOT / "packaging/release")]

from cyclonedx import Component, bill_of_materials  # noqa: E402

from guestvm.cache import cache_dir  # noqa: E402
from guestvm.errors import GuestError  # noqa: E402
from guestvm.progress import say  # noqa: E402
from guestvm.tree import ensure_tree  # noqa: E402
from supervisor.version import VERSION  # noqa: E402

HERE: Final = Path(__file__).resolve().parent
OUTPUT: Final = ROOT / "build" / "image"
#: The Python packages that debian/control names (a test compares them), and what says which Debian it is.
PACKAGES: Final = (
    *("base-files", "python3", "python3-cryptography", "python3-h11", "python3-httpx", "python3-jinja2"),
    *("python3-kubernetes", "python3-pydantic", "python3-pyroute2", "python3-sdnotify"),
    *("python3-trio", "python3-yaml"),
)
#: What packages depend on for their maintainers' scripts only, which do not run here.
INSTALLERS: Final = frozenset({"debconf", "debianutils", "dpkg", "init-system-helpers", "perl-base"})
USER: Final = 65532
PASSWD: Final = f"root:x:0:0:root:/:/sbin/nologin\nopenperouter:x:{USER}:{USER}::/:/sbin/nologin\n"
GROUP: Final = f"root:x:0:\nopenperouter:x:{USER}:\n"
#: What of a package no one reads in a container; licences stay.
_NOT_NEEDED: Final = re.compile(
    r"/usr/share/(man|info|locale|lintian|bash-completion)/|/usr/share/doc/[^/]+/(?!copyright)"
)
_AUTHORITIES: Final = "etc/ssl/certs/ca-certificates.crt"
#: What is installed of the program for a node's daemon.
_OF_THE_NODE: Final = ("etc/openperouter", "etc/frr", "usr/lib/systemd", "usr/lib/modules-load.d")
#: That all libraries are complete; whose rights it has; and that there is no shell.
_TRIAL: Final = """
import os, ssl
import cryptography.x509, h11, httpx, jinja2, kubernetes, pydantic, pyroute2, sdnotify, trio, yaml
assert os.getuid() == os.getgid() == 65532, (os.getuid(), os.getgid())
assert not [name for name in ("sh", "bash", "apt", "dpkg", "perl") if os.path.exists(f"/usr/bin/{name}")]
assert not os.access("/usr/share/openperouter", os.W_OK)
"""
_SECONDS: Final = 600

Package = Mapping[str, str]


def installed(status: str) -> dict[str, Package]:
    """Return the installed packages of dpkg's ``status`` by their names, each with its fields."""
    found: dict[str, Package] = {}
    for stanza in status.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", stanza, re.MULTILINE))
        if fields.get("Status") == "install ok installed":
            found[fields["Package"]] = fields
    return found


def closure(packages: Mapping[str, Package], wanted: Iterable[str]) -> list[str]:
    """Return the wanted packages and all that they depend on. Raises :class:`GuestError` for one that is missing."""
    provided = {
        name: package
        for package, fields in packages.items()
        for name in (_names(fields.get("Provides", "")))
        if name not in packages
    }
    found: set[str] = set()
    todo = list(wanted)
    while todo:
        name = todo.pop()
        package = name if name in packages else provided.get(name)
        if package is None:
            raise GuestError(f"the tree has no package {name}")
        if package in found:
            continue
        found.add(package)
        fields = packages[package]
        for choice in f"{fields.get('Pre-Depends', '')},{fields.get('Depends', '')}".split(","):
            names = [one for one in _names(choice.replace("|", ",")) if one in packages or one in provided]
            if names and INSTALLERS.isdisjoint(names):
                todo.append(names[0])
    return sorted(found)


def _names(relations: str) -> list[str]:
    return [match[1] for part in relations.split(",") if (match := re.match(r"\s*([a-z0-9][a-z0-9+.-]+)", part))]


def copy_packages(tree: Path, target: Path, names: Iterable[str]) -> None:
    """Copy the files of packages, with their modes and links."""
    info = tree / "var/lib/dpkg/info"
    for name in names:
        [listing] = [path for path in (info / f"{name}.list", *info.glob(f"{name}:*.list")) if path.exists()]
        for line in listing.read_text().splitlines():
            source, copy = tree / line.lstrip("/"), target / line.lstrip("/")
            if _NOT_NEEDED.search(f"{line}/" if source.is_dir() else line) or not os.path.lexists(source):
                continue
            if source.is_dir() and not source.is_symlink():
                copy.mkdir(parents=True, exist_ok=True)
                shutil.copystat(source, copy)
            elif not os.path.lexists(copy):
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, copy, follow_symlinks=False)


def component(package: Package, distribution: str) -> Component:
    """Return a package as the bill of materials has it; a version's + and : have to be escaped in a URL (purl)."""
    name, version = package["Package"], package["Version"]
    escaped = version.replace("+", "%2B").replace(":", "%3A")
    return Component(
        name, version, f"pkg:deb/debian/{name}@{escaped}?arch={package['Architecture']}&distro={distribution}"
    )


def make_rootfs(tree: Path, rootfs: Path) -> Path:
    """Fill a directory with what the image has; return the bill of materials in it."""
    packages = installed((tree / "var/lib/dpkg/status").read_text())
    names = closure(packages, PACKAGES)
    say(f"copying {len(names)} packages' files")
    # Where programs and libraries are, by their usual names; before any package puts a directory there.
    for name in ("bin", "sbin", "lib", "lib64"):
        (rootfs / "usr" / name).mkdir(parents=True)
        (rootfs / name).symlink_to(f"usr/{name}")
    # What base-files' own script makes; the pod's credentials are mounted below it.
    for name in ("run", "var"):
        (rootfs / name).mkdir()
    (rootfs / "var/run").symlink_to("../run")
    copy_packages(tree, rootfs, names)
    # A maintainer's script made it, and Python's requests does not start without.
    shutil.copy(tree / _AUTHORITIES, rootfs / _AUTHORITIES)
    run(["sh", ROOT / "packaging/install.sh", rootfs])
    for name in _OF_THE_NODE:
        shutil.rmtree(rootfs / name)
    for name, text in (("passwd", PASSWD), ("group", GROUP)):
        (rootfs / "etc" / name).write_text(text)
    found = re.search(r'^VERSION_ID="?([^"\n]+)', (tree / "usr/lib/os-release").read_text(), re.MULTILINE)
    bill = rootfs / "usr/share/openperouter/sbom.cdx.json"
    distribution = f"debian-{found[1]}" if found else "debian"
    bill.write_text(bill_of_materials(VERSION, (component(packages[name], distribution) for name in names)))
    return bill


def run(command: Iterable[str | Path]) -> str:
    """Run a program; return what it prints. Raises :class:`GuestError` with its error output."""
    words = list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode != 0:
        raise GuestError(f"{' '.join(words[:6])}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def build(work: Path, name: str) -> Path:
    """Build the image below ``work``, try it, and return its archive."""
    context = work / "context"
    context.mkdir()
    (context / "rootfs").mkdir(mode=0o755)
    bill = make_rootfs(ensure_tree(), context / "rootfs")
    # A store of its own: nothing of this host's images is touched, and nothing stays.
    buildah: list[str | Path] = [
        "buildah",
        "--root",
        work / "store",
        "--runroot",
        work / "run",
        "--storage-driver",
        "vfs",
    ]
    say("building with buildah")
    timestamp = f"--timestamp={os.environ.get('SOURCE_DATE_EPOCH', '0')}"
    options = ["--isolation=chroot", "--format=oci", timestamp, f"--tag={name}", f"--file={HERE / 'Containerfile'}"]
    run([*buildah, "bud", "--quiet", *options, context])
    container = run([*buildah, "from", "--pull-never", name]).strip()
    say("running the program in it")
    inside = [*buildah, "run", "--isolation=chroot", container, "--"]
    run([*inside, "/usr/bin/python3", "-I", "-c", _TRIAL])
    run([*inside, "/usr/bin/openperouter", "validate", "/usr/share/doc/openperouter/examples/configs"])
    version = run([*inside, "/usr/bin/openperouter", "--version"]).strip()
    if version != f"openperouter {VERSION}":
        raise GuestError(f"the program in the image says {version!r}")
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    archive = OUTPUT / f"openperouter-{VERSION}.oci.tar"
    run([*buildah, "push", "--quiet", name, f"oci-archive:{archive}:{name}"])
    shutil.copy(bill, OUTPUT / f"openperouter-{VERSION}.cdx.json")
    run([*buildah, "rm", container])
    return archive


def main() -> int:
    """Build; return the exit code."""
    try:
        with tempfile.TemporaryDirectory(prefix="image-", dir=cache_dir()) as directory:
            archive = build(Path(directory), f"openperouter:{VERSION}")
    except GuestError as error:
        print(f"build_image: {error}", file=sys.stderr)
        return 1
    say(f"done: {archive.relative_to(ROOT)} ({archive.stat().st_size >> 20} MiB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
