"""Watches: a stream of events for hours, and all the ways in which it can end or fail to."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from actors.lib.kube import client as client_module
from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import ForbiddenError, GoneError, UnreachableError
from tests.actors.lib.kube.scripted_server import (
    chunk,
    chunked,
    end,
    hanging_up_after,
    saying,
    silent_after,
    talking,
    whole,
)


def event(number: int, **more: Any) -> bytes:
    return json.dumps({"type": "MODIFIED", "object": {"number": number, **more}}).encode() + b"\n"


async def watch(client: KubeClient, seen: list[int]) -> None:
    async with client.watch("/x", {"resourceVersion": "7", "allowWatchBookmarks": "true"}) as events:
        async for one in events:
            seen.append(one["object"]["number"])


async def test_events_come_until_the_server_ends_the_stream() -> None:
    seen: list[int] = []
    async with talking(saying(chunked(event(1), event(2)) + end())) as (client, server):
        await watch(client, seen)
    assert seen == [1, 2]
    asked = server.heads[0].partition(" HTTP/1.1")[0]
    start, _, seconds = asked.rpartition("=")
    assert start == "GET /x?resourceVersion=7&allowWatchBookmarks=true&watch=true&timeoutSeconds"
    assert 240 <= int(seconds) <= 360
    assert len(server.heads) == 1


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
async def test_events_are_whole_however_the_network_cuts_them(size: int) -> None:
    stream = b"\n".join([event(number, text="é\\n" * number) for number in range(20)]) + b"\r\n\n"
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    seen: list[int] = []
    async with talking(saying(chunked(*pieces) + end())) as (client, _):
        await watch(client, seen)
    assert seen == list(range(20))


@pytest.mark.parametrize("ending", [end(), b""])
async def test_an_event_cut_in_two_is_not_an_end(ending: bytes) -> None:
    seen: list[int] = []
    async with talking(hanging_up_after(chunked(event(1), event(2)[:-10]) + ending)) as (client, _):
        with pytest.raises(UnreachableError):
            await watch(client, seen)
    assert seen == [1]


async def test_a_stream_that_breaks_between_events_is_not_an_end() -> None:
    seen: list[int] = []
    async with talking(hanging_up_after(chunked(event(1)))) as (client, _):
        with pytest.raises(UnreachableError, match="the watch broke"):
            await watch(client, seen)
    assert seen == [1]


@pytest.mark.parametrize("line", [b"<html>\n", b"[1]\n", b'{"a": }\n', b"\xff\xfe\n"])
async def test_a_line_that_is_no_event_is_not_passed_on(line: bytes) -> None:
    seen: list[int] = []
    async with talking(silent_after(chunked(event(1), line))) as (client, _):
        with pytest.raises(UnreachableError, match="not an API server"):
            await watch(client, seen)
    assert seen == [1]


async def test_an_event_as_large_as_any_object_passes() -> None:
    seen: list[int] = []
    async with talking(saying(chunked(event(1, text="x" * 4_000_000)) + end())) as (client, _):
        await watch(client, seen)
    assert seen == [1]


async def test_a_line_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_LINE_BYTES", 1000)
    async with talking(silent_after(chunked(b"x" * 1001))) as (client, _):
        with pytest.raises(UnreachableError, match="an event of more than 1000 bytes"):
            await watch(client, [])


async def test_a_refused_watch_is_an_error_of_its_kind() -> None:
    answers = (whole(b'{"reason": "Expired"}', "410 Gone"), whole(b"{}", "403 Forbidden"))
    async with talking(saying(*answers)) as (client, _):
        with pytest.raises(GoneError):
            await watch(client, [])
        with pytest.raises(ForbiddenError):
            await watch(client, [])


async def test_a_watch_that_the_server_does_not_end_in_time_is_given_up(mock_clock: trio.testing.MockClock) -> None:
    async with (
        talking(silent_after(chunked(event(1)))) as (client, server),
        client.watch("/x", {"timeoutSeconds": 60}) as events,
    ):
        await anext(events)
        begin = trio.current_time()
        with pytest.raises(UnreachableError, match="the watch broke"):
            await anext(events)
        assert 90 <= trio.current_time() - begin < 91
    assert server.heads[0].startswith("GET /x?timeoutSeconds=60&watch=true ")


async def test_a_quiet_watch_stays(mock_clock: trio.testing.MockClock) -> None:
    async def answer(stream: trio.abc.Stream, _head: str) -> None:
        await stream.send_all(chunked())
        await trio.sleep(240)
        await stream.send_all(end())

    seen: list[int] = []
    async with talking(answer) as (client, _):
        await watch(client, seen)
    assert seen == []


async def test_a_watch_with_a_bookmark_every_minute_stays(mock_clock: trio.testing.MockClock) -> None:
    async def answer(stream: trio.abc.Stream, _head: str) -> None:
        await stream.send_all(chunked())
        for number in range(10):
            await trio.sleep(60)
            await stream.send_all(chunk(event(number)))
        await stream.send_all(end())

    seen: list[int] = []
    async with talking(answer) as (client, _):
        await watch(client, seen)
    assert seen == list(range(10))


@pytest.mark.parametrize("part", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\n{"])
async def test_a_watch_that_does_not_begin_is_given_up_after_thirty_seconds(
    part: bytes, mock_clock: trio.testing.MockClock
) -> None:
    async with talking(silent_after(part)) as (client, _):
        begin = trio.current_time()
        with pytest.raises(UnreachableError, match="no complete answer within 30 s"):
            await watch(client, [])
        assert 30 <= trio.current_time() - begin < 31


async def test_leaving_a_watch_closes_its_connection() -> None:
    async with talking(silent_after(chunked(event(1), event(2)))) as (client, server):
        async with client.watch("/x", {}) as events:
            assert (await anext(events))["object"]["number"] == 1
        with trio.fail_after(20):
            await server.closed.wait()


async def test_a_cancelled_watch_ends_at_once_and_closes_its_connection() -> None:
    async with talking(silent_after(chunked(event(1)))) as (client, server):
        received = trio.Event()

        async def follow() -> None:
            async with client.watch("/x", {}) as events:
                async for _ in events:
                    received.set()

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow)
                await received.wait()
                assert not server.closed.is_set()
                nursery.cancel_scope.cancel()
            await server.closed.wait()


async def test_requests_continue_beside_a_watch() -> None:
    async def answer(stream: trio.abc.Stream, head: str) -> None:
        if "watch=true" in head:
            await stream.send_all(chunked(event(1)))
            await stream.receive_some()
        else:
            await stream.send_all(whole(b'{"a": 1}'))

    async with talking(answer) as (client, _), client.watch("/x", {}) as events:
        await anext(events)
        assert await client.get("/y") == {"a": 1}
