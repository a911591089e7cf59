"""The api_wait actor with real files and a real server."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.api_wait import connection
from actors.api_wait.actor import run
from config.api import ApiAccess, ApiCredentials, ApiReach
from config.settings import Settings
from kubeserver.server import ApiServer
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader
from tests.actors.lib.kube.kubeconfigs import base64_of, credential, program
from tests.actors.lib.kube.kubeconfigs import kubeconfig as written
from tests.cluster.harness import ClusterServer, both_versions, kube, make_namespace, service_account

#: For anything that has to show, on a busy machine.
SECONDS = 180.0


class Node:
    """A directory of credentials, as upstream's proxy fills it, and the actor that follows it."""

    def __init__(self, root: Path, server: ClusterServer) -> None:
        self.directory = root / "hostbridge"
        self.directory.mkdir()
        self.settings = Settings(credentials_dir=self.directory, run_dir=root / "run", kubeconfig_programs=True)
        self.server = server
        self.out: Latest[ApiAccess] = Latest("access")
        self.context: ActorContext | None = None

    def bridge(self, token: str, url: str = "", ca: str = "") -> None:
        """Write what the proxy writes, as it does: one file after another, in place, by its container's paths."""
        cluster = {"server": url or self.server.url, "certificate-authority": "/shared/ca.crt"}
        (self.directory / "kubeconfig").write_text(written({"tokenFile": "/shared/token"}, cluster))
        self.rotate(token)
        (self.directory / "ca.crt").write_text(ca or self.server.ca)
        (self.directory / "namespace").write_text("openperouter-system")

    def rotate(self, token: str) -> None:
        (self.directory / "token").write_text(token)

    def write(self, user: dict[str, Any]) -> None:
        """Write a kubeconfig with a user of another kind."""
        cluster = {"server": self.server.url, "certificate-authority-data": base64_of(self.server.ca)}
        (self.directory / "kubeconfig").write_text(written(user, cluster))

    @asynccontextmanager
    async def alive(self) -> AsyncIterator[Watcher]:
        async with trio.open_nursery() as nursery:
            context = self.context = ActorContext("api_wait")

            async def live() -> None:
                await run(context, settings=self.settings, out=self.out)

            nursery.start_soon(live)
            yield Watcher(self.out.reader())
            nursery.cancel_scope.cancel()


class Watcher:
    """Sees what is published."""

    def __init__(self, accesses: LatestReader[ApiAccess]) -> None:
        self._accesses = accesses

    async def until(self, what: Callable[[ApiAccess], bool]) -> ApiAccess:
        """Return the first access of a kind."""
        access = None
        with trio.move_on_after(SECONDS):
            while access is None or not what(access):
                access = await self._accesses.receive()
            return access
        raise AssertionError(f"the last was {access}")

    async def reach(self, reach: ApiReach) -> ApiAccess:
        """Return the first access with this reach."""
        return await self.until(lambda access: access.reach is reach)


@pytest.fixture
def node(tmp_path: Path, server: ClusterServer) -> Node:
    return Node(tmp_path, server)


@pytest.fixture
def other(server: ClusterServer) -> Iterator[ApiServer]:
    """Another cluster: other address, other authority, other token."""
    other = ApiServer(server.release)
    yield other
    other.discard()


def admin(server: ApiServer) -> str:
    return server.admin_token


async def works(credentials: ApiCredentials | None) -> bool:
    assert credentials is not None
    async with kube(credentials) as client:
        return bool((await client.get("/apis"))["groups"])


@both_versions
async def test_credentials_and_server_appear_late(node: Node, server: ClusterServer) -> None:
    await trio.to_thread.run_sync(server.stop)
    async with node.alive() as seen:
        assert str(node.directory / "kubeconfig") in (await seen.reach(ApiReach.UNCONFIGURED)).detail
        node.bridge(admin(server))
        lost = await seen.reach(ApiReach.UNREACHABLE)
        assert server.url in lost.detail
        assert "refused" in lost.detail
        await trio.to_thread.run_sync(server.start)
        found = await seen.reach(ApiReach.REACHABLE)
    assert found.detail == ""
    assert await works(found.credentials)


async def test_a_server_that_answers_gets_no_more_requests(node: Node, server: ClusterServer) -> None:
    user = "asks-nothing"
    pair = server.client_certificate(user)
    for file in (pair.certificate, pair.key):
        shutil.copy(file, node.directory)
    node.write({"client-certificate": str(pair.certificate), "client-key": str(pair.key)})
    async with node.alive() as seen:
        found = await seen.reach(ApiReach.REACHABLE)
        await trio.sleep(5)
    assert found.credentials is not None
    assert found.credentials.expires_at == pytest.approx(time.time() + 7 * 86400, abs=3600)
    assert len(server.requests(user)) == 2


async def test_the_server_stops_while_the_token_changes_and_comes_back(node: Node, server: ClusterServer) -> None:
    """A server that answers is not probed; the probe for the new token finds it gone."""
    node.bridge(admin(server))
    async with kube(server.admin) as client:
        await make_namespace(client, "stops")
        rotated = await service_account(client, "stops", "node")
    assert rotated.token is not None
    async with node.alive() as seen:
        first = await seen.reach(ApiReach.REACHABLE)
        await trio.to_thread.run_sync(server.stop)
        node.rotate(rotated.token.reveal())
        lost = await seen.reach(ApiReach.UNREACHABLE)
        assert lost.credentials == first.credentials
        await trio.to_thread.run_sync(server.start)
        back = await seen.reach(ApiReach.REACHABLE)
    assert back.credentials is not None
    assert back.credentials.token == rotated.token
    assert back.credentials.expires_at == pytest.approx(time.time() + 3600, abs=60)


async def test_a_silent_server_is_unreachable_until_it_answers(node: Node, server: ClusterServer) -> None:
    server.pause()
    node.bridge(admin(server))
    async with node.alive() as seen:
        assert server.url in (await seen.reach(ApiReach.UNREACHABLE)).detail
        server.resume()
        await seen.reach(ApiReach.REACHABLE)


async def test_a_refused_token_is_reported_and_a_rotated_one_taken_within_seconds(
    node: Node, server: ClusterServer
) -> None:
    node.bridge("not-a-token-of-this-cluster")
    async with node.alive() as seen:
        refused = await seen.reach(ApiReach.REFUSED)
        assert server.url in refused.detail
        assert str(node.directory / "kubeconfig") in refused.detail
        assert "Unauthorized" in refused.detail
        assert "not-a-token" not in repr(refused)
        node.rotate(admin(server))
        begin = trio.current_time()
        await seen.reach(ApiReach.REACHABLE)
        assert trio.current_time() - begin < 15


async def test_without_token_and_certificate_the_credentials_count_as_refused(node: Node) -> None:
    node.write({"exec": None})
    async with node.alive() as seen:
        assert "requests are anonymous" in (await seen.reach(ApiReach.REFUSED)).detail


async def test_a_token_that_expires_is_reported_with_its_expiry(
    node: Node, server: ClusterServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "EXPIRED_SECONDS", 2.0)
    async with kube(server.admin) as client:
        await make_namespace(client, "ends")
        account = await service_account(client, "ends", "node")
    assert account.token is not None
    async with let_in(node, server, account.token.reveal()) as seen:
        ended = await seen.reach(ApiReach.REFUSED)
        assert ", which expired 20" in ended.detail
        node.rotate(account.token.reveal())
        await seen.reach(ApiReach.REACHABLE)


@asynccontextmanager
async def let_in(node: Node, server: ClusterServer, token: str) -> AsyncIterator[Watcher]:
    """The actor with a token that ends soon, but not before it was used: on a busy machine that takes a while."""
    for lasts in (12, 40, 120):
        # The server allows for a minute of difference between clocks.
        node.bridge(ending(server, token, time.time() - 60 + lasts))
        node.out = Latest("access")
        async with node.alive() as seen:
            first = await seen.until(lambda access: access.reach in (ApiReach.REACHABLE, ApiReach.REFUSED))
            if first.reach is ApiReach.REACHABLE:
                yield seen
                return
    raise AssertionError("each token ended before it was used")


async def test_another_server_is_followed_and_the_old_one_kept_until_it_answers(
    node: Node, server: ClusterServer, other: ApiServer
) -> None:
    node.bridge(admin(server))
    async with node.alive() as seen:
        first = await seen.reach(ApiReach.REACHABLE)
        node.bridge(admin(other), other.url, other.ca)
        moving = await seen.reach(ApiReach.UNREACHABLE)
        assert moving.credentials == first.credentials
        assert other.url in moving.detail
        await trio.to_thread.run_sync(other.start)
        moved = await seen.reach(ApiReach.REACHABLE)
    assert moved.credentials is not None
    assert moved.credentials.server == other.url
    assert await works(moved.credentials)


async def test_another_clusters_authority_is_not_trusted(node: Node, server: ClusterServer, other: ApiServer) -> None:
    node.bridge(admin(server), ca=other.ca)
    async with node.alive() as seen:
        assert "certificate verify failed" in (await seen.reach(ApiReach.UNREACHABLE)).detail
        (node.directory / "ca.crt").write_text(server.ca)
        await seen.reach(ApiReach.REACHABLE)


async def test_credentials_that_disappear_stay_in_force_for_the_life_of_the_program(
    node: Node, server: ClusterServer
) -> None:
    node.bridge(admin(server))
    async with node.alive() as seen:
        await seen.reach(ApiReach.REACHABLE)
        for file in node.directory.iterdir():
            file.unlink()
        gone = await seen.until(lambda access: "was removed" in access.detail)
        assert gone.reach is ApiReach.REACHABLE
        assert await works(gone.credentials)
    node.out = Latest("access")
    async with node.alive() as seen:
        assert (await seen.reach(ApiReach.UNCONFIGURED)).credentials is None


async def test_a_plugin_gives_the_token_and_runs_again_before_it_expires(node: Node, server: ClusterServer) -> None:
    ran = node.directory / "ran"
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 12))
    answer = credential(token=admin(server), expirationTimestamp=soon)
    node.write(program(node.directory, f"echo once >>{ran}\n{answer}"))
    async with node.alive() as seen:
        first = await seen.reach(ApiReach.REACHABLE)
        with trio.fail_after(SECONDS):
            while ran.read_text().count("once") < 2:  # noqa: ASYNC110 - another process writes it
                await trio.sleep(0.1)
        assert await works(first.credentials)


async def test_the_status_says_how_it_stands_and_nothing_that_is_secret(node: Node, server: ClusterServer) -> None:
    node.bridge(admin(server))
    async with node.alive() as seen:
        access = await seen.reach(ApiReach.REACHABLE)
        await trio.testing.wait_all_tasks_blocked()
        assert node.context is not None
        facts = node.context.facts
    assert (facts["reach"], facts["server"]) == ("reachable", server.url)
    assert admin(server) not in repr(access) + repr(facts)


def ending(server: ClusterServer, token: str, end: float) -> str:
    """Return a ServiceAccount's token with another end, signed as the server signs (ES256, RFC 7518 section 3.4)."""
    head, body, _ = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    claims |= {"exp": int(end), "iat": int(end) - 600, "nbf": int(end) - 600}
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    key = server.directory / "pki" / "service-accounts.key"
    command = ["openssl", "dgst", "-sha256", "-sign", str(key)]
    der = subprocess.run(command, input=f"{head}.{body}".encode(), capture_output=True, check=True).stdout
    # SEQUENCE of two INTEGERs, which have a zero in front where they would look negative.
    size = der[3]
    numbers = der[4 : 4 + size], der[6 + size :]
    signature = b"".join(number.lstrip(b"\0").rjust(32, b"\0") for number in numbers)
    return f"{head}.{body}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"
