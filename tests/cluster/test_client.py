"""The program's HTTP client against the real thing: what its unit tests only assume of an API server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import (
    ApiError,
    ConflictError,
    CredentialsError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    UnreachableError,
    error_in,
)
from config.desired import Secret
from tests.cluster.harness import (
    MANAGER,
    PATIENCE,
    ClusterServer,
    both_versions,
    kube,
    make,
    make_namespace,
    service_account,
)

Json = dict[str, Any]
#: Far below what a request may take (30 s), far above what a busy machine delays.
QUICKLY = 10.0
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def config_map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def who(client: KubeClient) -> Json:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    return dict((await client.create(REVIEWS, body))["status"]["userInfo"])


@both_versions
async def test_the_server_answers(server: ClusterServer) -> None:
    async with kube(server.admin) as client:
        assert await client.text("/readyz") == "ok"
        assert (await client.get("/version"))["gitVersion"] == f"v{server.release.version}"


@both_versions
async def test_all_three_ways_to_say_who_we_are(server: ClusterServer, namespace: str) -> None:
    async with kube(server.admin) as client:
        assert (await who(client))["username"] == "admin"
        account = await service_account(client, namespace, "robot")
    async with kube(account) as client:
        assert (await who(client))["username"] == f"system:serviceaccount:{namespace}:robot"
    async with kube(server.credentials("system:node:a", ["system:nodes", "a/b"])) as client:
        me = await who(client)
    assert me["username"] == "system:node:a"
    assert {"system:nodes", "a/b"} <= set(me["groups"])


async def test_unknown_and_unauthorised_are_distinguished(server: ClusterServer) -> None:
    async with kube(replace(server.admin, token=Secret("nobodys"))) as client:
        with pytest.raises(CredentialsError):
            await client.get("/api/v1/nodes")
        with pytest.raises(CredentialsError):
            async with client.watch("/api/v1/nodes", {}):
                pytest.fail("an unknown user may watch")
    async with kube(server.credentials("known")) as client:
        with pytest.raises(ForbiddenError, match='User "known" cannot list resource "nodes"'):
            await client.get("/api/v1/nodes")
        with pytest.raises(ForbiddenError):
            async with client.watch("/api/v1/nodes", {}):
                pytest.fail("a user without rights may watch")


async def test_another_name_of_the_server_is_checked_against_its_certificate(server: ClusterServer) -> None:
    async with kube(replace(server.admin, server_name="localhost")) as client:
        assert await client.text("/readyz") == "ok"
    async with kube(replace(server.admin, server_name="elsewhere")) as client:
        with pytest.raises(UnreachableError, match="certificate"):
            await client.text("/readyz")


@both_versions
async def test_pages_are_one_moment_of_a_list(server: ClusterServer, namespace: str) -> None:
    path = config_maps(namespace)
    async with kube(server.admin) as client:
        for number in range(5):
            await client.create(path, config_map(f"c{number}"))
        names: list[str] = []
        versions = set()
        async for page in client.pages(path, limit=2):
            names += [item["metadata"]["name"] for item in page["items"]]
            versions.add(page["metadata"]["resourceVersion"])
            # What comes later belongs to the watch that begins at this version.
            await make(client, path, config_map("c9"))
    assert names == ["c0", "c1", "c2", "c3", "c4"]
    assert len(versions) == 1


@both_versions
async def test_a_page_after_history_was_forgotten_is_gone(server: ClusterServer, namespace: str) -> None:
    path = config_maps(namespace)
    async with kube(server.admin) as client:
        for number in range(3):
            await client.create(path, config_map(f"c{number}"))
        pages = client.pages(path, limit=1)
        await anext(pages)
        await client.create(path, config_map("more"))
        await forget(server)
        with pytest.raises(GoneError) as caught:
            await anext(pages)
    assert caught.value.reason == "Expired"


async def forget(server: ClusterServer) -> None:
    """Let history be forgotten. What it has seen itself, only a server that begins again forgets."""
    await trio.to_thread.run_sync(server.compact)
    await trio.to_thread.run_sync(server.stop)
    await trio.to_thread.run_sync(server.start)


async def watch_error(client: KubeClient, path: str) -> ApiError | None:
    """Watch from the beginning of time: the server answers HTTP 410, or HTTP 200 and an ERROR event."""
    try:
        async with client.watch(path, {"resourceVersion": "1"}) as events:
            return error_in(await anext(events))
    except ApiError as error:
        return error


async def next_of(events: Any) -> tuple[str, str]:
    with trio.fail_after(PATIENCE):
        event = await anext(events)
    return event["type"], event["object"]["metadata"].get("name", "")


@both_versions
async def test_a_watch_reports_what_happens_after_the_list(server: ClusterServer, namespace: str) -> None:
    path = config_maps(namespace)
    async with kube(server.admin) as client:
        await client.create(path, config_map("before"))
        version = (await client.get(path))["metadata"]["resourceVersion"]
        async with client.watch(path, {"resourceVersion": version}) as events:
            await client.create(path, config_map("a"))
            await client.merge_patch(f"{path}/a", {"data": {"x": "1"}}, manager=MANAGER)
            await client.delete(f"{path}/a")
            assert [await next_of(events) for _ in range(3)] == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


@both_versions
async def test_a_quiet_watch_ends_when_it_said(server: ClusterServer, namespace: str) -> None:
    path = config_maps(namespace)
    async with kube(server.admin) as client:
        version = (await client.get(path))["metadata"]["resourceVersion"]
        begin = trio.current_time()
        async with client.watch(path, {"resourceVersion": version, "timeoutSeconds": 2}) as events:
            with trio.fail_after(PATIENCE):
                assert [event async for event in events] == []
        assert trio.current_time() - begin > 1.5


@both_versions
async def test_a_watch_gets_a_bookmark_before_its_end(server: ClusterServer, namespace: str) -> None:
    path = config_maps(namespace)
    async with kube(server.admin) as client:
        version = (await client.get(path))["metadata"]["resourceVersion"]
        await make_namespace(client, "elsewhere")
        # It does not concern the watch, but it moves the version of the resource.
        params = {"resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": 4}
        async with client.watch(path, params) as events:
            made = await client.apply(f"{config_maps('elsewhere')}/a", config_map("a", at=version), manager=MANAGER)
            with trio.fail_after(PATIENCE):
                seen = [event async for event in events]
    assert {event["type"] for event in seen} == {"BOOKMARK"}
    bookmark = seen[-1]["object"]["metadata"]["resourceVersion"]
    assert int(bookmark) >= int(made["metadata"]["resourceVersion"]) > int(version)


@both_versions
async def test_a_watch_from_forgotten_history_is_gone(server: ClusterServer, namespace: str) -> None:
    path = config_maps(namespace)
    async with kube(server.admin) as client:
        await client.create(path, config_map("a"))
        await forget(server)
        with trio.fail_after(PATIENCE):
            assert isinstance(await watch_error(client, path), GoneError)


@both_versions
async def test_apply_takes_fields_and_gives_them_back(server: ClusterServer, namespace: str) -> None:
    path = f"{config_maps(namespace)}/a"
    async with kube(server.admin) as client:
        first = await client.apply(path, config_map("a", x="1", y="2"), manager="one")
        again = await client.apply(path, config_map("a", x="1", y="2"), manager="one")
        assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        assert (await client.apply(path, config_map("a", x="1"), manager="one"))["data"] == {"x": "1"}
        assert (await client.apply(path, config_map("a", x="9"), manager="two"))["data"] == {"x": "9"}


async def test_refusals_are_distinguished(server: ClusterServer, namespace: str) -> None:
    path = config_maps(namespace)
    async with kube(server.admin) as client:
        with pytest.raises(NotFoundError):
            await client.get(f"{path}/nothing")
        with pytest.raises(NotFoundError):
            await client.get("/apis/no.such.group/v1/things")
        with pytest.raises(InvalidError):
            await client.create(path, config_map("Not A Name"))
        with pytest.raises(InvalidError):
            await client.create(path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})
        made = await client.create(path, config_map("a"))
        with pytest.raises(ConflictError) as caught:
            await client.create(path, config_map("a"))
        assert caught.value.reason == "AlreadyExists"
        await client.replace(f"{path}/a", {**made, "data": {"x": "1"}})
        with pytest.raises(ConflictError) as caught:
            await client.replace(f"{path}/a", {**made, "data": {"x": "2"}})
        assert caught.value.reason == "Conflict"


async def test_deletion_may_depend_on_the_object_being_the_same(server: ClusterServer, namespace: str) -> None:
    path = config_maps(namespace)
    async with kube(server.admin) as client:
        old = (await client.create(path, config_map("a")))["metadata"]
        await client.merge_patch(f"{path}/a", {"data": {"x": "1"}}, manager=MANAGER)
        with pytest.raises(ConflictError):
            await client.delete(f"{path}/a", resource_version=old["resourceVersion"])
        with pytest.raises(ConflictError):
            await client.delete(f"{path}/a", uid="00000000-0000-0000-0000-000000000000")
        await client.delete(f"{path}/a", uid=old["uid"])
        with pytest.raises(NotFoundError):
            await client.delete(f"{path}/a")


async def test_a_stopped_server_breaks_the_watch_and_answers_again_later(server: ClusterServer, namespace: str) -> None:
    path = config_maps(namespace)
    async with kube(server.admin) as client:
        await client.create(path, config_map("kept"))
        async with client.watch(path, {}) as events:
            assert await next_of(events) == ("ADDED", "kept")
            await trio.to_thread.run_sync(server.stop)
            with trio.fail_after(PATIENCE), pytest.raises(UnreachableError):
                await anext(events)
        with trio.fail_after(PATIENCE), pytest.raises(UnreachableError, match="refused"):
            await client.get(path)
        await trio.to_thread.run_sync(server.start)
        assert (await client.get(f"{path}/kept"))["metadata"]["name"] == "kept"


async def test_a_silent_server_does_not_delay_the_close(server: ClusterServer, namespace: str) -> None:
    path = config_maps(namespace)
    async with kube(server.admin) as client:
        await client.get(path)
        async with client.watch(path, {}):
            server.pause()
            for wait in (client.get(path), client.create(path, config_map("a", text="x" * 900_000))):
                with trio.move_on_after(0.2) as scope:
                    await wait
                assert scope.cancelled_caught
            begin = trio.current_time()
        assert trio.current_time() - begin < QUICKLY
        begin = trio.current_time()
    assert trio.current_time() - begin < QUICKLY


async def test_the_audit_log_has_a_users_requests(server: ClusterServer, namespace: str) -> None:
    path = config_maps(namespace)
    async with kube(server.credentials("asker", ["system:masters"])) as client:
        await client.apply(f"{path}/a", config_map("a"), manager=MANAGER)
        async with client.watch(path, {}):
            pass
        with pytest.raises(NotFoundError):
            await client.get(f"{path}/nothing")
    logged = [(one.verb, one.resource, one.namespace, one.name, one.code) for one in server.requests("asker")]
    assert logged == [
        ("patch", "configmaps", namespace, "a", 201),
        ("watch", "configmaps", namespace, "", 200),
        ("get", "configmaps", namespace, "nothing", 404),
    ]


@both_versions
async def test_our_definitions_are_served(server: ClusterServer, crds: list[str]) -> None:
    async with kube(server.admin) as client:
        for name in crds:
            plural, _, group = name.partition(".")
            assert (await client.get(f"/apis/{group}/v1alpha1/{plural}"))["items"] is not None
