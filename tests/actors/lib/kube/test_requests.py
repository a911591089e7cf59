"""Ordinary requests: what is sent, and what becomes of every kind of answer, none at all included."""

from __future__ import annotations

import json
import re
import tracemalloc

import pytest
import trio
import trio.testing

from actors.lib.kube import client as client_module
from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import (
    ApiError,
    ConflictError,
    CredentialsError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    ServerError,
    ThrottledError,
    UnreachableError,
)
from config.api import ApiCredentials
from config.desired import Secret
from tests.actors.lib.kube.scripted_server import hanging_up_after, saying, silent_after, start, talking, whole


async def test_a_request_carries_the_token_and_the_answer_is_decoded() -> None:
    async with talking(saying(whole(b'{"kind": "Pod"}')), token=Secret("abc.def-123")) as (client, server):
        assert await client.get("/api/v1/pods/x", {"limit": 5}) == {"kind": "Pod"}
    [head] = server.heads
    assert head.startswith("GET /api/v1/pods/x?limit=5 HTTP/1.1\r\n")
    assert "Authorization: Bearer abc.def-123" in head.split("\r\n")
    assert "User-Agent: openperouter/" in head
    assert server.connections == 1


async def test_the_address_may_have_a_path_of_its_own() -> None:
    async with trio.open_nursery() as nursery:
        server = await start(nursery, saying(whole()))
        async with KubeClient(ApiCredentials(server=f"{server.url}/k8s/clusters/c-1/")) as client:
            await client.get("/version")
        nursery.cancel_scope.cancel()
    assert server.heads[0].startswith("GET /k8s/clusters/c-1/version HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("name", "sent"),
    [("a b", "a%20b"), ("a?b=c", "a%3Fb%3Dc"), ("a#b", "a%23b"), ("100%", "100%25"), ("%2e%2e", "%252e%252e")],
)
async def test_a_name_in_a_path_is_never_more_than_a_name(name: str, sent: str) -> None:
    async with talking(saying(whole())) as (client, server):
        await client.get(f"/api/v1/nodes/{name}", {"limit": 1})
    assert server.heads[0].startswith(f"GET /api/v1/nodes/{sent}?limit=1 HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/api/v1/namespaces/../nodes", {}),
        ("/api/v1/nodes/.", {}),
        ("/api/v1/nodes/" + "x" * 70_000, {}),
        ("/api/v1/nodes", {"fieldSelector": "x" * 70_000}),
    ],
    ids=["way up", "dot", "long path", "long parameter"],
)
async def test_what_no_address_can_be_made_of_is_refused_before_it_is_sent(path: str, params: dict[str, str]) -> None:
    async with talking(saying(whole())) as (client, server):
        with pytest.raises(InvalidError):
            await client.get(path, params)
        with pytest.raises(InvalidError):
            async with client.watch(path, params):
                pass
        await client.get("/version")
    assert len(server.heads) == 1
    assert server.heads[0].startswith("GET /version ")


async def test_the_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with talking(saying(whole())) as (client, _):
        assert await client.get("/version") == {}


async def test_requests_share_a_connection() -> None:
    async with talking(saying(whole())) as (client, server):
        for _ in range(3):
            await client.get("/version")
        assert server.connections == 1


async def test_a_connection_that_the_server_closed_meanwhile_is_replaced() -> None:
    async with talking(hanging_up_after(whole())) as (client, server):
        for _ in range(3):
            await client.get("/version")
            await trio.testing.wait_all_tasks_blocked()
        assert server.connections == 3


async def test_bodies_say_what_they_are() -> None:
    async with talking(saying(whole())) as (client, server):
        await client.apply("/a", {"x": 1}, manager="me")
        await client.merge_patch("/a", {"x": None}, manager="me")
        await client.create("/a", {"x": 2})
        await client.replace("/a", {"x": 3})
        await client.delete("/a")
        await client.delete("/a", uid="u", resource_version="7")
    firsts = [head.split(" HTTP")[0] for head in server.heads]
    types = [line for head in server.heads for line in head.split("\r\n") if line.startswith("Content-Type")]
    assert firsts == [
        "PATCH /a?fieldManager=me&force=true",
        "PATCH /a?fieldManager=me",
        *("POST /a", "PUT /a", "DELETE /a", "DELETE /a"),
    ]
    assert [kind.partition(": ")[2] for kind in types] == [
        "application/apply-patch+yaml",
        "application/merge-patch+json",
        *["application/json"] * 4,
    ]
    assert json.loads(server.bodies[1]) == {"x": None}
    assert json.loads(server.bodies[-1])["preconditions"] == {"uid": "u", "resourceVersion": "7"}


@pytest.mark.parametrize(
    ("status", "kind", "retry"),
    [
        ("400 Bad Request", InvalidError, False),
        ("401 Unauthorized", CredentialsError, True),
        ("403 Forbidden", ForbiddenError, True),
        ("404 Not Found", NotFoundError, True),
        ("409 Conflict", ConflictError, True),
        ("410 Gone", GoneError, True),
        ("418 Teapot", ApiError, True),
        ("422 Unprocessable Entity", InvalidError, False),
        ("429 Too Many Requests", ThrottledError, True),
        ("500 Internal Server Error", ServerError, True),
        ("503 Service Unavailable", ServerError, True),
    ],
)
async def test_a_refusal_is_an_error_of_its_kind(status: str, kind: type[ApiError], retry: bool) -> None:
    body = json.dumps({"kind": "Status", "reason": "Because", "message": "no\nway"}).encode()
    async with talking(saying(whole(body, status))) as (client, _):
        with pytest.raises(ApiError) as caught:
            await client.get("/x")
    assert type(caught.value) is kind
    assert str(caught.value) == "GET /x: no way"
    assert (caught.value.code, caught.value.reason) == (int(status[:3]), "Because")
    assert caught.value.retry is retry


@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        ("429 Too Many Requests", "7", 7.0),
        ("503 Service Unavailable", "1", 1.0),
        ("429 Too Many Requests", "86400", 300.0),
        ("429 Too Many Requests", "Fri, 20 Nov 2026 10:00:00 GMT", None),
        ("429 Too Many Requests", "-1", None),
        ("429 Too Many Requests", "\u00b2", None),
    ],
)
async def test_a_busy_server_says_when_to_come_back(status: str, header: str, seconds: float | None) -> None:
    answer = whole(b"{}", status).replace(b"\r\n\r\n", f"\r\nRetry-After: {header}\r\n\r\n".encode("latin-1"), 1)
    async with talking(saying(answer)) as (client, _):
        with pytest.raises(ThrottledError) as caught:
            await client.get("/x")
    assert caught.value.retry_after == seconds


async def test_the_text_of_a_refusal_is_one_bounded_printable_line() -> None:
    async with talking(saying(whole(b"<html>\n\x1b[2J" + b"x" * 100_000, "502 Bad Gateway"))) as (client, _):
        with pytest.raises(ServerError) as caught:
            await client.get("/x")
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()
    assert str(caught.value).startswith("GET /x: <html>")


@pytest.mark.parametrize("body", [b"", b"<html>Log in</html>", b"[1]", b'"text"', b'{"half": ', b"[" * 100_000])
async def test_something_else_than_a_json_object_is_no_answer(body: bytes) -> None:
    async with talking(saying(whole(body))) as (client, _):
        with pytest.raises(UnreachableError, match="not an API server"):
            await client.get("/x")


async def test_a_redirect_is_not_followed() -> None:
    elsewhere = whole(b"", "302 Found").replace(b"\r\n\r\n", b"\r\nLocation: /login\r\n\r\n")
    async with talking(saying(elsewhere), token=Secret("abc")) as (client, server):
        with pytest.raises(UnreachableError, match="302"):
            await client.get("/x")
        with pytest.raises(UnreachableError, match="302"):
            async with client.watch("/x", {}):
                pytest.fail("a redirect is not a watch")
    assert len(server.heads) == 2


@pytest.mark.parametrize(
    "part", [b"", b"HTT", b"HTTP/1.1 200 OK\r\nContent-Le", whole(b'{"x": 1}')[:-1], b"SSH-2.0\r\n"]
)
async def test_a_broken_answer_is_no_answer(part: bytes) -> None:
    async with talking(hanging_up_after(part)) as (client, _):
        with pytest.raises(UnreachableError):
            await client.get("/x")


@pytest.mark.parametrize("levels", [20, 1000, 100_000])
async def test_one_object_that_is_nested_too_deeply_to_be_read_hides_no_other(levels: int) -> None:
    text = '"}] \\"{[": "{[", "spec": '
    nested = '{"a": [' * levels + "]}" * levels
    answer = f'{{"items": [{{{text}{nested}}}, {{{text}[]}}]}}'.encode()
    async with talking(saying(whole(answer))) as (client, _):
        first, second = (await client.get("/api/v1/pods"))["items"]
    assert second == {'}] "{[': "{[", "spec": []}
    spec, depth = first["spec"], 0
    while spec:
        spec, depth = spec[0] if isinstance(spec, list) else spec["a"], depth + 1
    # One level more is the empty list.
    assert depth == (2 * levels - 1 if levels < 100 else 64 - 1 - 3)


@pytest.mark.parametrize("text", ["x", '\\"', "[", "\\\\"])
async def test_a_long_string_beside_deep_nesting_costs_no_more_memory_than_itself(text: str) -> None:
    size = 1_000_000
    answer = f'{{"deep": {"[" * 5_000}{"]" * 5_000}, "long": "{text * (size // len(text))}"}}'.encode()
    async with talking(saying(whole(answer))) as (client, _):
        tracemalloc.start()
        try:
            found = await client.get("/api/v1/pods")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert len(found["long"]) == size // len(text) * (1 if len(text) == 1 else len(text) // 2)
    assert peak < 20 * size


async def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_ANSWER_BYTES", 1000)
    async with talking(saying(whole(b" " * 1001))) as (client, _):
        with pytest.raises(UnreachableError, match="more than 1000 bytes"):
            await client.get("/x")


@pytest.mark.parametrize("part", [b"", whole(b"{}")[:-1]])
async def test_silence_ends_after_thirty_seconds(part: bytes, mock_clock: trio.testing.MockClock) -> None:
    async with talking(silent_after(part)) as (client, _):
        begin = trio.current_time()
        with pytest.raises(UnreachableError):
            await client.get("/x")
        assert 30 <= trio.current_time() - begin < 31


async def test_an_answer_that_trickles_ends_after_thirty_seconds(mock_clock: trio.testing.MockClock) -> None:
    async def answer(stream: trio.abc.Stream, _head: str) -> None:
        for byte in whole(b" " * 100):
            await stream.send_all(bytes([byte]))
            await trio.sleep(4)

    async with talking(answer) as (client, _):
        begin = trio.current_time()
        with pytest.raises(UnreachableError, match="no complete answer within 30 s"):
            await client.get("/x")
        assert 30 <= trio.current_time() - begin < 31


async def test_a_refused_connection_is_reported_with_its_reason() -> None:
    async with KubeClient(ApiCredentials(server="https://127.0.0.1:1")) as client:
        with pytest.raises(UnreachableError, match=r"^https://127\.0\.0\.1:1: .*Connection refused$"):
            await client.get("/x")


@pytest.mark.parametrize("host", ["a..b", ".x", "x" * 64])
async def test_a_host_name_that_cannot_be_looked_up_is_an_unreachable_server(host: str) -> None:
    async with KubeClient(ApiCredentials(server=f"https://{host}:6443")) as client:
        with pytest.raises(UnreachableError, match=rf"^https://{host}:6443: .*label"):
            await client.get("/x")
        with pytest.raises(UnreachableError):
            async with client.watch("/x", {}):
                pass


async def test_a_cancelled_request_ends_at_once_and_closes_its_connection() -> None:
    scope = trio.CancelScope()

    async def cancel(stream: trio.abc.Stream, _head: str) -> None:
        scope.cancel()
        await stream.receive_some()

    async with talking(cancel) as (client, server):
        with trio.fail_after(20), scope:
            await client.get("/x")
        assert scope.cancelled_caught
        with trio.fail_after(20):
            await server.closed.wait()


@pytest.mark.parametrize("token", ["", "sec\nret", "secr\u00e9t", "secret ", "sec\x00ret"])
async def test_a_token_that_cannot_be_sent_is_refused_without_quoting_it(token: str) -> None:
    client = KubeClient(ApiCredentials(server="https://127.0.0.1:1", source="the.conf", token=Secret(token)))
    with pytest.raises(UnreachableError) as caught:
        await client.__aenter__()
    assert str(caught.value) == "the.conf: the token is empty or has characters that no token can have"


@pytest.mark.parametrize("server", ["", "host:6443", "ftp://host", "https://", "https://[::1", "https://u:pass@host"])
async def test_an_address_that_cannot_be_used_is_refused_without_quoting_it(server: str) -> None:
    client = KubeClient(ApiCredentials(server=server, source="the.conf"))
    with pytest.raises(UnreachableError, match=r"^the\.conf: the server's address") as caught:
        await client.__aenter__()
    assert "pass" not in str(caught.value)


async def page_of(client: KubeClient, limit: int) -> list[list[str]]:
    pages = client.pages("/x", {"labelSelector": "a=b"}, limit=limit)
    return [[item["name"] for item in page["items"]] async for page in pages]


async def test_pages_are_asked_for_until_there_is_none() -> None:
    first = whole(b'{"metadata": {"continue": "to/ken="}, "items": [{"name": "a"}, {"name": "b"}]}')
    last = whole(b'{"metadata": {"continue": ""}, "items": [{"name": "c"}]}')
    async with talking(saying(first, last)) as (client, server):
        assert await page_of(client, 2) == [["a", "b"], ["c"]]
    one, two = (head.split(" ")[1] for head in server.heads)
    assert one == "/x?labelSelector=a%3Db&limit=2"
    assert two == "/x?labelSelector=a%3Db&limit=2&continue=to%2Fken%3D"


async def test_a_page_that_is_too_large_is_asked_for_in_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a few huge objects would keep all others from being read."""
    monkeypatch.setattr(client_module, "MAX_ANSWER_BYTES", 100)
    large = whole(b" " * 101)
    first = whole(b'{"metadata": {"continue": "token"}, "items": [{"name": "a"}]}')
    last = whole(b'{"metadata": {}, "items": [{"name": "b"}]}')
    async with talking(saying(large, large, first, last)) as (client, server):
        assert await page_of(client, 20) == [["a"], ["b"]]
    limits = [re.findall(r"limit=(\d+)", head)[0] for head in server.heads]
    assert limits == ["20", "5", "1", "1"]
    async with talking(saying(large, large)) as (client, _):
        with pytest.raises(UnreachableError, match="more than 100 bytes"):
            await page_of(client, 2)


async def test_history_that_is_forgotten_between_pages_is_said() -> None:
    first = whole(b'{"metadata": {"continue": "token"}, "items": [{"name": "a"}]}')
    async with talking(saying(first, whole(b'{"reason": "Expired"}', "410 Gone"))) as (client, _):
        with pytest.raises(GoneError):
            await page_of(client, 1)
