"""A kubeconfig, a reader and servers under the control of tests, for a virtual clock.

The kubeconfigs are real files with a short form of their own: ``SERVER TOKEN [ends=MOMENT] [lasts=SECONDS]
[program=NAME] [names=FILE]``, or ``broken REASON``, or ``vanishing x``, which is removed before it can be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import cast

import trio

from actors.lib.kube.client import Json, KubeClient
from actors.lib.kube.credentials import Loaded, LoadingError, digest
from actors.lib.kube.errors import ApiError, CredentialsError, UnreachableError
from config.api import ApiCredentials
from config.desired import Secret

#: The wall clock when the tests' clock begins.
EPOCH = 1_800_000_000.0
#: Planted: it must never show up anywhere.
SECRET = "hunter2-hunter2"


def wall() -> float:
    """Return the moment in Unix seconds: it goes with the tests' clock."""
    return EPOCH + trio.current_time()


@dataclass
class Reading:
    """Reads the short form; ``reads`` are the moments at which it was called."""

    reads: list[float] = field(default_factory=list)
    #: What a reading takes, seconds.
    seconds: float = 0.0
    #: The token that a program gives now, instead of the one in the kubeconfig.
    made_by_program: str = ""

    async def __call__(self, path: Path) -> Loaded:
        self.reads.append(trio.current_time())
        result = self._read(path)
        await trio.sleep(self.seconds)
        if isinstance(result, LoadingError):
            raise result
        return result

    def _read(self, path: Path) -> Loaded | LoadingError:
        files = {path: digest(path)}
        server, token, *options = path.read_text().split()
        if server == "broken":
            return LoadingError(f"{path}: {token}", files=files, passing=token == "passing")
        if server == "vanishing":
            path.unlink()
            return LoadingError(f"{path}: does not exist", files={path: "missing"})
        said = dict(option.split("=", 1) for option in options)
        if "names" in said:
            named = Path(said["names"])
            files[named] = digest(named)
            token = named.read_text()
        if "program" in said:
            token = self.made_by_program or token
        ends = float(said["ends"]) if "ends" in said else None
        if "lasts" in said:
            ends = wall() + float(said["lasts"])
        credentials = ApiCredentials(f"https://{server}", str(path), token=Secret(token), expires_at=ends)
        return Loaded(credentials, files, program=said.get("program", ""))


@dataclass
class Servers:
    """All servers: ``up`` are those that answer, ``tokens`` what they take, ``asked`` the moments and whom."""

    up: set[str] = field(default_factory=lambda: {"https://one"})
    tokens: set[str] = field(default_factory=lambda: {SECRET})
    asked: list[tuple[float, str]] = field(default_factory=list)
    #: Raised by every server instead of any other answer.
    error: ApiError | None = None
    #: What an answer takes, seconds.
    seconds: float = 0.0

    def connect(self, credentials: ApiCredentials) -> KubeClient:
        """Return a client as far as api_wait uses it."""
        return cast("KubeClient", _Client(self, credentials))

    @property
    def moments(self) -> list[float]:
        """The moments of all requests."""
        return [moment for moment, _ in self.asked]


class _Client:
    def __init__(self, servers: Servers, credentials: ApiCredentials) -> None:
        self._servers = servers
        self._credentials = credentials

    async def __aenter__(self) -> _Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    async def text(self, path: str) -> str:
        servers, credentials = self._servers, self._credentials
        servers.asked.append((trio.current_time(), credentials.server))
        await trio.sleep(servers.seconds)
        if servers.error is not None:
            raise servers.error
        if credentials.server not in servers.up:
            raise UnreachableError(f"{credentials.server}: Connection refused")
        if credentials.token is None or credentials.token.reveal() not in servers.tokens:
            raise CredentialsError(f"GET {path}: Unauthorized", code=401)
        return "ok"

    async def get(self, path: str) -> Json:
        await self.text(path)
        self._servers.asked.pop()
        return {}
