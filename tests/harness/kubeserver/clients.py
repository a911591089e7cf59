"""helm and kustomize, built from their Go modules, each once per version, into the cache.

They are built in the module of Kubernetes' own programs, with its versions of what both need, so that most of what is
compiled is shared. A module's checksum is pinned here; Go's checksum database vouches for what only helm and kustomize
need. Both get their version as a flag, and helm that of Kubernetes for where it has no server to ask.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from guestvm.progress import say

from . import build
from .build import NEWEST
from .golang import Go


@dataclass(frozen=True, slots=True)
class Client:
    """One program: its module, version and checksum, its package there, and what prints its version."""

    name: str
    module: str
    version: str
    checksum: str
    package: str
    variables: tuple[str, ...]
    asked: tuple[str, ...]

    def build(self, go: Go, directory: Path) -> None:
        """Build it beside Kubernetes' own programs."""
        say(f"building {self.name} {self.version} (once; up to two minutes on two idle cores)")
        build.fetch(go, f"{self.module}@{self.version}", self.checksum, directory)
        work = build.work_module(go, NEWEST, directory)
        module = work / "go.mod"
        module.write_text(f"{build.pinned(module.read_text())}require {self.module} {self.version}\n")
        output = directory / self.name
        flags = [f"-X {variable}" for variable in self.variables]
        build.compile_program(go, self.package, flags, work, output)
        shutil.rmtree(work)
        build.check([str(output), *self.asked], self.version)


_HELM: Final = "helm.sh/helm/v3"
_MAJOR, _, _MINOR = NEWEST.minor.partition(".")
HELM: Final = Client(
    "helm",
    _HELM,
    "v3.22.0",
    "h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU=",
    f"{_HELM}/cmd/helm",
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
    "sigs.k8s.io/kustomize/kustomize/v5",
    ("sigs.k8s.io/kustomize/api/provenance.version=v5.8.1",),
    ("version",),
)
CLIENTS: Final = (HELM, KUSTOMIZE)


def ensure() -> list[Path]:
    """Return where they are, building what is missing. Raises :class:`ClusterError`, without a compiler NoGoError."""
    return build.ensure(CLIENTS)
