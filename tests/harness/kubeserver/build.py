"""Builds programs from Go modules, each once per version, into the cache: Kubernetes' own are here.

Kubernetes publishes no module that can be installed as it is: its go.mod replaces the staging modules by folders of its
own repository. The same file with each of them replaced by that module's published version builds the same program.
The module's checksum is pinned here; the file of checksums inside it pins every module that is not Kubernetes' own, and
Go's checksum database vouches for those.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from guestvm.cache import build_once, cache_dir, locked
from guestvm.progress import say

from .errors import ClusterError
from .golang import Go, find_go, prepare

_LOCK: Final = "kube-apiserver-build"
_SCRATCH: Final = "kube-apiserver"
_MODULE: Final = "k8s.io/kubernetes"
#: Fetching on a slow line; four minutes of compiling on two idle cores, and much more where it only gets what others
#: leave.
_FETCH_SECONDS: Final = 900
_BUILD_SECONDS: Final = 7200
#: Kubernetes' staging modules are required as v0.0.0, and replaced already.
_REQUIRED: Final = re.compile(r"^\t(\S+) (v(?!0\.0\.0\b(?!-))\S+)(?: //.*)?$", re.MULTILINE)
_STAGING: Final = re.compile(r"^(\s*k8s\.io/([a-z0-9-]+)) => \./staging/\S+$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Release:
    """One version of Kubernetes, without the ``v``, and the checksum of its module as go.sum writes it."""

    version: str
    checksum: str

    @property
    def minor(self) -> str:
        """Return major and minor, such as ``1.36``."""
        return self.version.rpartition(".")[0]


#: The newest minor, and the oldest that clusters still run: what both understand, those between them do.
NEWEST: Final = Release("1.36.3", "h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o=")
OLDEST: Final = Release("1.33.13", "h1:bmH31xUdSzeA5vk0wZAK9MZp11mdLuzUSeKk0qN3hPQ=")
#: The one that is tried where ``OPENPEROUTER_KUBERNETES`` is ``newest``, as "make test" has it; else both.
RELEASES: Final = (NEWEST,) if os.environ.get("OPENPEROUTER_KUBERNETES") == "newest" else (NEWEST, OLDEST)


class Buildable(Protocol):
    """One program of one version."""

    @property
    def name(self) -> str:
        """The name of its file."""

    @property
    def version(self) -> str:
        """The name of its folder in the cache."""

    def build(self, go: Go, directory: Path) -> None:
        """Leave the program in a directory, under its name. Raises :class:`ClusterError`."""


def built(program: Buildable) -> Path | None:
    """Return the program where it was built already."""
    path = cache_dir() / program.name / program.version / program.name
    return path if path.exists() else None


@dataclass(frozen=True, slots=True)
class Program:
    """One program of one version: a folder of Kubernetes' ``cmd``."""

    name: str
    release: Release

    @property
    def version(self) -> str:
        """Return Kubernetes' version."""
        return self.release.version

    def build(self, go: Go, directory: Path) -> None:
        """Build it in a module that has the same versions of everything as Kubernetes' own."""
        release = self.release
        say(f"building {self.name} {release.version} (once; up to four minutes on two idle cores)")
        work = work_module(go, release, directory)
        output = directory / self.name
        flags = [f"-X k8s.io/component-base/version.gitVersion=v{release.version}"]
        compile_program(go, f"{_MODULE}/cmd/{self.name}", flags, work, output)
        shutil.rmtree(work)
        check([str(output), "--version"], f"Kubernetes v{release.version}")
        say(f"built {self.name} {release.version}")


def api_server(release: Release) -> Program:
    """Return the API server of a version."""
    return Program("kube-apiserver", release)


#: The garbage collector is in it.
CONTROLLERS: Final = Program("kube-controller-manager", NEWEST)
PROGRAMS: Final = (api_server(NEWEST), CONTROLLERS, *map(api_server, RELEASES[1:]))


def ensure(programs: Sequence[Buildable]) -> list[Path]:
    """Return where they are, building what is missing. Raises :class:`ClusterError`, or NoGoError without a compiler.

    Go's own caches, some three gigabytes, are kept until all is built, so that an interrupted build continues where it
    was and the programs share what they have in common; then they go, because nothing needs them again.
    """
    paths = [path for program in programs if (path := built(program))]
    if len(paths) == len(programs):
        return paths
    find_go()
    with locked(_LOCK):
        scratch = cache_dir() / _SCRATCH / "go"
        go = prepare(scratch)
        paths = [_ensure_one(go, program) for program in programs]
        shutil.rmtree(scratch, ignore_errors=True)
    return paths


def _ensure_one(go: Go, program: Buildable) -> Path:
    return build_once(program.name, program.version, lambda directory: program.build(go, directory)) / program.name


def work_module(go: Go, release: Release, directory: Path) -> Path:
    """Return a directory below this one with a module in which Kubernetes' programs can be built."""
    source = fetch(go, f"{_MODULE}@v{release.version}", release.checksum, directory)
    work = directory / "module"
    work.mkdir()
    (work / "go.mod").write_text(module_file((source / "go.mod").read_text(), release.version))
    shutil.copyfile(source / "go.sum", work / "go.sum")
    return work


def compile_program(go: Go, package: str, flags: Sequence[str], work: Path, output: Path) -> None:
    """Compile and link a package of a module that ``work`` requires; ``flags`` are the linker's."""
    # No debugging data, which are left out in the end anyway. And no -trimpath: with it, a package that is replaced by
    # another version is compiled once more for each module that requires it in a version of its own.
    options = ["-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags", " ".join(["-s", "-w", *flags])]
    go.run("build", *options, "-o", str(output), package, directory=work, seconds=_BUILD_SECONDS)


def fetch(go: Go, module: str, checksum: str, directory: Path) -> Path:
    """Return the directory of a module, such as ``host/path@v1.2.3``, checked. Raises :class:`ClusterError`."""
    answer = go.download(module, directory, _FETCH_SECONDS)
    if answer["Sum"] != checksum:
        raise ClusterError(f"{module} has the checksum {answer['Sum']}, and not {checksum}")
    return Path(answer["Dir"])


def module_file(upstream: str, version: str) -> str:
    """Return the go.mod of a module that builds Kubernetes' programs, made of Kubernetes' own.

    Staging modules have the version v0.Y.Z where Kubernetes has v1.Y.Z.
    """
    staging = f"v0.{version.partition('.')[2]}"
    text, count = _STAGING.subn(rf"\1 => k8s.io/\2 {staging}", upstream)
    if count < 20:
        raise ClusterError(
            f"Kubernetes {version}: only {count} staging modules in its go.mod; has it changed its form?"
        )
    text = re.sub(r"^module \S+$", "module build", text, count=1, flags=re.MULTILINE)
    return f"{text}\nrequire {_MODULE} v{version}\n"


def pinned(module: str) -> str:
    """Return a go.mod with lines added that keep each module that it requires at the version that it requires."""
    lines = "".join(f"replace {path} => {path} {version}\n" for path, version in _REQUIRED.findall(module))
    return f"{module}{lines}"


def check(asked: Sequence[str], version: str) -> None:
    """Raise :class:`ClusterError` unless the program runs here and prints that version."""
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False, env={"PATH": os.defpath})
    if done.stdout.strip() != version:
        raise ClusterError(f"{asked[0]} says: {done.stdout.strip()[:200]} {done.stderr.strip()[:500]}")
