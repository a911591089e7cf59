"""Does the API server keep this node's token away from what is other nodes'? It is asked, by dry runs.

Each is a write that the shipped policies refuse (packaging/kubernetes/node-policy.yaml), with ``dryRun=All``: a server
admits or refuses it, and stores nothing. A server that does not answer, or lacks a definition, proves nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
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

from .findings import Finding, error, ok

#: For all requests together: a server that is unreachable is reported by "openperouter status".
ASKING_SECONDS: Final = 10.0
#: No node: what is written for it is another node's.
OTHER: Final = "openperouter-doctor"
_DRY_RUN: Final = {"dryRun": "All"}
_POLICY: Final = "ValidatingAdmissionPolicy"
_FIX: Final = "kubectl apply -f /usr/share/openperouter/kubernetes/node-policy.yaml (Kubernetes 1.32 or newer)"


@dataclass(frozen=True, slots=True)
class Policies:
    """Whether the server refuses each kind of write; a kind is missing if it did not answer."""

    refused: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))


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
    with trio.move_on_after(ASKING_SECONDS):
        try:
            async with KubeClient(loaded.credentials) as client:
                for what, request in _writes(client, settings).items():
                    answer = await _is_refused(request)
                    if answer is not None:
                        refused[what] = answer
        except ApiError:
            return Policies(refused)
    return Policies(refused)


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
    """Is this node's token good for this node only?"""
    accepted = sorted(what for what, refused in policies.refused.items() if not refused)
    if accepted:
        message = f"the API server accepts from this node's token what is other nodes': {', '.join(accepted)}"
        yield error("policies", message, _FIX)
    elif policies.refused:
        yield ok("policies", f"the API server refuses what is other nodes': {', '.join(sorted(policies.refused))}")


CHECKS = (isolated,)
