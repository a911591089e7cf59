"""The webhook over TLS on the loopback, with an API server in memory: objects, certificates, requests, the end."""

from __future__ import annotations

import base64
import json
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import h11
import pytest
import trio
import trio.testing

from actors.lib.kube.client import Json, KubeClient, Params
from actors.lib.kube.errors import ConflictError, NotFoundError, error_for
from actors.webhook import follow, rotation, server
from actors.webhook.certificates import Stored, next_step, stored_in
from actors.webhook.follow import ClusterObjects
from actors.webhook.rotation import Storage, look_after
from config.api import PLURALS, ApiCredentials
from config.problems import Kind
from config.resolve.grants import Grants
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from supervisor.runtime.faults import DependencyFault
from tests.fakes.api_server import FakeApiServer

from .test_admission import asked, encoded

OWN = "openperouter-system"
NOW = datetime.now(UTC).replace(microsecond=0)
UNDERLAY = {
    "asn": 64514,
    "interfaces": [{"type": "NetworkDevice", "networkDevice": {"interfaceName": "toswitch1"}}],
    "neighbors": [{"asn": 64512, "address": "192.168.11.2"}],
    "tunnelEndpoint": {"cidrs": ["100.65.0.0/24"]},
}


def certificates() -> Stored:
    made = next_step(None, "", ("127.0.0.1",), NOW)
    assert made is not None
    return made


class Client:
    """A connection of an API server: any number of requests, one after another."""

    def __init__(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        self.stream = stream
        self._connection = h11.Connection(h11.CLIENT)

    async def ask(self, path: str, body: bytes | None = None, *more: tuple[str, str]) -> tuple[int, bytes]:
        """Return status and body of the answer."""
        headers = [("Host", "webhook"), ("Content-Length", str(len(body or b""))), *more]
        out = self._connection.send(h11.Request(method="POST" if body else "GET", target=path, headers=headers)) or b""
        out += self._connection.send(h11.Data(data=body or b"")) or b""
        await self.stream.send_all(out + (self._connection.send(h11.EndOfMessage()) or b""))
        return await self.answer()

    async def answer(self) -> tuple[int, bytes]:
        status, data = 0, b""
        while True:
            event = self._connection.next_event()
            if event is h11.NEED_DATA:
                self._connection.receive_data(await self.stream.receive_some(65536))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                data += event.data
            elif isinstance(event, h11.EndOfMessage):
                if self._connection.our_state is h11.DONE and self._connection.their_state is h11.DONE:
                    self._connection.start_next_cycle()
                return status, data


class Service:
    """A running server, its channels, and connections to it."""

    def __init__(self) -> None:
        self.known: Latest[ClusterObjects] = Latest("known")
        self.certificates: Latest[Stored] = Latest("certificates")
        self.port = 0
        self.opened = trio.Event()
        self.scope = trio.CancelScope()

    def open(self, port: int) -> None:
        self.port = port
        self.opened.set()

    async def run(self) -> None:
        with self.scope:
            await server.run(
                ActorContext("server"),
                host="127.0.0.1",
                port=0,
                grants=Grants(OWN),
                known=self.known.reader(),
                certificates=self.certificates.reader(),
                opened=self.open,
            )

    @asynccontextmanager
    async def connected(self, bundle: str) -> AsyncIterator[Client]:
        tcp = await trio.open_tcp_stream("127.0.0.1", self.port)
        context = ssl.create_default_context(cadata=bundle)
        async with trio.SSLStream(tcp, context, server_hostname="127.0.0.1", https_compatible=True) as stream:
            yield Client(stream)


@asynccontextmanager
async def service() -> AsyncIterator[Service]:
    running = Service()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.run)
        await running.opened.wait()
        yield running
        nursery.cancel_scope.cancel()


def whole(fake: FakeApiServer) -> ClusterObjects:
    """Return the picture of a cluster with a node, an underlay and a network, which is followed."""
    fake.put_node("node-a")
    fake.put_kind(Kind.UNDERLAY, "fabric", UNDERLAY, namespace=OWN)
    fake.put_kind(Kind.L3VNI, "blue", {"vrf": "blue", "vni": 1}, namespace="tenant")
    known = ClusterObjects(OWN)
    for one in known.reflectors:
        listed = one.store.fresh()
        for raw in fake.find(f"/{one.resource}/"):
            listed.put(raw)
        one.store.replace(listed)
        one.listed(str(fake.version))
        one.down_since = None
    return known


def decision(answer: tuple[int, bytes]) -> dict[str, Any]:
    assert answer[0] == 200, answer
    response: dict[str, Any] = json.loads(answer[1])["response"]
    return response


async def test_reviews_are_answered_one_after_another_on_one_connection() -> None:
    async with service() as running:
        stored = certificates()
        running.certificates.set(stored)
        async with running.connected(stored.bundle) as client:
            assert (await client.ask("/healthz"))[0] == 200
            assert (await client.ask("/readyz"))[0] == 503
            assert (await client.ask("/validate", encoded(asked())))[0] == 503
            running.known.set(whole(FakeApiServer()))
            assert (await client.ask("/readyz"))[0] == 200
            denied = decision(await client.ask("/validate?timeout=5s", encoded(asked())))
            assert not denied["allowed"]
            assert "VNI 1 is also used by L3VNI tenant/blue" in denied["status"]["message"]
            other = {"metadata": {"name": "red", "namespace": "tenant"}, "spec": {"vrf": "red", "vni": 2}}
            assert decision(await client.ask("/validate", encoded(asked(object=other))))["allowed"]
            assert (await client.ask("/validate", b"nonsense"))[0] == 400
            assert (await client.ask("/elsewhere"))[0] == 404
            assert (await client.ask("/validate", encoded(asked()), ("Expect", "100-continue")))[0] == 200


async def test_an_old_picture_of_the_cluster_denies_nothing() -> None:
    async with service() as running:
        stored, known = certificates(), whole(FakeApiServer())
        running.certificates.set(stored)
        running.known.set(known)
        async with running.connected(stored.bundle) as client:
            assert not decision(await client.ask("/validate", encoded(asked())))["allowed"]
            known.node.down_since = trio.current_time() - 60
            assert (await client.ask("/validate", encoded(asked())))[0] == 503
            assert (await client.ask("/readyz"))[0] == 503


@pytest.mark.parametrize(
    ("head", "status"),
    [("HEAD /healthz", 200), ("HEAD /validate", 400), ("CONNECT /healthz", 405), ("PUT /validate", 405)],
)
async def test_any_method_is_answered_and_no_other_connection_suffers(head: str, status: int) -> None:
    stored = certificates()
    async with service() as running:
        running.certificates.set(stored)
        running.known.set(whole(FakeApiServer()))
        async with running.connected(stored.bundle) as other, running.connected(stored.bundle) as client:
            await client.stream.send_all(f"{head} HTTP/1.1\r\nHost: webhook\r\n\r\n".encode())
            answer = await client.stream.receive_some(65536)
            assert answer.startswith(f"HTTP/1.1 {status} ".encode())
            assert answer.endswith(b"\r\n\r\n") == head.startswith("HEAD")
            assert (await other.ask("/healthz"))[0] == 200


async def test_a_body_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_BODY_BYTES", 1000)
    async with service() as running:
        stored = certificates()
        running.certificates.set(stored)
        running.known.set(whole(FakeApiServer()))
        async with running.connected(stored.bundle) as client:
            assert (await client.ask("/validate", b"x" * 5000))[0] == 413
        async with running.connected(stored.bundle) as client:
            assert (await client.ask("/healthz"))[0] == 200


async def test_a_head_without_end_is_refused() -> None:
    async with service() as running:
        stored = certificates()
        running.certificates.set(stored)
        async with running.connected(stored.bundle) as client:
            head = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: "
            await client.stream.send_all(head.ljust(server.MOST_HEADER_BYTES + 1, b"x"))
            received = await client.stream.receive_some(65536)
            assert received.startswith(b"HTTP/1.1 431 ")


async def test_anyone_who_reaches_the_port_can_fill_a_bounded_part_of_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No certificate is asked for: bodies but for their last byte, on as many connections as there may be."""
    monkeypatch.setattr(server, "MOST_BODIES_BYTES", 10_000)
    monkeypatch.setattr(server, "REQUEST_SECONDS", 600.0)
    async with service() as running, AsyncExitStack() as stack:
        stored = certificates()
        running.certificates.set(stored)
        running.known.set(whole(FakeApiServer()))
        head = b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: 4001\r\n\r\n"
        clients = [await stack.enter_async_context(running.connected(stored.bundle)) for _ in range(3)]
        for client in clients[:2]:
            await client.stream.send_all(head + b"x" * 4000)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert (await clients[2].ask("/validate", b"x" * 4001))[0] == 503
        # What was answered, or given up, makes room.
        for client in clients[:2]:
            await client.stream.send_all(b"x")
            assert (await client.answer())[0] == 400
        async with running.connected(stored.bundle) as client:
            assert decision(await client.ask("/validate", encoded(asked())))["uid"]


async def test_a_new_certificate_is_served_to_new_connections_and_the_old_ones_stay() -> None:
    async with service() as running:
        first, second = certificates(), certificates()
        running.certificates.set(first)
        async with running.connected(first.bundle) as old:
            assert (await old.ask("/healthz"))[0] == 200
            running.certificates.set(second)
            async with running.connected(second.bundle) as new:
                assert (await new.ask("/healthz"))[0] == 200
            assert (await old.ask("/healthz"))[0] == 200
            with pytest.raises(trio.BrokenResourceError):
                async with running.connected(first.bundle) as refused:
                    await refused.ask("/healthz")


async def test_without_a_certificate_and_with_garbage_connections_end_and_others_do_not_care() -> None:
    async with service() as running:
        async with await trio.open_tcp_stream("127.0.0.1", running.port) as early:
            assert await early.receive_some(1) == b""
        stored = certificates()
        running.certificates.set(stored)
        async with await trio.open_tcp_stream("127.0.0.1", running.port) as plain:
            await plain.send_all(b"GET /healthz HTTP/1.1\r\n\r\n")
            while await plain.receive_some(1000):
                pass
        async with running.connected(stored.bundle) as client:
            assert (await client.ask("/healthz"))[0] == 200


async def test_a_stop_answers_what_was_asked_and_takes_nothing_more() -> None:
    async with service() as running:
        stored = certificates()
        running.certificates.set(stored)
        running.known.set(whole(FakeApiServer()))
        body = encoded(asked())
        async with running.connected(stored.bundle) as client:
            head = f"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            assert (await client.ask("/healthz"))[0] == 200
            await client.stream.send_all(head + body[:10])
            await trio.testing.wait_all_tasks_blocked(0.05)
            running.scope.cancel()
            await trio.testing.wait_all_tasks_blocked(0.05)
            with pytest.raises(OSError):
                await trio.open_tcp_stream("127.0.0.1", running.port)
            await client.stream.send_all(body[10:])
            received = b""
            with suppress(trio.BrokenResourceError):
                while data := await client.stream.receive_some(65536):
                    received += data
            assert b"200" in received.split(b"\r\n")[0]
            assert b"is also used by" in received


async def test_a_port_that_is_taken_is_a_fault() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(DependencyFault):
            await server.run(
                ActorContext("server"),
                host="127.0.0.1",
                port=taken.getsockname()[1],
                grants=Grants(OWN),
                known=Latest[ClusterObjects]("known").reader(),
                certificates=Latest[Stored]("certificates").reader(),
            )


@asynccontextmanager
async def followed(fake: FakeApiServer) -> AsyncIterator[ClusterObjects]:
    """Yield the picture of a server's objects, which follows them."""
    credentials: Latest[ApiCredentials] = Latest("credentials")
    credentials.set(fake.credentials())
    out: Latest[ClusterObjects] = Latest("known")
    async with trio.open_nursery() as nursery:
        actor = follow.run
        nursery.start_soon(
            lambda: actor(
                ActorContext("follow"),
                namespace=OWN,
                credentials=credentials.reader(),
                out=out,
                connect=fake.connect,
            )
        )
        yield await out.reader().receive()
        nursery.cancel_scope.cancel()


async def reached(check: Callable[[], bool]) -> None:
    """Wait until a condition holds, on the virtual clock."""
    with trio.fail_after(600):
        while not check():  # noqa: ASYNC110
            await trio.sleep(0.5)


def names(known: ClusterObjects) -> set[str]:
    return {one.id.name for one in known.objects}


async def test_objects_and_nodes_are_followed_through_changes_and_failures(autojump_clock: object) -> None:
    fake = FakeApiServer()
    fake.put_node("node-a")
    fake.put_kind(Kind.L3VNI, "red", {"vrf": "red", "vni": 1}, namespace="tenant")
    async with followed(fake) as known:
        await reached(lambda: known.ready)
        assert names(known) == {"red"}
        fake.put_kind(Kind.L3VNI, "blue", {"vrf": "blue", "vni": 2}, namespace="tenant")
        fake.put_node("node-b")
        await reached(lambda: names(known) == {"red", "blue"} and len(known.nodes) == 2)
        fake.delete_kind(Kind.L3VNI, "red", namespace="tenant")
        await reached(lambda: names(known) == {"blue"})
        # What is deleted while the history is lost is missing from the next list.
        fake.stop()
        fake.delete_kind(Kind.L3VNI, "blue", namespace="tenant")
        await trio.sleep(5)
        assert known.ready, "a server's restart is no reason to admit everything"
        await trio.sleep(120)
        # A decision from what is so old could deny a network because of one that was deleted.
        assert not known.ready
        assert names(known) == {"blue"}
        fake.compact()
        fake.start()
        await reached(lambda: known.ready)
        assert names(known) == set()


async def test_nothing_is_decided_from_a_collection_that_is_no_longer_followed(autojump_clock: object) -> None:
    fake = FakeApiServer()
    fake.put_node("node-a")
    async with followed(fake) as known:
        await reached(lambda: known.ready)
        for code, reason in ((403, "Forbidden"), (429, ""), (500, "")):
            error = error_for(code, reason, "no")
            fake.trouble = lambda verb, path, error=error: error if "l2vnis" in path else None  # type: ignore[misc]
            fake.break_watches()
            await reached(lambda: not known.ready)
            fake.put_kind(Kind.L3VNI, f"during-{code}", {"vrf": "red", "vni": code}, namespace="tenant")
            fake.trouble = lambda verb, path: None
            await reached(lambda: known.ready)
        assert names(known) == {"during-403", "during-429", "during-500"}


async def test_a_watch_continues_without_a_list_and_a_busy_server_gets_none(autojump_clock: object) -> None:
    fake = FakeApiServer()
    fake.put_node("node-a")
    async with followed(fake) as known:
        await reached(lambda: known.ready)
        lists = fake.requests_of("list")
        assert sorted(lists) == sorted(["nodes", *PLURALS.values()])
        busy = error_for(429, "", "busy")
        fake.trouble = lambda verb, path: busy if verb == "watch" else None
        fake.break_watches()
        await trio.sleep(30)
        fake.put_node("node-b")
        fake.trouble = lambda verb, path: None
        await reached(lambda: known.ready and len(known.nodes) == 2)
        assert fake.requests_of("list") == lists


async def test_a_removed_kinds_objects_stay_in_force_on_the_nodes_and_count(autojump_clock: object) -> None:
    fake = FakeApiServer()
    fake.put_node("node-a")
    fake.put_kind(Kind.L3VNI, "red", {"vrf": "red", "vni": 1}, namespace="tenant")
    async with followed(fake) as known:
        await reached(lambda: known.ready)
        missing = error_for(404, "", "404 page not found")
        fake.trouble = lambda verb, path: missing if "l3vnis" in path else None
        fake.break_watches(missing)
        await trio.sleep(60)
        assert known.ready
        assert names(known) == {"red"}
        fake.delete_kind(Kind.L3VNI, "red", namespace="tenant")
        fake.trouble = lambda verb, path: None
        await reached(lambda: names(known) == set())


async def test_a_kind_that_is_not_installed_has_no_objects_and_a_refused_one_is_awaited(autojump_clock: object) -> None:
    fake = FakeApiServer()
    fake.put_node("node-a")
    missing = error_for(404, "", "404 page not found")
    fake.trouble = lambda verb, path: missing if "l3passthroughs" in path else None
    async with followed(fake) as known:
        await reached(lambda: known.ready)
    fake = FakeApiServer()
    refused = error_for(403, "Forbidden", "no")
    fake.trouble = lambda verb, path: refused if "l2vnis" in path else None
    async with followed(fake) as known:
        await trio.sleep(300)
        assert not known.ready
        fake.trouble = lambda verb, path: None
        await reached(lambda: known.ready)


class Store(KubeClient):
    """A Secret and a configuration, with versions."""

    def __init__(self) -> None:
        super().__init__(ApiCredentials("https://192.0.2.1"))
        self.place = Storage(OWN, names=("127.0.0.1",))
        self.writes: list[str] = []
        self.objects: dict[str, Json] = {
            self.place.secret_path: {"metadata": {"resourceVersion": "1"}},
            self.place.configuration_path: {
                "metadata": {"resourceVersion": "1"},
                "webhooks": [{"name": "a", "clientConfig": {"url": "https://x"}}],
            },
        }

    async def get(self, path: str, params: Params | None = None) -> Json:
        await trio.lowlevel.checkpoint()
        if path not in self.objects:
            raise NotFoundError(path)
        return dict(self.objects[path])

    async def replace(self, path: str, body: Json, params: Params | None = None) -> Json:
        await trio.lowlevel.checkpoint()
        version = self.objects[path]["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != version:
            raise ConflictError(path)
        self.objects[path] = {**body, "metadata": {"resourceVersion": str(int(version) + 1)}}
        self.writes.append(path)
        return self.objects[path]

    @property
    def trusted(self) -> str:
        [one] = self.objects[self.place.configuration_path]["webhooks"]
        return base64.b64decode(one["clientConfig"]["caBundle"]).decode()


async def test_the_first_replica_issues_and_the_others_serve_the_same() -> None:
    store = Store()
    outs: list[Latest[Stored]] = [Latest(f"certificates {number}") for number in range(3)]
    settled: list[bool] = []

    async def one_pass(out: Latest[Stored]) -> None:
        settled.append(await look_after(store, store.place, out, NOW))

    while not all(settled[-3:]) or not settled:
        async with trio.open_nursery() as nursery:
            for out in outs:
                nursery.start_soon(one_pass, out)
    stored = stored_in(store.objects[store.place.secret_path]["data"])
    assert stored is not None
    assert [out.peek() for out in outs] == [stored] * 3
    assert store.trusted == stored.bundle
    assert sorted(store.writes) == sorted([store.place.secret_path, store.place.configuration_path])


@pytest.mark.parametrize(
    "bundle",
    ["%%%", base64.b64encode(b"-----BEGIN CERTIFICATE-----\nbm9uc2Vuc2U=\n-----END CERTIFICATE-----\n").decode()],
)
async def test_what_others_change_in_the_configuration_is_put_right_and_the_rest_is_left(bundle: str) -> None:
    store, out = Store(), Latest[Stored]("certificates")
    while not await look_after(store, store.place, out, NOW):
        pass
    [one] = store.objects[store.place.configuration_path]["webhooks"]
    one["clientConfig"]["caBundle"] = bundle
    one["timeoutSeconds"] = 3
    assert not await look_after(store, store.place, out, NOW)
    assert await look_after(store, store.place, out, NOW)
    [one] = store.objects[store.place.configuration_path]["webhooks"]
    assert one["timeoutSeconds"] == 3
    assert one["clientConfig"]["url"] == "https://x"
    stored = out.peek()
    assert stored is not None
    assert store.trusted == stored.bundle


async def test_a_missing_secret_is_an_error_and_nothing_is_written() -> None:
    store = Store()
    del store.objects[store.place.secret_path]
    with pytest.raises(NotFoundError):
        await look_after(store, store.place, Latest("certificates"), NOW)
    assert store.writes == []


async def test_a_failure_is_logged_when_it_begins_and_ends(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    store, out = Store(), Latest[Stored]("certificates")
    secret = store.objects.pop(store.place.secret_path)
    credentials: Latest[ApiCredentials] = Latest("credentials")
    credentials.set(store.credentials)
    caplog.set_level(logging.INFO, "openperouter.webhook")

    async def renewing() -> None:
        reader, ctx = credentials.reader(), ActorContext("rotation")
        await rotation.run(ctx, storage=store.place, credentials=reader, out=out, connect=lambda _: store)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(renewing)
        await trio.sleep(30)
        [begin] = caplog.messages
        assert "cannot renew the webhook's certificates; the last ones stay in use" in begin
        store.objects[store.place.secret_path] = secret
        await reached(lambda: out.peek() is not None)
        nursery.cancel_scope.cancel()
    assert any("can be renewed again" in one for one in caplog.messages)
