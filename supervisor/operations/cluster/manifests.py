"""What the cluster needs, as files of this program: manifests, the helm chart, kustomizations.

    crds/  kubernetes/  monitoring/  ──> manifests (one YAML stream)
      + chart/  kustomize/           ──> a directory with all of them, for helm and kustomize

They are beside the program's packages: in ``/usr/share/openperouter``, in the wheel, and in ``packaging/`` of a
checkout. The definitions are the exception: they are generated from the models.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from config.crd.definitions import DEFINITIONS
from supervisor.operations.documents import to_yaml
from supervisor.operations.exit_codes import UNAVAILABLE, USAGE, CommandError

from .hostbridge import NODE_LOCAL, SERVICE, address

#: Directories that refer to one another, so they are looked up and copied together.
DIRECTORIES: Final = ("crds", "kubernetes", "monitoring", "kustomize", "chart")
#: The parts of :func:`manifests` in the order in which they have to be applied, and those printed by default.
PARTS: Final = ("crds", "nodes", "hostbridge", "router", "controller", "webhook", "metrics", "network", "monitoring")
DEFAULT_PARTS: Final = ("crds", "nodes", "hostbridge")
_KUSTOMIZATIONS: Final = {
    "nodes": "kubernetes/Kustomization",
    "hostbridge": "kubernetes/hostbridge/kustomization.yaml",
    "router": "kubernetes/router/kustomization.yaml",
    "controller": "kubernetes/controller/kustomization.yaml",
    "webhook": "kubernetes/webhook/kustomization.yaml",
    "metrics": "kubernetes/metrics/kustomization.yaml",
    "network": "kubernetes/network/kustomization.yaml",
    "monitoring": "monitoring/Kustomization",
}
#: The router's has another one, and is printed by itself.
_IMAGE_LINE: Final = re.compile(r"^( +image:) openperouter(?:-router)?$", re.MULTILINE)
_IMAGE: Final = re.compile(r"[^\s:@]+(:\d+/[^\s:@]+)?(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?", re.ASCII)


def crds() -> str:
    """Return all custom resource definitions."""
    return "".join(definition.to_yaml() for definition in DEFINITIONS)


def helm_values() -> str:
    """Return the chart's default values, with comments."""
    return (_base() / "chart/values.yaml").read_text()


def manifests(parts: Sequence[str] = DEFAULT_PARTS, image: str = "", api_server: str = SERVICE) -> str:
    """Return some of :data:`PARTS`, in their order. Raises :class:`CommandError`, also for a malformed argument.

    ``image`` is that of all pods, with a tag or a digest; ``api_server`` is where the host reaches the API server, as
    the hostbridge takes it.
    """
    _check(image, api_server)
    text = "---\n".join(_part(name) for name in PARTS if name in parts)
    if image:
        text = _IMAGE_LINE.sub(rf"\1 {image}", text)
    return text.replace("- --api-server=service\n", f"- --api-server={api_server}\n")


def _check(image: str, api_server: str) -> None:
    if image and not _IMAGE.fullmatch(image):
        raise CommandError(f"--image: {image}: must be NAME[:TAG][@sha256:DIGEST]", USAGE)
    if api_server != SERVICE:
        address(api_server, {})
    if re.search(r"\s|#", api_server):
        raise CommandError(f"--api-server: must be {SERVICE}, {NODE_LOCAL}[:PORT] or https://HOST[:PORT]", USAGE)


def _part(name: str) -> str:
    if name == "crds":
        return crds()
    base = _base()
    kustomization = base / _KUSTOMIZATIONS[name]
    names: list[str] = yaml.safe_load(kustomization.read_text())["resources"]
    texts = [(kustomization.parent / each).read_text() for each in names]
    if name == "monitoring":
        texts.append(to_yaml(_dashboard(base)))
    return "---\n".join(texts)


def _dashboard(base: Path) -> Mapping[str, object]:
    """Return the ConfigMap that the kustomization of ``monitoring`` generates from the dashboard."""
    [generator] = yaml.safe_load((base / "monitoring/Kustomization").read_text())["configMapGenerator"]
    metadata = {
        "name": generator["name"],
        "namespace": generator["namespace"],
        "labels": generator["options"]["labels"],
    }
    files = dict(each.split("=") for each in generator["files"])
    data = {key: (base / "monitoring" / file).read_text() for key, file in files.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def write(directory: Path) -> None:
    """Write the chart and the kustomizations, with all that they need, below an empty or new directory."""
    base = _base()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise CommandError(f"{directory} exists and is not an empty directory", USAGE)
    for name in DIRECTORIES:
        # Links become files: the result has to work wherever it is copied to.
        shutil.copytree(base / name, directory / name, ignore=shutil.ignore_patterns("*.py", "__pycache__"))


def _base() -> Path:
    """Return the directory of :data:`DIRECTORIES`."""
    root = Path(__file__).resolve().parents[3]
    for base in (root, root / "packaging"):
        if all((base / name).is_dir() for name in DIRECTORIES):
            return base
    raise CommandError(f"the manifests are not installed beside {root / 'supervisor'}", UNAVAILABLE)
