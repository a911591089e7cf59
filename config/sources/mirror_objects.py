"""What the API shows of the resources that come from files: one labelled object for each (reference 8.5).

A mirror is for readers: ``kubectl get`` shows what a node runs, wherever it was written. It has the file's spec as the
model reads it, defaults included, so that it shows what is in force even where the cluster's schema has other defaults.
It contains no secret: passwords are left out, and an annotation names their places. An owner reference to the Node
makes the cluster remove it together with the node.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from pydantic import ValidationError

from config.api import (
    API_VERSION,
    HOSTNAME_LABEL,
    PROOF_ANNOTATION,
    SOURCE_LABEL,
    STATIC_NODE_LABEL,
    STATIC_SOURCE,
    ApiNode,
    ApiObject,
)
from config.models import Model, RawFrrConfig
from config.models.overlays import MAX_RAW_CONFIG
from config.models.passwords import sessions_of
from config.models.types import parse_cidr
from config.problems import Kind, Origin
from config.resources import Resource
from config.syntax.frr_secrets import HIDDEN, redact
from config.syntax.yaml_reader import format_path

from .naming import SPECS, resource_name

#: Where a mirrored resource is written: ``path:line``.
FILE_ANNOTATION: Final = "openperouter.github.io/file"
#: Which parts of the file's resource are secret and therefore not in the mirror: field paths, separated by commas.
WITHHELD_ANNOTATION: Final = "openperouter.github.io/withheld"
#: The annotations of a mirror that are ours, present or not.
ANNOTATIONS: Final = frozenset({PROOF_ANNOTATION, FILE_ANNOTATION, WITHHELD_ANNOTATION})

#: A label's value: 63 characters, letters and digits at both ends (Kubernetes: "Labels and Selectors").
_MAX_LABEL: Final = 63
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_DIGEST: Final = 10
#: The last line of a snippet that is longer with its secrets hidden than an object may hold: a comment to FRR.
_CUT: Final = "! the rest is omitted: the object would become too large"
#: The longest name of an API object (RFC 1123 subdomain).
_MAX_NAME: Final = 253
_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
_POSITION: Final = re.compile(r"(?::[0-9]+)+$")


def mirror_of(
    resource: Resource, node_name: str, node: ApiNode, proof: str, l3vnis: Mapping[str, str] = _NO_NAMES
) -> ApiObject:
    """Return the object that shows a valid resource from a file; it has neither uid nor resource version.

    ``node`` is the Node that owns it and that it selects, ``proof`` its signature, ``l3vnis`` the names
    of the files' L3VNIs, each with that of its mirror.
    """
    withheld = ", ".join(_withheld(resource.spec))
    annotations = {PROOF_ANNOTATION: proof, FILE_ANNOTATION: _place(resource.origin)}
    return ApiObject(
        kind=resource.kind,
        namespace=resource.namespace,
        name=resource.name,
        labels={SOURCE_LABEL: STATIC_SOURCE, STATIC_NODE_LABEL: label_value(node_name)},
        annotations=annotations | ({WITHHELD_ANNOTATION: withheld} if withheld else {}),
        owners=({"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid},),
        spec={"nodeSelector": _selector(node), **_shown(resource, node_name, l3vnis)},
    )


def manifest(mirror: ApiObject) -> dict[str, Any]:
    """Return an object as the API takes it."""
    return {
        "apiVersion": API_VERSION,
        "kind": mirror.kind.value,
        "metadata": {
            "name": mirror.name,
            "namespace": mirror.namespace,
            "labels": dict(mirror.labels),
            "annotations": dict(mirror.annotations),
            "ownerReferences": [dict(owner) for owner in mirror.owners],
        },
        "spec": mirror.spec,
    }


def in_other_form(mirror: ApiObject) -> ApiObject | None:
    """Return a mirror as definitions have it that know ``localCIDRs`` only; None where there are no pools."""
    session = mirror.spec.get("hostSession", {})
    if "localCIDR" not in session:
        return None
    rest = {key: value for key, value in session.items() if key != "localCIDR"}
    listed = {"localCIDRs": [pool for _, pool in sorted(session["localCIDR"].items())]}
    return replace(mirror, spec={**mirror.spec, "hostSession": rest | listed})


def canonical(kind: Kind, spec: Any) -> dict[str, Any] | None:
    """Return a spec with every default spelled out, None for what the model refuses: equal ones mean the same.

    Two passwords look the same here.
    """
    try:
        return _dump(SPECS[kind].model_validate(spec))
    except ValidationError:
        return None


def label_value(text: str) -> str:
    """Return ``text`` as a label's value. One that is not legal is shortened, with a digest that keeps it unique."""
    if len(text) <= _MAX_LABEL and _LABEL_VALUE.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST]
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", text).strip("._-")[: _MAX_LABEL - _DIGEST - 1]
    return f"{plain}-{digest}" if plain else digest


def other_name(name: str, node_name: str) -> str:
    """Return what the mirror is called whose own name is taken: "static-a-b-c" is b-c of node a, and c of node a-b."""
    digest = hashlib.sha256(f"{node_name}\n{name}".encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST]
    return f"{name[: _MAX_NAME - _DIGEST - 1].rstrip('-.')}-{digest}"


def plain_name(name: str, node_name: str) -> str:
    """Return the name of the resource whose mirror has this one, which is the same as a rule."""
    plain = name[: -_DIGEST - 1]
    return plain if plain and other_name(plain, node_name) == name else name


def file_of(mirror: ApiObject) -> str:
    """Return the path of the file in a mirror's annotation; empty when there is none."""
    return _POSITION.sub("", mirror.annotations.get(FILE_ANNOTATION, ""))


def _place(origin: Origin) -> str:
    """Return the file and line. A file's name may hold bytes that are not UTF-8, which JSON cannot carry."""
    return str(Origin(path=origin.path, line=origin.line)).encode("utf-8", "replace").decode("utf-8")


def _selector(node: ApiNode) -> dict[str, Any]:
    # Not the label's own value, which a kubelet may choose: the admission policy has only the Node's name to compare.
    return {"matchLabels": {HOSTNAME_LABEL: node.name}}


def _shown(resource: Resource, node_name: str, l3vnis: Mapping[str, str]) -> dict[str, Any]:
    """Return the spec without secrets and node selector."""
    spec = _dump(resource.spec)
    spec.pop("nodeSelector", None)
    for session in (*spec.get("neighbors", ()), spec.get("hostSession", {})):
        # In the API the name of a password file would mean a Secret.
        session.pop("password", None)
        session.pop("passwordSecret", None)
    if "rawConfig" in spec:
        spec["rawConfig"] = _fitting(redact(spec["rawConfig"]))
    if (domain := spec.get("routingDomain")) and "namespace" not in domain["l3vni"]:
        domain["l3vni"]["name"] = _name_of_l3vni(domain["l3vni"]["name"], node_name, l3vnis)
    return spec


def _name_of_l3vni(name: str, node_name: str, l3vnis: Mapping[str, str]) -> str:
    """Return the object's name for what may be a file's name for it, as :mod:`config.resolve.domains` finds it."""
    return l3vnis.get(resource_name(node_name, name), l3vnis.get(name, name))


def _fitting(text: str) -> str:
    """Return a snippet as an object may hold it: stars can be longer than what they hide, so lines at its end go."""
    if len(text) <= MAX_RAW_CONFIG:
        return text
    kept = text[: MAX_RAW_CONFIG - len(_CUT)]
    return kept[: kept.rfind("\n") + 1] + _CUT


def _withheld(spec: Model) -> Iterator[str]:
    """Yield the places of secrets."""
    for place, session in sessions_of(spec):
        if session.password is not None or session.password_secret is not None:
            yield format_path((*place, "password"))
    if isinstance(spec, RawFrrConfig) and HIDDEN in redact(spec.raw_config):
        yield "rawConfig: what is shown as stars"


def _dump(spec: Model) -> dict[str, Any]:
    """Return the model as JSON data with all defaults but empty lists, which mean the same as none.

    Pools are always in the older form: both mean the same, and :func:`in_other_form` has the newer one.
    """
    data = _without_empty_lists(spec.model_dump(mode="json", by_alias=True, exclude_none=True))
    session = data.get("hostSession", {})
    if "localCIDRs" in session:
        session["localCIDR"] = {f"ipv{parse_cidr(pool).version}": pool for pool in session.pop("localCIDRs")}
    return data


def _without_empty_lists(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _each(value) for key, value in values.items() if value != []}


def _each(value: Any) -> Any:
    if isinstance(value, dict):
        return _without_empty_lists(value)
    return [_each(item) for item in value] if isinstance(value, list) else value
