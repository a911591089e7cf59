#!/usr/bin/python3
"""Build all that a release consists of: ``python3 packaging/release/make_release.py`` (``make release``), as root.

    checks of the checkout ──> source, chart, bill of materials, wheel, deb, image ──> SHA256SUMS ──> commands to tag

The results are in ``build/release``. Nothing is tagged, pushed or signed: the last lines are the commands for that. All
parts are of the commit that is checked out, which must have no changes; unless it is a draft, the changelogs must be of
this version. Source, chart and bill have the same bytes for the same commit.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "packaging/release")]

from cyclonedx import Component, bill_of_materials  # noqa: E402

SUMS: Final = "SHA256SUMS"
#: For the slowest part, which downloads and builds in a clean Debian.
_SECONDS: Final = 3600


class ReleaseError(Exception):
    """There is no release; the text says why."""


@dataclass(frozen=True, slots=True)
class Release:
    """A checkout, and the directory for what is made of it."""

    root: Path
    output: Path

    @property
    def version(self) -> str:
        """The program's version."""
        found = re.search(
            r'^VERSION: Final = "([^"]+)"$', (self.root / "supervisor/version.py").read_text(), re.MULTILINE
        )
        if found is None:
            raise ReleaseError("supervisor/version.py has no version")
        return found[1]

    @property
    def commit(self) -> str:
        """The commit that is checked out."""
        return self.git("rev-parse", "HEAD").decode().strip()

    @property
    def seconds(self) -> int:
        """When it was committed, a Unix second."""
        return int(self.git("show", "-s", "--format=%ct", "HEAD"))

    def git(self, *words: str) -> bytes:
        """Run git on the checkout."""
        return run(["git", "-c", f"safe.directory={self.root}", "-C", self.root, *words])


def run(command: Iterable[str | Path], *, directory: Path | None = None) -> bytes:
    """Run a program; return what it prints. Raises :class:`ReleaseError` with its error output."""
    words = list(map(str, command))
    done = subprocess.run(words, cwd=directory, capture_output=True, timeout=_SECONDS, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).decode(errors="replace")[-3000:].strip()
        raise ReleaseError(f"{' '.join(words[:6])}: exit {done.returncode}\n{said}")
    return done.stdout


def complaints(release: Release, *, draft: bool) -> list[str]:
    """Return why the checkout cannot be released."""
    found = []
    changed = release.git("status", "--porcelain").decode().splitlines()
    if changed:
        more = ", ..." if len(changed) > 3 else ""
        found.append(
            f"the checkout has changes that are not committed: {', '.join(line[3:] for line in changed[:3])}{more}"
        )
    if draft:
        return found
    version = release.version
    if not re.search(
        rf"^## \[?{re.escape(version)}\]?( |$)", (release.root / "CHANGELOG.md").read_text(), re.MULTILINE
    ):
        found.append(f"CHANGELOG.md has no section '## {version}': give the unreleased section that title")
    head = (release.root / "debian/changelog").read_text().partition("\n")[0]
    debian = re.fullmatch(r"\S+ \((?:\d+:)?([^)-]+)(?:-[^)]*)?\) (\S+); .*", head)
    if debian is None or debian[1] != version or debian[2] == "UNRELEASED":
        found.append(f"debian/changelog begins with {head!r}; it must begin with {version}, released")
    chart = re.findall(
        r"^(?:version|appVersion): (\S+)$", (release.root / "packaging/chart/Chart.yaml").read_text(), re.M
    )
    if chart != [version, version]:
        found.append(f"packaging/chart/Chart.yaml has the versions {', '.join(chart)}; both must be {version}")
    if release.git("tag", "--list", f"v{version}").strip():
        found.append(f"the tag v{version} exists already")
    return found


def make_source(release: Release) -> None:
    """Write the commit's files."""
    name = f"openperouter-{release.version}"
    archive = release.git("archive", "--format=tar", f"--prefix={name}/", "HEAD")
    _write_gzip(release.output / f"{name}.tar.gz", archive, release.seconds)


def make_chart(release: Release) -> None:
    """Write the helm chart with all that it needs, as helm packages one."""
    written = release.output / "manifests"
    program = "from supervisor.cli import main; import sys; sys.exit(main())"
    run([sys.executable, "-c", program, "manifests", "--write", written], directory=release.root)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path in sorted((written / "chart").rglob("*")):
            if path.is_file():
                entry = archive.gettarinfo(path, f"openperouter/{path.relative_to(written / 'chart')}")
                entry.mode, entry.mtime = 0o644, release.seconds
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = "root"
                with path.open("rb") as file:
                    archive.addfile(entry, file)
    shutil.rmtree(written)
    _write_gzip(release.output / f"openperouter-chart-{release.version}.tgz", content.getvalue(), release.seconds)


def _write_gzip(path: Path, content: bytes, seconds: int) -> None:
    with path.open("wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=seconds) as packed:
        packed.write(content)


def make_bill(release: Release) -> None:
    """Write what the program needs of Python, in the versions of Debian 13 (CycloneDX 1.5)."""
    path = release.output / f"openperouter-{release.version}.python.cdx.json"
    path.write_text(bill_of_materials(release.version, components(release), release.commit))


def components(release: Release) -> list[Component]:
    """Return the dependencies that pyproject.toml names; each must have its version in debian13.txt."""
    project = tomllib.loads((release.root / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[<>=!~; \[]", one)[0].lower() for one in project["dependencies"]]
    pinned = (release.root / "packaging/requirements/debian13.txt").read_text()
    versions = {name.lower(): version for name, version in re.findall(r"^([\w.-]+)==(\S+)$", pinned, re.MULTILINE)}
    missing = sorted(set(names) - versions.keys())
    if missing:
        raise ReleaseError(f"packaging/requirements/debian13.txt has no version of {', '.join(missing)}")
    return [Component(name, versions[name], f"pkg:pypi/{name}@{versions[name]}") for name in names]


def make_wheel(release: Release) -> None:
    """Build the wheel; pip fetches setuptools for it."""
    options: list[str | Path] = ["--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", release.output]
    run([sys.executable, "-m", "pip", "wheel", *options, release.root])


def make_deb(release: Release) -> None:
    """Build the Debian package and its source in Debian 13, twice, and compare."""
    run(["/usr/bin/python3", "packaging/deb/build.py", "--verify-reproducible"], directory=release.root)
    _take(release, "build/deb")


def make_image(release: Release) -> None:
    """Build the container image, with a bill of its own of Debian's packages."""
    run(["/usr/bin/python3", "packaging/image/build_image.py"], directory=release.root)
    _take(release, "build/image")


def _take(release: Release, directory: str) -> None:
    for path in sorted((release.root / directory).iterdir()):
        shutil.copy(path, release.output)


PARTS: Final[dict[str, Callable[[Release], None]]] = {
    "source": make_source,
    "chart": make_chart,
    "bill": make_bill,
    "wheel": make_wheel,
    "deb": make_deb,
    "image": make_image,
}


def write_sums(output: Path) -> list[str]:
    """Write the files' checksums, as ``sha256sum --check`` reads them; return the files' names."""
    names = sorted(path.name for path in output.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256((output / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (output / SUMS).write_text("".join(lines))
    return names


def build(release: Release, parts: Iterable[str], *, draft: bool) -> list[str]:
    """Build the parts into a new output directory; return their files' names."""
    parts = list(parts)
    found = complaints(release, draft=draft)
    if "image" in parts and shutil.which("buildah") is None:
        if draft:
            print("no image: buildah is not installed", flush=True)
            parts.remove("image")
        else:
            found.append("buildah is not installed, and the image needs it")
    if found:
        raise ReleaseError("\n".join(found))
    shutil.rmtree(release.output, ignore_errors=True)
    release.output.mkdir(parents=True)
    for name in parts:
        print(f"building: {name}", flush=True)
        PARTS[name](release)
    return write_sums(release.output)


def next_steps(release: Release) -> str:
    """Return the commands that make the release public."""
    tag = f"v{release.version}"
    return (
        f"To release this commit:\n"
        f"  git tag --sign --message 'openperouter {release.version}' {tag} {release.commit}\n"
        f"  gpg --armor --detach-sign {release.output / SUMS}\n"
        f"  git push origin {tag}"
    )


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and build; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--draft", action="store_true", help="whatever the changelogs say; prints no commands")
    parser.add_argument("--parts", default=",".join(PARTS), help="which parts, separated by commas (default: all)")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: this one)")
    parser.add_argument("--output", type=Path, help="where the files go; emptied first (default: build/release)")
    options = parser.parse_args(argv)
    parts = options.parts.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    release = Release(options.root.resolve(), (options.output or options.root / "build/release").resolve())
    try:
        names = build(release, parts, draft=options.draft)
    except ReleaseError as error:
        print(f"make_release: {error}", file=sys.stderr)
        return 1
    print("\n".join(str(release.output / name) for name in [*names, SUMS]))
    if not options.draft:
        print(next_steps(release))
    return 0


if __name__ == "__main__":
    sys.exit(main())
