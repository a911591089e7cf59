"""helm and kustomize, built from their Go modules, each once per version, into the cache.

A module's checksum is pinned here, and its own go.sum pins what it needs. Both are built without a checkout, so they
get their version as a flag, and helm that of Kubernetes for where it has no server to ask.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from guestvm.cache import build_once, cache_dir, locked
from guestvm.progress import say

from .build import NEWEST
from .errors import ClusterError
from .golang import Go, find_go, prepare

_LOCK: Final = "kubernetes-clients-build"
_FETCH_SECONDS: Final = 900
_BUILD_SECONDS: Final = 1800


@dataclass(frozen=True, slots=True)
class Client:
    """One program: its module, version and checksum, its folder there, and what prints its version."""

    name: str
    module: str
    version: str
    checksum: str
    folder: str
    variables: tuple[str, ...]
    asked: tuple[str, ...]

    def built(self) -> Path | None:
        """Return the program where it was built already."""
        program = cache_dir() / self.name / self.version / self.name
        return program if program.exists() else None


_HELM: Final = "helm.sh/helm/v3"
_MAJOR, _, _MINOR = NEWEST.minor.partition(".")
HELM: Final = Client(
    "helm",
    _HELM,
    "v3.22.0",
    "h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU=",
    "./cmd/helm",
    (
        f"{_HELM}/internal/version.version=v3.22.0",
        f"{_HELM}/pkg/chartutil.k8sVersionMajor={_MAJOR}",
        f"{_HELM}/pkg/chartutil.k8sVersionMinor={_MINOR}",
        f"{_HELM}/pkg/lint/rules.k8sVersionMajor={_MAJOR}",
        f"{_HELM}/pkg/lint/rules.k8sVersionMinor={_MINOR}",
    ),
    ("version", "--short"),
)
KUSTOMIZE: Final = Client(
    "kustomize",
    "sigs.k8s.io/kustomize/kustomize/v5",
    "v5.8.1",
    "h1:Pgsg5psubpVEy7Nf6S89PARg5VmmWUC1l9dC6Dl4PG0=",
    ".",
    ("sigs.k8s.io/kustomize/api/provenance.version=v5.8.1",),
    ("version",),
)
CLIENTS: Final = (HELM, KUSTOMIZE)


def ensure() -> list[Path]:
    """Return where they are, building what is missing. Raises :class:`ClusterError`, without a compiler NoGoError."""
    paths = [path for client in CLIENTS if (path := client.built())]
    if len(paths) == len(CLIENTS):
        return paths
    find_go()
    with locked(_LOCK):
        scratch = cache_dir() / "kubernetes-clients" / "go"
        go = prepare(scratch)
        paths = [_ensure_one(go, client) for client in CLIENTS]
        shutil.rmtree(scratch.parent, ignore_errors=True)
    return paths


def _ensure_one(go: Go, client: Client) -> Path:
    return build_once(client.name, client.version, lambda directory: _build(go, client, directory)) / client.name


def _build(go: Go, client: Client, directory: Path) -> None:
    say(f"building {client.name} {client.version} (once; up to two minutes on two idle cores)")
    wanted = f"{client.module}@{client.version}"
    answer = go.download(wanted, directory, _FETCH_SECONDS)
    if answer["Sum"] != client.checksum:
        raise ClusterError(f"{wanted} has the checksum {answer['Sum']}, and not {client.checksum}")
    flags = " ".join(["-s", "-w", *(f"-X {variable}" for variable in client.variables)])
    output = directory / client.name
    options = ["-mod=readonly", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags", flags]
    go.run("build", *options, "-o", str(output), client.folder, directory=Path(answer["Dir"]), seconds=_BUILD_SECONDS)
    asked = [str(output), *client.asked]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False, env={"PATH": os.defpath})
    if done.stdout.strip() != client.version:
        raise ClusterError(f"{output} says: {done.stdout.strip()[:200]} {done.stderr.strip()[:500]}")
