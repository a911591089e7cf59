"""Who the server is, and who we are: certificates."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from actors.lib.kube.client import KubeClient, ssl_context
from actors.lib.kube.errors import UnreachableError
from config.api import ApiCredentials
from config.desired import Secret
from kubeserver.pki import Authority
from tests.actors.lib.kube.scripted_server import ScriptedServer, saying, start, whole


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server_context(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.pair.certificate.read_text())
    pair = authority.server("server")
    context.load_cert_chain(pair.certificate, pair.key)
    return context


@pytest.fixture
def credentials(authority: Authority) -> ApiCredentials:
    return ApiCredentials(server="", source="the.conf", ca=authority.pair.certificate.read_text())


@asynccontextmanager
async def talking(credentials: ApiCredentials, tls: ssl.SSLContext) -> AsyncIterator[tuple[KubeClient, ScriptedServer]]:
    async with trio.open_nursery() as nursery:
        server = await start(nursery, saying(whole()), tls)
        async with KubeClient(replace(credentials, server=server.url)) as client:
            yield client, server
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def listening(serve: Callable[[trio.abc.Stream], Awaitable[None]]) -> AsyncIterator[str]:
    """Yield the address of something that is no server of ours."""
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield f"https://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


async def test_a_server_that_the_authority_vouches_for_is_trusted(
    credentials: ApiCredentials, server_context: ssl.SSLContext
) -> None:
    async with talking(credentials, server_context) as (client, _):
        assert await client.get("/version") == {}


async def test_a_server_of_another_authority_gets_no_request(
    credentials: ApiCredentials, server_context: ssl.SSLContext, tmp_path: Path
) -> None:
    other = Authority(tmp_path).pair.certificate.read_text()
    async with talking(replace(credentials, ca=other, token=Secret("abc")), server_context) as (client, server):
        with pytest.raises(UnreachableError, match=r"certificate verify failed: [^()]+$"):
            await client.get("/version")
        assert server.heads == []


async def test_the_name_in_the_certificate_has_to_be_the_one_that_is_wanted(
    credentials: ApiCredentials, server_context: ssl.SSLContext
) -> None:
    async with talking(replace(credentials, server_name="localhost"), server_context) as (client, _):
        assert await client.get("/version") == {}
        async with client.watch("/x", {}):
            pass
    async with talking(replace(credentials, server_name="elsewhere"), server_context) as (client, server):
        with pytest.raises(UnreachableError, match="not valid for 'elsewhere'"):
            await client.get("/version")
        assert server.heads == []


@pytest.mark.parametrize("name", [".x", "a..b", "x" * 64])
async def test_a_name_that_no_certificate_can_have_is_an_unreachable_server(
    credentials: ApiCredentials, server_context: ssl.SSLContext, name: str
) -> None:
    async with talking(replace(credentials, server_name=name), server_context) as (client, server):
        with pytest.raises(UnreachableError):
            await client.get("/version")
        assert server.heads == []


async def test_without_verification_any_server_is_trusted(
    credentials: ApiCredentials, server_context: ssl.SSLContext, tmp_path: Path
) -> None:
    other = Authority(tmp_path).pair.certificate.read_text()
    async with talking(replace(credentials, ca=other, verify=False), server_context) as (client, _):
        assert await client.get("/version") == {}


async def test_a_server_without_tls_is_reported(credentials: ApiCredentials) -> None:
    async def refuse(stream: trio.abc.Stream) -> None:
        await stream.send_all(b"HTTP/1.0 400 Bad Request\r\n\r\n")

    async with listening(refuse) as url, KubeClient(replace(credentials, server=url)) as client:
        with pytest.raises(UnreachableError, match=r"\[SSL"):
            await client.get("/version")


async def test_a_server_that_does_not_finish_the_handshake_is_given_up(
    credentials: ApiCredentials, mock_clock: trio.testing.MockClock
) -> None:
    async def listen(stream: trio.abc.Stream) -> None:
        await trio.sleep_forever()

    async with listening(listen) as url, KubeClient(replace(credentials, server=url)) as client:
        begin = trio.current_time()
        with pytest.raises(UnreachableError):
            await client.get("/version")
        assert 5 <= trio.current_time() - begin < 6


async def test_a_client_certificate_is_shown_and_its_key_never_becomes_a_file(
    credentials: ApiCredentials, authority: Authority, server_context: ssl.SSLContext, tmp_path: Path
) -> None:
    pair = authority.client("someone", "system:node:a", ["system:nodes"])
    certificate, key = pair.certificate.read_text(), Secret(pair.key.read_text())
    pair.key.unlink()
    seen = []

    async def answer(stream: trio.abc.Stream, _head: str) -> None:
        assert isinstance(stream, trio.SSLStream)
        seen.append(stream.getpeercert()["subject"])
        await stream.send_all(whole())

    server_context.verify_mode = ssl.CERT_REQUIRED
    async with trio.open_nursery() as nursery:
        server = await start(nursery, answer, server_context)
        mine = replace(credentials, server=server.url, client_certificate=certificate, client_key=key)
        async with KubeClient(mine) as client:
            await client.get("/version")
        nursery.cancel_scope.cancel()
    server_context.verify_mode = ssl.CERT_NONE
    assert seen == [((("organizationName", "system:nodes"),), (("commonName", "system:node:a"),))]


def test_what_is_not_a_certificate_is_said_and_not_shown(credentials: ApiCredentials, authority: Authority) -> None:
    with pytest.raises(UnreachableError, match=r"^the\.conf: its certificates are not usable"):
        ssl_context(replace(credentials, ca="rubbish"))
    pair = authority.client("another", "x")
    mine = replace(credentials, client_certificate=pair.certificate.read_text(), client_key=Secret("a secret key"))
    with pytest.raises(UnreachableError, match=r"^the\.conf: its certificates are not usable") as caught:
        ssl_context(mine)
    assert "secret" not in str(caught.value)


def test_a_key_with_a_passphrase_prompts_for_nothing(credentials: ApiCredentials, authority: Authority) -> None:
    pair = authority.client("locked", "x")
    locked = subprocess.run(
        ["openssl", "ec", "-in", str(pair.key), "-aes256", "-passout", "pass:abcd"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    mine = replace(credentials, client_certificate=pair.certificate.read_text(), client_key=Secret(locked))
    with pytest.raises(UnreachableError):
        ssl_context(mine)


def test_authorities_without_modern_extensions_are_trusted(
    credentials: ApiCredentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.13 adds the flag by itself; clusters' authorities are often older than that."""

    def strict(*arguments: object, **more: object) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    context = ssl_context(credentials)
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED
