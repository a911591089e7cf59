"""The hostbridge: a pod on each node that gives the host's daemon credentials for the API server.

    token and ca.crt of the pod's ServiceAccount, address ──> kubeconfig in a directory of the host

The kubelet renews the token in the pod; the token is bound to the pod, and so to the node. Each change is written as a
complete new kubeconfig. When the hostbridge is uninstalled, the pod removes the kubeconfig that it wrote; when the node
restarts or the pod is replaced, the file stays, because the daemon needs it before the next pod runs, which may already
have written its own. ``join`` is the alternative.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import ApiError, CredentialsError, ForbiddenError, NotFoundError
from actors.lib.kube.expiry import token_node
from config.api import ApiCredentials
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.logs.throttle import RepeatLimiter
from supervisor.operations.exit_codes import OK, USAGE, CommandError

from .kubeconfig_file import kubeconfig_text, write_kubeconfig
from .pod import POLL_SECONDS, NoCredentialsError, ServerAddress, read_account

log = get_logger("hostbridge")

#: Deadline of a query whether the hostbridge is being uninstalled.
ASKING_SECONDS: Final = 5.0
#: For how long a server has to refuse that query, and how often it is asked: one that has just started refuses requests
#: for seconds, because it has not read its rules yet. With the deadline these fit in the 15 s that a pod has to end.
_REFUSING_SECONDS: Final = 8.0
_AGAIN_SECONDS: Final = 2.0
SERVICE: Final = "service"
NODE_LOCAL: Final = "node-local"
NODE_LOCAL_PORT: Final = 6443
#: A name in every API server's certificate, which need not have the loopback address.
SERVER_NAME: Final = "kubernetes.default.svc"


def address(choice: str, environment: Mapping[str, str]) -> ServerAddress:
    """Return the address of a strategy: ``service``, ``node-local[:PORT]`` or a URL. Raises :class:`CommandError`.

    ``service`` is the cluster's own Service, as the kubelet gives it to each container: the host reaches it by
    kube-proxy's rules. ``node-local`` is a server or a load balancer on the node's loopback.
    """
    if choice == SERVICE:
        host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not port.isdecimal():
            raise CommandError("--api-server service: this is not a pod: KUBERNETES_SERVICE_HOST is not set", USAGE)
        return ServerAddress(f"https://{bracketed(host)}:{port}")
    strategy, _, port = choice.partition(":")
    if strategy == NODE_LOCAL:
        if port and not port.isdecimal():
            raise CommandError(f"--api-server {choice}: the port must be a number", USAGE)
        return ServerAddress(f"https://127.0.0.1:{port or NODE_LOCAL_PORT}", SERVER_NAME)
    return ServerAddress(checked_url(choice, "--api-server"))


def checked_url(text: str, option: str) -> str:
    """Return the address of a server. Raises :class:`CommandError`, without quoting what may hold a password."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme == "https" and bool(parts.hostname) and not parts.username and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise CommandError(f"{option}: must be https://HOST[:PORT]; an IPv6 address is in brackets", USAGE)
    return text


def bracketed(host: str) -> str:
    """Return a host in the form that URLs use."""
    try:
        return f"[{host}]" if ip_address(host).version == 6 else host
    except ValueError:
        return host


@dataclass(slots=True)
class Hostbridge:
    """One hostbridge: from ``account`` to the file ``output``; ``owner`` is the path of its DaemonSet in the API."""

    account: Path
    output: Path
    server: ServerAddress
    owner: str
    open_client: Callable[[ApiCredentials], KubeClient] = KubeClient
    #: The kubeconfig that this pod wrote last, a secret; empty before the first.
    _written: str = field(default="", init=False, repr=False)

    async def serve(self) -> int:
        """Follow the pod's credentials until SIGTERM or SIGINT; return the exit code."""
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.follow)
                async for _ in signals:
                    break
                nursery.cancel_scope.cancel()
        await self.end()
        return OK

    async def follow(self) -> None:
        """Write every change, indefinitely; a fault is logged when it begins, and retried."""
        limiter = RepeatLimiter(log, clock=trio.current_time)
        while True:
            if problem := await trio.to_thread.run_sync(self.step):
                limiter.failing("kubeconfig", problem, message_id=message_ids.HOSTBRIDGE_FAILS)
            else:
                limiter.recovered("kubeconfig", "the host's credentials are written again")
            await trio.sleep(POLL_SECONDS)

    def step(self) -> str:
        """Write the kubeconfig if it has changed; return what prevents it."""
        try:
            credentials = read_account(self.account, self.server)
            text = kubeconfig_text(credentials)
            changed = write_kubeconfig(self.output, text)
            self._written = text
            if changed:
                node = token_node(credentials.token.reveal()) if credentials.token else None
                log.info("wrote the host's credentials", file=self.output, server=self.server.url, node=node or None)
        except NoCredentialsError as error:
            return f"no credentials to write: {error}"
        except OSError as error:
            return f"{self.output} cannot be written: {error.strerror}; the last one stays"
        return ""

    async def end(self) -> None:
        """Remove the kubeconfig if the hostbridge is being uninstalled, and no other pod has replaced it."""
        if await self.is_uninstalled() and self._is_own():
            self.output.unlink(missing_ok=True)
            log.info("removed the host's credentials: the hostbridge is uninstalled", file=self.output)

    def _is_own(self) -> bool:
        return self.output.exists() and self.output.read_bytes() == self._written.encode()

    async def is_uninstalled(self) -> bool:
        """Whether the DaemonSet, the right to read it, or the account itself is gone; False without an answer.

        The last two look like a server that has just started: only a refusal that lasts counts.
        """
        refusing_until = trio.current_time() + _REFUSING_SECONDS
        while (answer := await self._ask()) is None:
            if trio.current_time() >= refusing_until:
                return True
            await trio.sleep(_AGAIN_SECONDS)
        return answer

    async def _ask(self) -> bool | None:
        """Return whether the DaemonSet is gone, None if the server refuses to say it."""
        try:
            credentials = read_account(self.account, self.server)
        except NoCredentialsError:
            return False
        with trio.move_on_after(ASKING_SECONDS):
            try:
                async with self.open_client(credentials) as client:
                    owner = await client.get(self.owner)
                return "deletionTimestamp" in owner.get("metadata", {})
            except NotFoundError:
                return True
            except (CredentialsError, ForbiddenError):
                return None
            except ApiError:
                return False
        return False
