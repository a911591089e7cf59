"""The Go compiler of this machine.

From 1.21 on Go fetches the newer Go that a module asks for by itself. An older one can fetch it, since it is a module,
but needs the address, and does not know that the files in it are programs. Where modules come from is the machine's
business (``go env GOPROXY``): nothing here names a place.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from guestvm.progress import say

from .errors import ClusterError, NoGoError

#: The first version that fetches others by itself, and the first that checks what it fetches.
SUFFICIENT: Final = (1, 21)
OLDEST: Final = (1, 13)
#: What an older one fetches: no older than what Kubernetes' go.mod asks for.
TOOLCHAIN: Final = "1.26.0"
#: Where Go's own archive is unpacked to by its instructions: not always in PATH.
_ARCHIVE: Final = Path("/usr/local/go/bin/go")
_PACKAGE: Final = "golang-go"
_QUICK_SECONDS: Final = 60
_FETCH_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class Go:
    """One compiler, and what its environment has to say."""

    program: Path
    environment: Mapping[str, str]

    def run(self, *arguments: str, directory: Path, seconds: float) -> str:
        """Run it and return what it prints. Raises :class:`ClusterError` with the end of what it says."""
        try:
            done = subprocess.run(
                [str(self.program), *arguments],
                cwd=directory,
                env={**os.environ, **self.environment},
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"go {arguments[0]}: not done within {seconds:g} s") from error
        if done.returncode != 0:
            said = (done.stderr or done.stdout)[-3000:]
            raise ClusterError(f"go {' '.join(arguments[:3])}: exit {done.returncode}\n{said}")
        return done.stdout

    def download(self, module: str, directory: Path, seconds: float) -> dict[str, str]:
        """Fetch a module, such as ``host/path@v1.2.3``; return what Go says of it (``Dir``, ``Sum``)."""
        answer = json.loads(self.run("mod", "download", "-json", module, directory=directory, seconds=seconds))
        return dict(answer)


def find_go() -> Path:
    """Return a compiler that will do. Raises :class:`NoGoError` saying what was looked at."""
    seen = []
    for program in _candidates():
        version = _version(program)
        if version is not None and version >= OLDEST:
            return program
        seen.append(f"{program} ({_text(version)})")
    raise NoGoError(
        f"no Go {_text(OLDEST)} or newer: looked for `go` in PATH and for {_ARCHIVE}, "
        f"found {', '.join(seen) or 'neither'}; Debian's {_PACKAGE} here is {_text(packaged_version())}"
    )


def prepare(scratch: Path) -> Go:
    """Return a compiler that fetches what it needs, with all that it keeps below ``scratch``."""
    scratch.mkdir(parents=True, exist_ok=True)
    go = Go(find_go(), _environment(scratch))
    version = _version(go.program)
    if version is not None and version >= SUFFICIENT:
        return go
    say(f"Go here is {_text(version)}: fetching {TOOLCHAIN}")
    return _newer(go, scratch)


def packages() -> list[str]:
    """Return the Debian packages that would bring a compiler that will do: none where one is there, or none can."""
    try:
        find_go()
    except NoGoError:
        version = packaged_version()
        return [_PACKAGE] if version is not None and version >= OLDEST else []
    return []


@cache
def packaged_version() -> tuple[int, int] | None:
    """Return the version of Debian's package that apt would install, None for none."""
    if shutil.which("apt-cache") is None:
        return None
    asked = ["apt-cache", "policy", _PACKAGE]
    output = subprocess.run(asked, capture_output=True, text=True, timeout=_QUICK_SECONDS, check=False).stdout
    found = re.search(r"Candidate: (?:\d+:)?(\d+)\.(\d+)", output)
    return (int(found[1]), int(found[2])) if found else None


def _newer(go: Go, scratch: Path) -> Go:
    """Let an old compiler fetch a newer one."""
    platform = go.run("env", "GOOS", "GOARCH", directory=scratch, seconds=_QUICK_SECONDS).split()
    module = f"golang.org/toolchain@v0.0.1-go{TOOLCHAIN}.{'-'.join(platform)}"
    root = Path(go.download(module, scratch, _FETCH_SECONDS)["Dir"])
    for program in [*(root / "bin").iterdir(), *(root / "pkg" / "tool").rglob("*")]:
        program.chmod(0o755)
    return Go(root / "bin" / "go", {**go.environment, "GOROOT": str(root)})


def _environment(scratch: Path) -> dict[str, str]:
    return {
        "GOTOOLCHAIN": "auto",
        "CGO_ENABLED": "0",
        # Writable, so that the module cache can be deleted like anything else.
        "GOFLAGS": "-mod=mod -modcacherw",
        "GO111MODULE": "on",
        "GOWORK": "off",
        "GOPATH": str(scratch / "path"),
        "GOMODCACHE": str(scratch / "modules"),
        "GOCACHE": str(scratch / "objects"),
        # A compiler lives for seconds: there is memory enough for most of its garbage.
        "GOGC": "400",
        "GOMEMLIMIT": "1GiB",
    }


def _candidates() -> Iterator[Path]:
    in_path = shutil.which("go")
    if in_path is not None:
        yield Path(in_path)
    if _ARCHIVE.exists():
        yield _ARCHIVE


def _version(program: Path) -> tuple[int, int] | None:
    """Return what a program says of itself: the one installed, not one that it would fetch."""
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    asked = [str(program), "version"]
    try:
        output = subprocess.run(
            asked, capture_output=True, text=True, timeout=_QUICK_SECONDS, check=False, env=environment, cwd="/"
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\bgo(\d+)\.(\d+)", output)
    return (int(found[1]), int(found[2])) if found else None


def _text(version: tuple[int, int] | None) -> str:
    return "none" if version is None else ".".join(map(str, version))
