"""Builds Kubernetes' programs from Go modules, each once per version, into the cache.

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
from typing import Final

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


@dataclass(frozen=True, slots=True)
class Program:
    """One program of one version: a folder of Kubernetes' ``cmd``."""

    name: str
    release: Release

    def built(self) -> Path | None:
        """Return the program where it was built already."""
        program = cache_dir() / self.name / self.release.version / self.name
        return program if program.exists() else None


def api_server(release: Release) -> Program:
    """Return the API server of a version."""
    return Program("kube-apiserver", release)


#: The garbage collector is in it.
CONTROLLERS: Final = Program("kube-controller-manager", NEWEST)
PROGRAMS: Final = (api_server(NEWEST), CONTROLLERS, *map(api_server, RELEASES[1:]))


def ensure(programs: Sequence[Program] = PROGRAMS) -> list[Path]:
    """Return where they are, building what is missing. Raises :class:`ClusterError`, or NoGoError without a compiler.

    Go's own caches, some three gigabytes, are kept until all is built, so that an interrupted build continues where it
    was and the programs share what they have in common; then they go, because nothing needs them again.
    """
    paths = [path for program in programs if (path := program.built())]
    if len(paths) == len(programs):
        return paths
    find_go()
    with locked(_LOCK):
        scratch = cache_dir() / _SCRATCH / "go"
        go = prepare(scratch)
        paths = [_ensure_one(go, program) for program in programs]
        shutil.rmtree(scratch, ignore_errors=True)
    return paths


def _ensure_one(go: Go, program: Program) -> Path:
    version = program.release.version
    return build_once(program.name, version, lambda directory: _build(go, program, directory)) / program.name


def _build(go: Go, program: Program, directory: Path) -> None:
    release = program.release
    say(f"fetching Kubernetes {release.version}'s Go modules")
    source = _fetch(go, release, directory)
    work = directory / "module"
    work.mkdir()
    (work / "go.mod").write_text(module_file((source / "go.mod").read_text(), release.version))
    shutil.copyfile(source / "go.sum", work / "go.sum")
    say(f"building {program.name} {release.version} (once; up to four minutes on two idle cores)")
    flags = f"-s -w -X k8s.io/component-base/version.gitVersion=v{release.version}"
    output = directory / program.name
    # -trimpath: the program says nothing about this machine. No debugging data, which are left out in the end anyway.
    options = ["-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags", flags, "-o", str(output)]
    options.append(f"{_MODULE}/cmd/{program.name}")
    go.run("build", *options, directory=work, seconds=_BUILD_SECONDS)
    shutil.rmtree(work)
    _check(output, release)
    say(f"built {program.name} {release.version}")


def _fetch(go: Go, release: Release, directory: Path) -> Path:
    """Return the directory of Kubernetes' module, checked."""
    wanted = f"{_MODULE}@v{release.version}"
    answer = go.download(wanted, directory, _FETCH_SECONDS)
    if answer["Sum"] != release.checksum:
        raise ClusterError(f"{wanted} has the checksum {answer['Sum']}, and not {release.checksum}")
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


def _check(program: Path, release: Release) -> None:
    """Raise unless the program runs here and says what it should be."""
    asked = [str(program), "--version"]
    output = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False, env={"PATH": os.defpath})
    if output.stdout.strip() != f"Kubernetes v{release.version}":
        raise ClusterError(f"{program} says: {output.stdout.strip()[:200]} {output.stderr.strip()[:500]}")
