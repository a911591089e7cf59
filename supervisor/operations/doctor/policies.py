"""Does the API server refuse this node's token writes to other nodes' objects, and what no node needs? It is asked.

Dry runs ask about writes that the shipped policies refuse (packaging/kubernetes/node-policy.yaml), with ``dryRun=All``:
a server admits or refuses it, and stores nothing. Access reviews ask about rights that the shipped roles do not give. A
server that does not answer, or lacks a definition, proves nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.credentials import LoadingError, Trust, kubeconfig_path, load
from actors.lib.kube.errors import ApiError, ForbiddenError, InvalidError
from config.api import API_VERSION, NODE_STATUS_KIND, NODE_STATUS_PLURAL
from config.settings import Settings
from supervisor.operations.node_configuration import node_name

from .findings import Finding, error, ok, warning

#: Deadline of all requests together: a server that is unreachable is reported by "openperouter status".
ASKING_SECONDS: Final = 10.0
#: A name that no node has: objects with it belong to another node.
OTHER: Final = "openperouter-doctor"
_DRY_RUN: Final = {"dryRun": "All"}
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
#: What a node's token must not permit, the widest first: it would let a compromised node act beyond itself.
_TOO_WIDE: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "do everything": {"verb": "*", "group": "*", "resource": "*"},
        "read all Secrets of the cluster": {"verb": "list", "resource": "secrets"},
        "read all Secrets of {namespace}": {"verb": "list", "resource": "secrets", "namespace": "{namespace}"},
        "create Pods": {"verb": "create", "resource": "pods"},
        "create tokens": {"verb": "create", "resource": "serviceaccounts", "subresource": "token"},
        "impersonate users": {"verb": "impersonate", "resource": "users"},
        "grant roles": {"verb": "create", "group": "rbac.authorization.k8s.io", "resource": "clusterrolebindings"},
        "change admission policies": {
            "verb": "delete",
            "group": "admissionregistration.k8s.io",
            "resource": "validatingadmissionpolicybindings",
        },
    }
)
_POLICY: Final = "ValidatingAdmissionPolicy"
_FIX: Final = "kubectl apply -f /usr/share/openperouter/kubernetes/node-policy.yaml (Kubernetes 1.32 or newer)"


@dataclass(frozen=True, slots=True)
class Policies:
    """Whether the server refuses each kind of write; a kind is missing if it did not answer.

    ``wide``: what the token may do that no node needs.
    """

    refused: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    wide: tuple[str, ...] = ()


async def read_policies(settings: Settings) -> Policies:
    """Ask the server. Runs no program, so with credentials that a program gives it asks nothing."""
    try:
        loaded = await load(kubeconfig_path(settings), trust=Trust.of(settings), programs=False)
    except LoadingError:
        return Policies()
    if loaded.program:
        return Policies()
    loaded = await load(kubeconfig_path(settings), trust=Trust.of(settings))
    refused: dict[str, bool] = {}
    wide: list[str] = []
    with trio.move_on_after(ASKING_SECONDS):
        try:
            async with KubeClient(loaded.credentials) as client:
                for what, request in _writes(client, settings).items():
                    answer = await _is_refused(request)
                    if answer is not None:
                        refused[what] = answer
                async for right in _wide(client, settings.namespace):
                    wide.append(right)
        except ApiError:
            return Policies(refused, tuple(wide))
    return Policies(refused, tuple(wide))


async def _wide(client: KubeClient, namespace: str) -> AsyncIterator[str]:
    """Yield excessive rights of the token; nothing more after one that includes all others."""
    for what, right in _TOO_WIDE.items():
        attributes = {key: value.format(namespace=namespace) for key, value in right.items()}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = await client.create(_REVIEWS, {**review, "spec": {"resourceAttributes": attributes}})
        status = answer.get("status")
        if isinstance(status, dict) and status.get("allowed") is True:
            yield what.format(namespace=namespace)
            if right["verb"] == "*":
                return


def _writes(client: KubeClient, settings: Settings) -> dict[str, Callable[[], Awaitable[object]]]:
    head = {"name": OTHER, "namespace": settings.namespace}
    ours = f"/apis/{API_VERSION}/namespaces/{settings.namespace}"
    status = {"apiVersion": API_VERSION, "kind": NODE_STATUS_KIND, "metadata": head}
    l3vni = {"apiVersion": API_VERSION, "kind": "L3VNI", "metadata": head, "spec": {"vrf": "doctor", "vni": 1}}
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": OTHER, "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "openperouter",
        "reportingInstance": OTHER,
        "action": "Configure",
        "type": "Normal",
        "reason": "Doctor",
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": OTHER},
    }
    label = {"metadata": {"labels": {"openperouter.github.io/doctor": "asks"}}}
    node = f"/api/v1/nodes/{node_name(settings)}"
    return {
        "status objects": lambda: client.create(f"{ours}/{NODE_STATUS_PLURAL}", status, _DRY_RUN),
        "networks": lambda: client.create(f"{ours}/l3vnis", l3vni, _DRY_RUN),
        "Events": lambda: client.create("/apis/events.k8s.io/v1/namespaces/default/events", event, _DRY_RUN),
        "Nodes": lambda: client.try_merge_patch(node, label),
    }


async def _is_refused(request: Callable[[], Awaitable[object]]) -> bool | None:
    """Whether a write is refused, None if the answer does not show it."""
    try:
        await request()
    except ForbiddenError:
        return True
    except InvalidError as refusal:
        return True if _POLICY in str(refusal) else None
    except ApiError:
        return None
    return False


def isolated(policies: Policies) -> Iterator[Finding]:
    """Does this node's token permit writes for this node only?"""
    accepted = sorted(what for what, refused in policies.refused.items() if not refused)
    if accepted:
        message = f"the API server accepts writes to other nodes' objects with this node's token: {', '.join(accepted)}"
        yield error("policies", message, _FIX)
    elif policies.refused:
        yield ok(
            "policies", f"the API server refuses writes to other nodes' objects: {', '.join(sorted(policies.refused))}"
        )


def narrow(policies: Policies) -> Iterator[Finding]:
    """Does the token permit only what a node needs?"""
    if policies.wide:
        message = f"this node's token permits what no node needs: {', '.join(policies.wide)}"
        fix = "use a token of the ServiceAccount controller, with the roles of /usr/share/openperouter/kubernetes only"
        yield warning("policies", message, fix)


CHECKS = (isolated, narrow)
