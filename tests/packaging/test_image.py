"""What goes into the container image; ``make image`` builds it, and runs the program in it."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest

from supervisor.version import VERSION
from tests.packaging.programs import load

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "packaging/image"
build_image = partial(load, "image/build_image.py")
STATUS = """\
Package: python3
Status: install ok installed
Architecture: amd64
Version: 3.13.5-1
Pre-Depends: python3-minimal (= 3.13.5-1)
Depends: libc6 (>= 2.38), default-tls | libssl3t64, dpkg (>= 1.13)
Description: interactive high-level language
 Python, with the word Depends: nowhere-package at the start of nothing.

Package: python3-minimal
Status: install ok installed
Architecture: amd64
Version: 3.13.5-1

Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2:2.41-12+deb13u1

Package: libssl-other
Status: install ok installed
Architecture: amd64
Version: 1
Provides: libssl3t64 (= 3.5)

Package: removed
Status: deinstall ok config-files
Architecture: all
Version: 1

Package: dpkg
Status: install ok installed
Architecture: amd64
Version: 1.22
"""


def test_the_image_has_each_library_that_the_package_depends_on() -> None:
    control = (ROOT / "debian/control").read_text()
    [depends] = re.findall(r"^Depends:((?:.*\n)(?: .*\n)*)", control, re.MULTILINE)
    wanted = set(re.findall(r"python3-[a-z0-9-]+", depends))
    assert len(wanted) > 5
    assert wanted == {name for name in build_image().PACKAGES if name.startswith("python3-")}


def test_it_takes_what_packages_depend_on_but_not_what_installs_them() -> None:
    packages = build_image().installed(STATUS)
    assert "removed" not in packages
    assert build_image().closure(packages, ["python3"]) == ["libc6", "libssl-other", "python3", "python3-minimal"]


def test_a_package_that_is_missing_is_named() -> None:
    with pytest.raises(build_image().GuestError, match="the tree has no package python3-trio"):
        build_image().closure(build_image().installed(STATUS), ["python3-trio"])


def test_the_bill_of_materials_names_each_package_and_version() -> None:
    packages = build_image().installed(STATUS)
    names = ("python3", "libc6")
    components = [build_image().component(packages[name], "debian-13") for name in names]
    text = build_image().bill_of_materials(VERSION, components)
    bill = json.loads(text)
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", VERSION)
    libc, python = bill["components"]
    assert (libc["name"], libc["version"]) == ("libc6", "2:2.41-12+deb13u1")
    assert libc["purl"] == "pkg:deb/debian/libc6@2%3A2.41-12%2Bdeb13u1?arch=amd64&distro=debian-13"
    assert bill["dependencies"][0]["dependsOn"] == [libc["bom-ref"], python["bom-ref"]]
    assert text == build_image().bill_of_materials(VERSION, reversed(components))


def test_files_are_copied_with_their_modes_and_links_but_no_manual(tmp_path: Path) -> None:
    tree, target = tmp_path / "tree", tmp_path / "target"
    files = (
        "/usr/bin/tool",
        "/usr/share/man/man1/tool.1",
        "/usr/share/doc/tool/README",
        "/usr/share/doc/tool/copyright",
    )
    for name in files:
        (tree / name[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tree / name[1:]).write_text(name)
    (tree / "usr/bin/tool").chmod(0o755)
    (tree / "usr/bin/link").symlink_to("tool")
    info = tree / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (info / "tool:amd64.list").write_text("\n".join(["/.", "/usr/bin", *files, "/usr/bin/link", "/usr/bin/absent"]))
    target.mkdir()
    build_image().copy_packages(tree, target, ["tool"])
    copied = sorted(str(path.relative_to(target)) for path in target.rglob("*") if not path.is_dir())
    assert copied == ["usr/bin/link", "usr/bin/tool", "usr/share/doc/tool/copyright"]
    assert (target / "usr/bin/tool").stat().st_mode & 0o777 == 0o755
    assert (target / "usr/bin/link").is_symlink()


def test_the_container_is_not_root_and_has_nothing_of_a_registry() -> None:
    instructions = dict(
        line.split(maxsplit=1) for line in (IMAGE / "Containerfile").read_text().splitlines() if line[:1].isalpha()
    )
    assert instructions["FROM"] == "scratch"
    assert instructions["USER"] == f"{build_image().USER}:{build_image().USER}"
    assert instructions["ENTRYPOINT"] == '["/usr/bin/openperouter"]'
    assert "RUN" not in instructions


def test_the_routers_image_has_frr_and_what_its_scripts_and_the_daemon_call() -> None:
    cluster, router = build_image().CLUSTER, build_image().ROUTER
    scripts = {"frr", "bash", "coreutils", "dash", "grep", "libpam-modules"}
    daemon = {"nftables", "iputils-ping", "util-linux"}
    assert set(router.packages) - set(cluster.packages) == scripts | daemon
    assert set(cluster.packages) < set(router.packages)
    # Logs go to the journal; what rotates files depends on an init system.
    assert "logrotate" in build_image().INSTALLERS


def test_the_routers_container_runs_frrs_scripts_as_root_and_has_nothing_of_a_registry() -> None:
    text = (IMAGE / build_image().ROUTER.containerfile).read_text()
    instructions = dict(line.split(maxsplit=1) for line in text.splitlines() if line[:1].isalpha())
    assert instructions["FROM"] == "scratch"
    assert instructions["USER"] == "0:0"
    assert instructions["CMD"] == '["/usr/libexec/openperouter/start-frr"]'
    assert "RUN" not in instructions
    start = IMAGE / "router/start-frr"
    assert start.stat().st_mode & 0o777 == 0o755
    assert start.read_text().startswith("#!/bin/bash\n")
