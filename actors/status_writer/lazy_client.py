"""The connection of one round of telling: opened when there is something to send, and closed with the round.

Rounds are rare, and thousands of idle connections would be a load of their own.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.lib.kube.client import KubeClient
from config.api import ApiCredentials


class Line:
    """``connect`` makes a client. Close it in the end."""

    def __init__(self, connect: Callable[[ApiCredentials], KubeClient]) -> None:
        self._connect = connect
        self._client: KubeClient | None = None

    async def client(self, credentials: ApiCredentials) -> KubeClient:
        """Return a client with these credentials. Raises the errors of the client."""
        if self._client is None or self._client.credentials != credentials:
            await self.close()
            self._client = await self._connect(credentials).__aenter__()
        return self._client

    async def close(self) -> None:
        """Close what is open."""
        client, self._client = self._client, None
        if client is not None:
            await client.__aexit__(None, None, None)
