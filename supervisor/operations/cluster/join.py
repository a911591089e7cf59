"""Joining a cluster without the hostbridge: an administrator provides a token or a kubeconfig.

    token, server, authority ──┐
    kubeconfig ────────────────┴─> ApiCredentials ─> what the server permits ─> kubeconfig of the daemon

Credentials that do not work are not stored, except on request; the stored kubeconfig refers to no other file.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.credentials import LoadingError, Trust, load
from actors.lib.kube.errors import ApiError, CredentialsError, ForbiddenError, NotFoundError
from actors.lib.kube.expiry import token_expiry, token_node
from config.api import API_VERSION, NODE_STATUS_PLURAL, PLURALS, ApiCredentials
from config.desired import Secret
from supervisor.operations.exit_codes import CONFIG, NO_INPUT, UNAVAILABLE, CommandError

#: For all requests together.
ASKING_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Permissions:
    """What the server permits: ``faults`` prevent joining, ``warnings`` limit it, ``notes`` are in order."""

    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def from_token(token: str, server: str, authority: Path) -> ApiCredentials:
    """Return the credentials of a token. Raises :class:`CommandError`, which never quotes the token."""
    token = token.strip()
    if token.count(".") != 2 or not token.isascii() or any(character.isspace() for character in token):
        raise CommandError("this is not a ServiceAccount's token: kubectl create token prints one, on one line", CONFIG)
    try:
        certificates = authority.read_text()
        ssl.create_default_context(cadata=certificates)
    except FileNotFoundError:
        raise CommandError(f"{authority}: no such file", NO_INPUT) from None
    except (ssl.SSLError, ValueError):
        raise CommandError(f"{authority}: not a certificate (PEM)", CONFIG) from None
    return ApiCredentials(server, str(authority), certificates, Secret(token), expires_at=token_expiry(token))


async def from_kubeconfig(path: Path) -> ApiCredentials:
    """Return the credentials of a kubeconfig, with what its files hold. Raises :class:`CommandError`.

    It may refer to files anywhere, which the administrator can read anyway. It may not name a program, whose
    credentials change: that belongs in the setting ``kubeconfig``.
    """
    try:
        loaded = await load(path, trust=Trust(elsewhere=True), programs=False)
        if loaded.program:
            text = "it names a program that gives credentials: use the settings kubeconfig and kubeconfigPrograms"
            raise CommandError(f"{path}: {text}", CONFIG)
        return (await load(path, trust=Trust(elsewhere=True))).credentials
    except LoadingError as error:
        raise CommandError(str(error), CONFIG) from None


async def examine(
    credentials: ApiCredentials,
    node: str,
    namespace: str,
    open_client: Callable[[ApiCredentials], KubeClient] = KubeClient,
) -> Permissions:
    """Ask the server what the credentials permit; ``node`` is this node's name."""
    faults: list[str] = []
    notes: list[str] = []
    warnings = _about_token(credentials, node, namespace)
    try:
        with trio.fail_after(ASKING_SECONDS):
            async with open_client(credentials) as client:
                for what, path in _reads(node, namespace).items():
                    problem = await _problem(client, path)
                    (faults if problem else notes).append(f"{what}: {problem}" if problem else f"can read {what}")
    except CredentialsError:
        return Permissions((f"{credentials.server} does not accept the credentials: a token may have expired",))
    except ApiError as error:
        return Permissions((str(error),))
    except trio.TooSlowError:
        return Permissions((f"{credentials.server}: no answer within {ASKING_SECONDS:g} s",))
    return Permissions(tuple(faults), tuple(warnings), tuple(notes))


def _about_token(credentials: ApiCredentials, node: str, namespace: str) -> list[str]:
    bound = token_node(credentials.token.reveal()) if credentials.token else None
    fix = f"kubectl create token controller -n {namespace} --bound-object-kind Node --bound-object-name {node}"
    if bound == "":
        return [f"the token is bound to no node, so the admission policies refuse all its writes: {fix}"]
    if bound not in (None, node):
        return [f"the token is bound to the node {bound}, and this one is {node}: {fix}"]
    return []


def _reads(node: str, namespace: str) -> dict[str, str]:
    """Return the paths that a node reads, by what users call them."""
    kinds = {plural: f"/apis/{API_VERSION}/{plural}" for plural in PLURALS.values()}
    status = f"/apis/{API_VERSION}/namespaces/{namespace}/{NODE_STATUS_PLURAL}"
    return {"this Node": f"/api/v1/nodes?fieldSelector={node}", **kinds, NODE_STATUS_PLURAL: status}


async def _problem(client: KubeClient, path: str) -> str:
    """Return why a collection cannot be read, "" if it can."""
    path, _, name = path.partition("?fieldSelector=")
    try:
        page = await client.get(path, {"limit": 1, **({"fieldSelector": f"metadata.name={name}"} if name else {})})
    except ForbiddenError:
        return "not allowed: apply /usr/share/openperouter/kubernetes, or use a token of its ServiceAccount controller"
    except NotFoundError:
        return "the definition is not installed: kubectl apply -f /usr/share/openperouter/kubernetes"
    return (
        f"the cluster has no Node {name}: is the name in node-config.yaml right?" if name and not page["items"] else ""
    )


def refuse(permissions: Permissions) -> None:
    """Raise :class:`CommandError` if the credentials cannot be used."""
    if permissions.faults:
        raise CommandError("not stored: " + "; ".join(permissions.faults), UNAVAILABLE)
