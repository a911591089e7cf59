#!/usr/bin/python3
"""Build the container images: ``python3 packaging/image/build_image.py [NAME...]`` on a Debian 12 or 13, as root.

    a tree with Debian 13 ──the files of some packages──┐
    this checkout ──packaging/install.sh────────────────┴─> rootfs, bill of materials ──buildah──> OCI archive

``openperouter`` is what runs in the cluster, without a shell; ``openperouter-router`` has FRR as well, for nodes that
run it in containers. The files are those of an image's packages and of all that they depend on: files that a package
needs for its installation only are left out. The result is moved to ``build/image`` after its program was run in it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
#: FRR, and what its scripts call; no package depends on Debian's essential ones. PAM lets root run vtysh.
FRR_PACKAGES: Final = ("frr", "bash", "coreutils", "dash", "grep", "libpam-modules")
#: What else the daemon and its commands call on a node: packet filter, ping, and programs that enter namespaces.
NODE_PACKAGES: Final = ("nftables", "iputils-ping", "util-linux")
#: What packages depend on for their maintainers' scripts only, which do not run here; FRR's for logs in files.
INSTALLERS: Final = frozenset({"debconf", "debianutils", "dpkg", "init-system-helpers", "perl-base", "logrotate"})
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
#: Where the router's directories are mounted. What is of the distribution in /etc/frr is no one's here.
_MOUNTED: Final = ("etc/frr/perouter", "run/frr", "run/openperouter-router", "var/lib/frr", "var/log/frr", "tmp")
_VTYSH_PAM: Final = "auth sufficient pam_permit.so\naccount sufficient pam_permit.so\n"
_OTHER_PAM: Final = "auth required pam_deny.so\naccount required pam_deny.so\n"
#: That all libraries are complete.
_LIBRARIES: Final = """
import os, ssl
import cryptography.x509, h11, httpx, jinja2, kubernetes, pydantic, pyroute2, sdnotify, trio, yaml
assert not os.access("/usr/share/openperouter", os.W_OK) or os.getuid() == 0
assert not [name for name in ("apt", "dpkg", "perl") if os.path.exists(f"/usr/bin/{name}")]
"""
#: Whose rights it has; and that there is no shell.
_CLUSTER_TRIAL: Final = """
assert os.getuid() == os.getgid() == 65532, (os.getuid(), os.getgid())
assert not [name for name in ("sh", "bash") if os.path.exists(f"/usr/bin/{name}")]
"""
#: That FRR's programs and scripts find what they need.
_ROUTER_TRIAL: Final = """
import subprocess
for name in ("zebra", "mgmtd", "bgpd", "staticd", "bfdd", "watchfrr"):
    subprocess.run([f"/usr/lib/frr/{name}", "--version"], check=True, stdout=subprocess.DEVNULL)
subprocess.run(["/usr/bin/vtysh", "--help"], check=True, stdout=subprocess.DEVNULL)
subprocess.run(["/bin/bash", "-c", "install --version; cat /dev/null; sleep 0; id -u"], check=True, capture_output=True)
for name in ("start-frr", "prepare-node"):
    subprocess.run(["/bin/bash", "-n", f"/usr/libexec/openperouter/{name}"], check=True)
for name in ("ip", "nft", "ping", "nsenter", "unshare"):
    subprocess.run([name, "-V"], check=True, stdout=subprocess.DEVNULL)
"""
_SECONDS: Final = 600

Package = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ImageKind:
    """One of the images: ``trial`` is Python that runs in it; ``with_frr`` is what makes it the router's."""

    name: str
    packages: tuple[str, ...]
    containerfile: str
    trial: str
    with_frr: bool = False


CLUSTER: Final = ImageKind("openperouter", PACKAGES, "Containerfile", _LIBRARIES + _CLUSTER_TRIAL)
ROUTER: Final = ImageKind(
    "openperouter-router",
    (*PACKAGES, *FRR_PACKAGES, *NODE_PACKAGES),
    "Containerfile.router",
    _LIBRARIES + _ROUTER_TRIAL,
    with_frr=True,
)
KINDS: Final = {kind.name: kind for kind in (CLUSTER, ROUTER)}


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


def make_rootfs(tree: Path, rootfs: Path, kind: ImageKind) -> Path:
    """Fill a directory with what the image has; return the bill of materials in it."""
    packages = installed((tree / "var/lib/dpkg/status").read_text())
    names = closure(packages, kind.packages)
    say(f"{kind.name}: copying {len(names)} packages' files")
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
    if kind.with_frr:
        _add_router(tree, rootfs)
    found = re.search(r'^VERSION_ID="?([^"\n]+)', (tree / "usr/lib/os-release").read_text(), re.MULTILINE)
    bill = rootfs / "usr/share/openperouter/sbom.cdx.json"
    distribution = f"debian-{found[1]}" if found else "debian"
    bill.write_text(bill_of_materials(VERSION, (component(packages[name], distribution) for name in names)))
    return bill


def _add_router(tree: Path, rootfs: Path) -> None:
    """Add what starts FRR, its user and files, and the directories that a node's are mounted over."""
    for name in _MOUNTED:
        (rootfs / name).mkdir(parents=True, exist_ok=True)
    for name, text in (("frr", _VTYSH_PAM), ("other", _OTHER_PAM)):
        (rootfs / "etc/pam.d" / name).write_text(text)
    # A node's own files are mounted over these two: there, FRR's IDs differ from machine to machine.
    for file in ("passwd", "group"):
        lines = [line for line in (tree / "etc" / file).read_text().splitlines() if line.startswith("frr")]
        with (rootfs / "etc" / file).open("a") as target:
            target.write("".join(f"{line}\n" for line in lines))
    programs = rootfs / "usr/libexec/openperouter"
    programs.mkdir(parents=True)
    for source in (HERE / "router").iterdir():
        shutil.copy(source, programs / source.name)
        (programs / source.name).chmod(0o755)
    # What prepare-node gives FRR in a pod of the cluster.
    shutil.copytree(ROOT / "packaging/frr/perouter", rootfs / "usr/share/openperouter/frr")


def run(command: Iterable[str | Path]) -> str:
    """Run a program; return what it prints. Raises :class:`GuestError` with its error output."""
    words = list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode != 0:
        raise GuestError(f"{' '.join(words[:6])}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def build(work: Path, kind: ImageKind) -> Path:
    """Build an image below ``work``, try it, and return its archive."""
    # Without a registry's name, podman would look for it in one, or nowhere.
    name = f"localhost/{kind.name}:{VERSION}" if kind.with_frr else f"{kind.name}:{VERSION}"
    context = work / "context"
    context.mkdir(parents=True)
    (context / "rootfs").mkdir(mode=0o755)
    bill = make_rootfs(ensure_tree(), context / "rootfs", kind)
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
    options = ["--isolation=chroot", "--format=oci", timestamp, f"--tag={name}", f"--file={HERE / kind.containerfile}"]
    run([*buildah, "bud", "--quiet", *options, context])
    container = run([*buildah, "from", "--pull-never", name]).strip()
    say("running the program in it")
    inside = [*buildah, "run", "--isolation=chroot", container, "--"]
    run([*inside, "/usr/bin/python3", "-I", "-c", kind.trial])
    run([*inside, "/usr/bin/openperouter", "validate", "/usr/share/doc/openperouter/examples/configs"])
    version = run([*inside, "/usr/bin/openperouter", "--version"]).strip()
    if version != f"openperouter {VERSION}":
        raise GuestError(f"the program in the image says {version!r}")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    archive = OUTPUT / f"{kind.name}-{VERSION}.oci.tar"
    archive.unlink(missing_ok=True)
    run([*buildah, "push", "--quiet", name, f"oci-archive:{archive}:{name}"])
    shutil.copy(bill, OUTPUT / f"{kind.name}-{VERSION}.cdx.json")
    run([*buildah, "rm", container])
    return archive


def main() -> int:
    """Build; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", choices=[*KINDS, []], metavar="NAME", help=", ".join(KINDS))
    names = parser.parse_args().names or list(KINDS)
    try:
        if names == list(KINDS):
            shutil.rmtree(OUTPUT, ignore_errors=True)
        for name in names:
            with tempfile.TemporaryDirectory(prefix="image-", dir=cache_dir()) as directory:
                archive = build(Path(directory) / name, KINDS[name])
            say(f"done: {archive.relative_to(ROOT)} ({archive.stat().st_size >> 20} MiB)")
    except GuestError as error:
        print(f"build_image: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
