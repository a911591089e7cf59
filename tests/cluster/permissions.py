"""The RBAC rules that are shipped, taken apart: one permission is one verb on one resource, granted by one role."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio
import yaml

from actors.lib.kube.client import KubeClient
from tests.cluster.harness import MANAGER, PATIENCE, ROOT, Json

MANIFESTS: Final = ROOT / "packaging" / "kubernetes"
RBAC: Final = MANIFESTS / "rbac.yaml"
NAMESPACE: Final = "openperouter-system"
ACCOUNT: Final = "controller"
USER: Final = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
_GROUPS: Final = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
_API: Final = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_COLLECTIONS: Final = {
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "Namespace": "/api/v1/namespaces",
    "Secret": "/api/v1/namespaces/{namespace}/secrets",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": f"{_API}/clusterroles",
    "ClusterRoleBinding": f"{_API}/clusterrolebindings",
    "Role": f"{_API}/namespaces/{{namespace}}/roles",
    "RoleBinding": f"{_API}/namespaces/{{namespace}}/rolebindings",
    "ValidatingAdmissionPolicy": f"{_ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_ADMISSION}/validatingadmissionpolicybindings",
    "ValidatingWebhookConfiguration": f"{_ADMISSION}/validatingwebhookconfigurations",
}


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """``namespace`` is empty for one that holds in all of them; ``resource`` includes the subresource.

    ``name`` is the only object for which it holds; empty: it holds for all.
    """

    namespace: str
    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        where = f"in {self.namespace}" if self.namespace else "everywhere"
        return f"{self.verb} {self.resource} {where}"


def documents(path: Path = RBAC) -> list[Json]:
    """Return a manifest's objects."""
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def roles(objects: Iterable[Json]) -> Iterator[Json]:
    """Yield the roles among objects."""
    return (one for one in objects if one["kind"] in ("ClusterRole", "Role"))


def permissions(role: Json) -> Iterator[Permission]:
    """Take a role apart."""
    namespace = role["metadata"].get("namespace", "")
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    yield from (Permission(namespace, group, resource, verb, name) for verb in rule["verbs"])


SHIPPED: Final = tuple(sorted(one for role in roles(documents()) for one in permissions(role)))


async def install(client: KubeClient, without: Sequence[Permission] = ()) -> None:
    """Install what is shipped, but for some permissions, and wait until that is in force."""
    for path in sorted(MANIFESTS.glob("*.yaml")):
        for one in documents(path):
            await client.apply(path_of(one), _reduced(one, without), manager=MANAGER)
    with trio.fail_after(PATIENCE):
        for permission in without or SHIPPED:
            while await allowed(client, permission) == (permission in without):  # noqa: ASYNC110
                await trio.sleep(0.02)


async def allowed(client: KubeClient, permission: Permission, namespace: str = "anywhere") -> bool:
    """Return whether the server allows the shipped ServiceAccount something; ``namespace`` is any other one."""
    resource, _, subresource = permission.resource.partition("/")
    attributes = {
        "verb": permission.verb,
        "group": permission.group,
        "resource": resource,
        "subresource": subresource,
        "name": permission.name,
        "namespace": permission.namespace or ("" if resource == "nodes" else namespace),
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": USER, "groups": list(_GROUPS), "resourceAttributes": attributes},
    }
    answer = await client.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def path_of(one: Json) -> str:
    metadata = one["metadata"]
    return f"{_COLLECTIONS[one['kind']].format(namespace=metadata.get('namespace', ''))}/{metadata['name']}"


def _reduced(one: Json, without: Sequence[Permission]) -> Json:
    """Return an object; of a role without some permissions, one rule for each that is left."""
    if not without or one["kind"] not in ("ClusterRole", "Role"):
        return one
    left = (permission for permission in permissions(one) if permission not in without)
    return {**one, "rules": [_rule(each) for each in left]}


def _rule(permission: Permission) -> Json:
    rule = {"apiGroups": [permission.group], "resources": [permission.resource], "verbs": [permission.verb]}
    return {**rule, "resourceNames": [permission.name]} if permission.name else rule
