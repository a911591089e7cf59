"""The endpoint: what it serves and to whom, over a unix socket, loopback and TLS; what hostile clients cannot do."""

from __future__ import annotations

import logging
import shutil
import ssl
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
from trio.testing import open_stream_to_socket_listener

from actors.metrics_endpoint.actor import Certificates, MetricsText, responder, run
from config.metrics_settings import MetricsSettings
from config.status import Status
from kubeserver.pki import Authority
from supervisor.process.http_server import CONNECTION_SECONDS, MOST_CONNECTIONS, MOST_HEADER_BYTES, HttpServer
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from supervisor.runtime.faults import DependencyFault

Context = Callable[[], ssl.SSLContext]
GET = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture
def status() -> Latest[Status]:
    channel: Latest[Status] = Latest("status")
    channel.set(Status(ready=True))
    return channel


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@asynccontextmanager
async def served(page: bytes | None = b"text\n", context: Context | None = None) -> AsyncIterator[trio.SocketListener]:
    """Run the HTTP server alone, on a free port."""
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, HttpServer(responder(lambda: page), context).handle, [listener])
        yield listener
        nursery.cancel_scope.cancel()


async def exchange(listener: trio.SocketListener, request: bytes) -> bytes:
    async with await open_stream_to_socket_listener(listener) as stream:
        await stream.send_all(request)
        return b"".join([part async for part in stream])


async def scrape(listener: trio.SocketListener, trusted: ssl.SSLContext) -> str:
    port = listener.socket.getsockname()[1]
    async with httpx.AsyncClient(verify=trusted, trust_env=False) as client:
        return (await client.get(f"https://127.0.0.1:{port}/metrics")).text


def secured(directory: Path, authority: Authority, *, clients: bool = False) -> MetricsSettings:
    pair = authority.server("metrics")
    shutil.copy(pair.certificate, directory)
    shutil.copy(pair.key, directory)
    return MetricsSettings(
        listen="https://127.0.0.1:9473",
        certificate=directory / pair.certificate.name,
        key=directory / pair.key.name,
        client_authority=authority.pair.certificate if clients else None,
    )


async def test_a_unix_socket_for_root_and_its_group_serves_the_metrics(tmp_path: Path, status: Latest[Status]) -> None:
    path, started = tmp_path / "metrics.sock", trio.Event()
    ctx = ActorContext("metrics_endpoint", changed=started.set)
    async with trio.open_nursery() as nursery:
        settings = MetricsSettings(listen=f"unix:{path}")
        nursery.start_soon(partial(run, ctx, settings=settings, status=status.reader()))
        await started.wait()
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with httpx.AsyncClient(transport=transport) as client:
            answer = await client.get("http://localhost/metrics")
        nursery.cancel_scope.cancel()
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "\nopenperouter_ready 1.0\n" in answer.text
    assert not path.exists()


async def test_without_the_setting_nothing_is_opened(status: Latest[Status]) -> None:
    started = trio.Event()
    ctx = ActorContext("metrics_endpoint", changed=started.set)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(run, ctx, settings=MetricsSettings(), status=status.reader()))
        await started.wait()
        assert (ctx.facts, ctx.mode) == ({}, "idle")
        nursery.cancel_scope.cancel()


async def test_a_port_that_is_taken_fails_the_actor_alone(status: Latest[Status]) -> None:
    async with served() as listener:
        settings = MetricsSettings(listen=f"http://127.0.0.1:{listener.socket.getsockname()[1]}")
        with pytest.raises(DependencyFault, match=r"cannot listen: .*in use"):
            await run(ActorContext("metrics_endpoint"), settings=settings, status=status.reader())


@pytest.mark.parametrize(
    ("request_line", "code"),
    [
        ("GET /metrics HTTP/1.1", 200),
        ("GET /metrics?x=1 HTTP/1.1", 200),
        ("GET / HTTP/1.1", 404),
        ("GET /metrics/../etc/passwd HTTP/1.1", 404),
        ("POST /metrics HTTP/1.1", 405),
        ("DELETE /metrics HTTP/1.1", 405),
        ("nonsense", 400),
    ],
)
async def test_only_this_page_can_be_read(request_line: str, code: int) -> None:
    async with served() as listener:
        answer = await exchange(listener, f"{request_line}\r\nHost: a\r\n\r\n".encode())
    assert answer.split()[1] == str(code).encode()
    assert (b"text\n" in answer) == (code == 200)


async def test_head_has_the_length_and_no_body() -> None:
    async with served() as listener:
        answer = await exchange(listener, b"HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-length: 5" in head.lower()
    assert body == b""


async def test_before_the_first_status_there_is_an_error_and_no_empty_page() -> None:
    async with served(None) as listener:
        assert (await exchange(listener, GET)).split()[1] == b"503"


async def test_endless_headers_are_refused() -> None:
    async with served() as listener:
        answer = await exchange(listener, b"GET /metrics HTTP/1.1\r\nX: " + b"a" * (MOST_HEADER_BYTES + 1))
    assert answer.split()[1] == b"431"


async def test_a_client_that_stalls_is_disconnected(autojump_clock: trio.testing.MockClock) -> None:
    async with served() as listener:
        began = trio.current_time()
        assert await exchange(listener, b"GET /met") == b""
        assert trio.current_time() - began == pytest.approx(CONNECTION_SECONDS, abs=0.5)


async def test_too_many_connections_are_closed_and_the_others_are_served() -> None:
    async with served() as listener, AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(await open_stream_to_socket_listener(listener))
            for _ in range(MOST_CONNECTIONS)
        ]
        await trio.testing.wait_all_tasks_blocked()
        assert await exchange(listener, b"") == b""
        await streams[0].send_all(GET)
        assert (await streams[0].receive_some()).startswith(b"HTTP/1.1 200")


async def test_tls(tmp_path: Path, authority: Authority) -> None:
    certificates = Certificates(secured(tmp_path, authority))
    trusted = ssl.create_default_context(cafile=authority.pair.certificate)
    async with served(context=certificates.context) as listener:
        assert await scrape(listener, trusted) == "text\n"
        with pytest.raises(httpx.ConnectError):
            await scrape(listener, ssl.create_default_context())
        # Neither that client nor one that does not use TLS stops the server.
        assert b"200" not in await exchange(listener, GET)
        assert await scrape(listener, trusted) == "text\n"


async def test_with_an_authority_for_clients_only_theirs_may_read(tmp_path: Path, authority: Authority) -> None:
    certificates = Certificates(secured(tmp_path, authority, clients=True))
    anonymous = ssl.create_default_context(cafile=authority.pair.certificate)
    known = ssl.create_default_context(cafile=authority.pair.certificate)
    pair = authority.client("prometheus", "prometheus")
    known.load_cert_chain(pair.certificate, pair.key)
    async with served(context=certificates.context) as listener:
        with pytest.raises(httpx.TransportError):
            await scrape(listener, anonymous)
        assert await scrape(listener, known) == "text\n"


def test_new_certificates_are_taken_and_broken_ones_are_not(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    settings = secured(tmp_path, authority)
    assert settings.certificate is not None
    certificates = Certificates(settings)
    first = certificates.context()
    assert certificates.context() is first
    good = settings.certificate.read_text()
    settings.certificate.write_text("broken")
    with caplog.at_level(logging.WARNING):
        assert certificates.context() is first
        assert certificates.context() is first
    [record] = caplog.records
    assert str(settings.certificate) in record.getMessage()
    settings.certificate.write_text(good + "\n")
    assert certificates.context() is not first


def test_certificates_that_cannot_be_used_are_named_without_their_content(tmp_path: Path, authority: Authority) -> None:
    settings = secured(tmp_path, authority)
    assert settings.key is not None
    settings.key.write_text("the secret")
    with pytest.raises(DependencyFault, match=r"metrics\.key") as caught:
        Certificates(settings)
    assert "the secret" not in str(caught.value)


async def test_the_text_is_made_once_a_second_at_most(
    status: Latest[Status], autojump_clock: trio.testing.MockClock
) -> None:
    text = MetricsText(status.reader())
    first = text.get()
    status.set(Status(ready=False))
    assert text.get() is first
    await trio.sleep(1)
    assert b"openperouter_ready 0.0" in (text.get() or b"")
