"""What the actors rely on an API server to do: checked on the one in memory and, in tests/cluster, on the real one.

Each function takes a server with a namespace in which nothing is. The object ``red`` is an L3VNI with a host session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest
import trio

from actors.lib.kube.client import Json, KubeClient, Params
from actors.lib.kube.errors import ConflictError, ForbiddenError, GoneError, InvalidError, NotFoundError
from config.api import API_VERSION, NODE_STATUS_KIND, NODE_STATUS_PLURAL

MANAGER: Final = "openperouter-tests"
LABEL: Final = "openperouter.github.io/tested"
OTHER_MANAGER: Final = "openperouter-tests-other"
OWNER: Final = {"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "11111111-2222-3333-4444-555555555555"}


@dataclass(frozen=True)
class ServerUnderTest:
    """A server: an administrator's client, one that RBAC allows nothing, and how to let history be forgotten."""

    client: KubeClient
    unprivileged: KubeClient
    namespace: str
    forget: Callable[[], Awaitable[None]]

    @property
    def l3vnis(self) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/l3vnis"

    @property
    def red(self) -> str:
        return f"{self.l3vnis}/red"

    @property
    def status(self) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/{NODE_STATUS_PLURAL}/node"

    def body(self, name: str = "red", **spec: Any) -> Json:
        session = {"asn": 64514, "hostASN": 64515, "localCIDR": {"ipv4": "192.0.2.0/24"}}
        metadata = {
            "name": name,
            "namespace": self.namespace,
            "ownerReferences": [OWNER],
            "annotations": {"a": "b"},
        }
        return {
            "apiVersion": API_VERSION,
            "kind": "L3VNI",
            "metadata": metadata,
            "spec": {"vrf": "red", "vni": 100, "hostSession": session} | spec,
        }

    async def create(self, name: str = "red") -> Json:
        return await self.client.create(self.l3vnis, self.body(name), {"fieldManager": MANAGER})

    async def patch(self, change: Json) -> Json:
        return await self.client.merge_patch(self.red, change, manager=MANAGER)

    async def version(self) -> str:
        return version(await self.client.get(self.l3vnis))

    async def apply(self, content: Json | None = None, manager: str = MANAGER, **metadata: Any) -> Json:
        """Apply the node's status object, or with content its status."""
        head = {"apiVersion": API_VERSION, "kind": NODE_STATUS_KIND, "metadata": {"name": "node", **metadata}}
        if content is None:
            return await self.client.apply(self.status, head, manager=manager)
        return await self.client.apply(f"{self.status}/status", {**head, "status": content}, manager=manager)


Clause = Callable[[ServerUnderTest], Awaitable[None]]


def version(answer: Json) -> str:
    found: str = answer["metadata"]["resourceVersion"]
    return found


def names(page: Json) -> list[str]:
    return [one["metadata"]["name"] for one in page["items"]]


async def labelled(server: ServerUnderTest, *names: str) -> None:
    """Create objects with a label that has their name."""
    for name in names:
        body = server.body(name)
        await server.client.create(server.l3vnis, {**body, "metadata": {**body["metadata"], "labels": {LABEL: name}}})


def patch(there: Json, **content: Any) -> Json:
    """Return a change of one version of an object."""
    return {"metadata": {**content.pop("metadata", {}), "resourceVersion": version(there)}, **content}


def condition(type_: str, status: str = "True") -> Json:
    time = "2026-11-21T00:00:00Z"
    return {"type": type_, "status": status, "reason": "Tested", "message": "", "lastTransitionTime": time}


# Reading


async def what_is_created_can_be_read(server: ServerUnderTest) -> None:
    created = await server.create()
    assert await server.client.get(server.red) == created
    assert created["metadata"]["generation"] == 1
    assert created["metadata"]["uid"]
    assert created["metadata"]["creationTimestamp"].endswith("Z")


async def what_is_absent_is_not_found(server: ServerUnderTest) -> None:
    for path in (server.red, server.status):
        with pytest.raises(NotFoundError) as caught:
            await server.client.get(path)
        assert (caught.value.code, caught.value.reason) == (404, "NotFound")
    for request in (server.patch({"spec": {"vni": 5}}), server.client.delete(server.red)):
        with pytest.raises(NotFoundError):
            await request


async def a_kind_that_is_not_installed_is_not_found(server: ServerUnderTest) -> None:
    absent = f"/apis/{API_VERSION}/namespaces/{server.namespace}/absentkinds"
    with pytest.raises(NotFoundError) as caught:
        await server.client.get(absent, {"limit": 500})
    assert caught.value.reason != "NotFound"


async def what_rbac_does_not_allow_is_forbidden(server: ServerUnderTest) -> None:
    await server.create()
    client = server.unprivileged
    requests = [
        client.get(server.red),
        client.get(server.l3vnis, {"limit": 1}),
        client.create(server.l3vnis, server.body("blue")),
        client.merge_patch(server.red, {"spec": {"vni": 5}}, manager=MANAGER),
        client.delete(server.red),
    ]
    for request in requests:
        with pytest.raises(ForbiddenError) as caught:
            await request
        assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
    assert names(await server.client.get(server.l3vnis)) == ["red"]


async def a_list_comes_in_pages_of_one_version(server: ServerUnderTest) -> None:
    for name in ("red", "blue", "green"):
        await server.create(name)
    first = await server.client.get(server.l3vnis, {"limit": 2})
    assert (names(first), first["metadata"]["remainingItemCount"]) == (["blue", "green"], 1)
    # What comes later belongs to the watch that begins at this version.
    await server.create("yellow")
    token = first["metadata"]["continue"]
    second = await server.client.get(server.l3vnis, {"limit": 2, "continue": token})
    assert (names(second), version(second)) == (["red"], version(first))
    assert not second["metadata"].get("continue")
    assert "remainingItemCount" not in second["metadata"]
    pages = [names(page) async for page in server.client.pages(server.l3vnis, limit=3)]
    assert pages == [["blue", "green", "red"], ["yellow"]]


async def a_list_limited_to_one_counts_the_rest(server: ServerUnderTest) -> None:
    empty = await server.client.get(server.l3vnis, {"limit": 1})
    assert (empty["items"], empty["metadata"].get("remainingItemCount", 0)) == ([], 0)
    for name in ("red", "blue", "green"):
        await server.create(name)
    page = await server.client.get(server.l3vnis, {"limit": 1})
    assert (len(page["items"]), page["metadata"]["remainingItemCount"]) == (1, 2)


async def a_list_can_be_of_one_name(server: ServerUnderTest) -> None:
    for name in ("red", "blue"):
        await server.create(name)
    params = {"fieldSelector": "metadata.name=red"}
    assert names(await server.client.get(server.l3vnis, params)) == ["red"]


async def a_list_can_be_of_one_label(server: ServerUnderTest) -> None:
    await labelled(server, "red", "blue", "green")
    assert names(await server.client.get(server.l3vnis, {"labelSelector": f"{LABEL} in (red, green)"})) == [
        "green",
        "red",
    ]


async def a_list_of_all_namespaces_has_the_object(server: ServerUnderTest) -> None:
    created = await server.create()
    page = await server.client.get(f"/apis/{API_VERSION}/l3vnis")
    assert created["metadata"]["uid"] in [one["metadata"]["uid"] for one in page["items"]]


async def a_page_from_forgotten_history_is_gone(server: ServerUnderTest) -> None:
    for name in ("red", "blue"):
        await server.create(name)
    first = await server.client.get(server.l3vnis, {"limit": 1})
    await server.create("green")
    await server.forget()
    with pytest.raises(GoneError) as caught:
        await server.client.get(server.l3vnis, {"limit": 1, "continue": first["metadata"]["continue"]})
    assert (caught.value.code, caught.value.reason) == (410, "Expired")


# Watching


async def watched(server: ServerUnderTest, path: str, **params: str | int) -> list[Json]:
    """Return the events of a watch up to its end."""
    wanted: Params = {"allowWatchBookmarks": "true", "timeoutSeconds": 2, **params}
    with trio.fail_after(60):
        async with server.client.watch(path, wanted) as events:
            return [event async for event in events]


async def a_watch_shows_what_happened_after_its_version(server: ServerUnderTest) -> None:
    await server.create("before")
    since = await server.version()
    created = await server.create()
    changed = await server.patch({"spec": {"vni": 5}})
    await server.client.delete(server.red)
    again = await server.create()
    added, modified, deleted, last = [
        event for event in await watched(server, server.l3vnis, resourceVersion=since) if event["type"] != "BOOKMARK"
    ]
    assert added == {"type": "ADDED", "object": created}
    assert modified == {"type": "MODIFIED", "object": changed}
    assert (deleted["type"], deleted["object"]["spec"]) == ("DELETED", changed["spec"])
    assert int(version(deleted["object"])) > int(version(changed))
    assert last == {"type": "ADDED", "object": again}
    assert again["metadata"]["uid"] != created["metadata"]["uid"]


async def an_open_watch_shows_what_happens(server: ServerUnderTest) -> None:
    params: Params = {"resourceVersion": await server.version(), "allowWatchBookmarks": "true"}
    async with server.client.watch(server.l3vnis, params) as events:
        created = await server.create()
        with trio.fail_after(60):
            assert await anext(events) == {"type": "ADDED", "object": created}


async def a_watch_of_one_name_shows_no_other(server: ServerUnderTest) -> None:
    since = await server.version()
    for name in ("red", "blue"):
        await server.create(name)
    selector = "metadata.name=red"
    seen = await watched(server, server.l3vnis, resourceVersion=since, fieldSelector=selector)
    assert [event["object"]["metadata"]["name"] for event in seen if event["type"] != "BOOKMARK"] == ["red"]


async def a_watch_of_one_label_shows_what_gets_and_what_loses_it(server: ServerUnderTest) -> None:
    await labelled(server, "red", "blue")
    since = await server.version()
    for value in ("blue", "red", "green"):
        await server.patch({"metadata": {"labels": {LABEL: value}}})
    await server.patch({"metadata": {"labels": {"other": "1"}}})
    await server.client.delete(server.red)
    seen = await watched(server, server.l3vnis, resourceVersion=since, labelSelector=f"{LABEL} in (red, green)")
    changes = [(event["type"], event["object"]["metadata"]["name"]) for event in seen if event["type"] != "BOOKMARK"]
    assert {name for _, name in changes} == {"red"}
    assert [type_ for type_, _ in changes] == ["DELETED", "ADDED", "MODIFIED", "MODIFIED", "DELETED"]


async def a_quiet_watch_ends_in_time(server: ServerUnderTest) -> None:
    begin = trio.current_time()
    assert await watched(server, server.l3vnis, resourceVersion=await server.version()) == []
    assert trio.current_time() - begin > 1.5


async def a_bookmark_comes_before_the_end_of_a_watch_whose_version_is_old(server: ServerUnderTest) -> None:
    since = await server.version()
    params: Params = {
        "resourceVersion": since,
        "fieldSelector": "metadata.name=red",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": 4,
    }
    async with server.client.watch(server.l3vnis, params) as events:
        other = await server.create("blue")
        with trio.fail_after(60):
            seen = [event async for event in events]
    assert {event["type"] for event in seen} == {"BOOKMARK"}
    assert int(version(seen[-1]["object"])) >= int(version(other)) > int(since)


async def a_watch_from_forgotten_history_is_gone(server: ServerUnderTest) -> None:
    since = await server.version()
    await server.create()
    await server.forget()
    # The answer is HTTP 410, or HTTP 200 and an ERROR event.
    try:
        [event] = await watched(server, server.l3vnis, resourceVersion=since)
    except GoneError:
        return
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


# Creating


async def a_create_sets_defaults_and_keeps_the_rest(server: ServerUnderTest) -> None:
    there = await server.create()
    assert there["spec"] == server.body(vxlanPort=4789)["spec"]
    assert there["metadata"]["ownerReferences"] == [OWNER]
    assert there["metadata"]["annotations"] == {"a": "b"}


async def a_name_is_taken_once(server: ServerUnderTest) -> None:
    await server.create()
    with pytest.raises(ConflictError) as caught:
        await server.create()
    assert (caught.value.code, caught.value.reason) == (409, "AlreadyExists")


async def an_invalid_object_is_not_created(server: ServerUnderTest) -> None:
    with pytest.raises(InvalidError) as refused:
        await server.client.create(server.l3vnis, server.body(vni=2**24))
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    with pytest.raises(NotFoundError):
        await server.client.get(server.red)


async def a_dry_run_distinguishes_a_taken_name_from_an_invalid_object(server: ServerUnderTest) -> None:
    await server.create()
    with pytest.raises(ConflictError):
        await server.client.create(server.l3vnis, server.body(), {"dryRun": "All"})
    with pytest.raises(InvalidError) as refused:
        await server.client.create(server.l3vnis, server.body(vni=2**24), {"dryRun": "All"})
    assert refused.value.code == 422


async def a_dry_run_creates_nothing(server: ServerUnderTest) -> None:
    answer = await server.client.create(server.l3vnis, server.body(), {"dryRun": "All"})
    assert answer["spec"] == server.body(vxlanPort=4789)["spec"]
    with pytest.raises(NotFoundError):
        await server.client.get(server.red)


# Merge patches


async def a_patch_changes_what_it_names(server: ServerUnderTest) -> None:
    there = await server.create()
    after = await server.patch(
        patch(there, metadata={"labels": {"c": "d"}, "annotations": {"a": None}}, spec={"vni": 5})
    )
    assert after["spec"] == there["spec"] | {"vni": 5}
    assert after["metadata"]["labels"] == {"c": "d"}
    assert not after["metadata"].get("annotations")
    assert version(after) != version(there)
    assert after["metadata"]["generation"] == 2


async def a_patch_of_metadata_leaves_the_generation(server: ServerUnderTest) -> None:
    there = await server.create()
    after = await server.patch({"metadata": {"annotations": {"c": "d"}}})
    assert after["metadata"]["annotations"] == {"a": "b", "c": "d"}
    assert after["metadata"]["generation"] == 1
    assert version(after) != version(there)


async def a_patch_that_changes_nothing_makes_no_version(server: ServerUnderTest) -> None:
    there = await server.create()
    after = await server.patch(patch(there, spec={"vni": 100}))
    assert version(after) == version(there)


async def a_patch_of_an_older_version_is_a_conflict(server: ServerUnderTest) -> None:
    there = await server.create()
    await server.patch(patch(there, spec={"vni": 5}))
    with pytest.raises(ConflictError) as caught:
        await server.patch(patch(there, spec={"vni": 6}))
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")


async def a_patch_of_an_earlier_object_of_that_name_is_a_conflict(server: ServerUnderTest) -> None:
    there = await server.create()
    await server.client.delete(server.red)
    await server.create()
    with pytest.raises(ConflictError):
        await server.patch(patch(there, spec={"vni": 6}))


async def a_patch_for_an_earlier_uid_is_refused(server: ServerUnderTest) -> None:
    there = await server.create()
    await server.client.delete(server.red)
    await server.create()
    with pytest.raises(InvalidError) as refused:
        await server.patch({"metadata": {"uid": there["metadata"]["uid"]}, "spec": {"vni": 6}})
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    assert (await server.client.get(server.red))["spec"]["vni"] == 100


async def a_lease_is_replaced_by_one_of_two_who_saw_the_same(server: ServerUnderTest) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{server.namespace}/leases"
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-11-21T00:00:00.000000Z"}
    there = await server.client.create(path, {**head, "metadata": {"name": "red"}, "spec": spec})
    change = {**head, "metadata": {"name": "red", "resourceVersion": version(there)}, "spec": {"holderIdentity": "b"}}
    answer = await server.client.replace(f"{path}/red", change)
    assert (answer["spec"], answer["metadata"]["uid"]) == ({"holderIdentity": "b"}, there["metadata"]["uid"])
    with pytest.raises(ConflictError):
        await server.client.replace(f"{path}/red", change)
    await server.client.delete(f"{path}/red")
    with pytest.raises((ConflictError, NotFoundError)):
        await server.client.replace(f"{path}/red", {**change, "metadata": answer["metadata"]})


async def a_field_that_must_not_change_is_refused(server: ServerUnderTest) -> None:
    there = await server.create()
    change = patch(there, spec={"hostSession": {"localCIDR": {"ipv4": "198.51.100.0/24"}}})
    with pytest.raises(InvalidError) as refused:
        await server.patch(change)
    assert refused.value.code == 422


# Server-side apply


async def an_apply_creates_what_is_absent(server: ServerUnderTest) -> None:
    made = await server.apply(ownerReferences=[OWNER])
    assert made["metadata"]["ownerReferences"] == [OWNER]
    assert version(await server.apply(ownerReferences=[OWNER])) == version(made)
    assert await server.client.get(server.status) == made


async def a_status_needs_its_object(server: ServerUnderTest) -> None:
    with pytest.raises(NotFoundError):
        await server.apply({"conditions": [condition("Ready")]})


async def a_status_is_applied_beside_the_rest(server: ServerUnderTest) -> None:
    made = await server.apply(ownerReferences=[OWNER])
    after = await server.apply({"conditions": [condition("Ready")]})
    assert after["status"] == {"conditions": [condition("Ready")]}
    assert after["metadata"]["ownerReferences"] == [OWNER]
    assert version(after) != version(made)
    assert after["metadata"]["generation"] == made["metadata"]["generation"]
    assert version(await server.apply({"conditions": [condition("Ready")]})) == version(after)
    # The object alone is not a statement about its status.
    assert (await server.apply(ownerReferences=[OWNER]))["status"] == after["status"]


async def a_field_that_is_no_longer_applied_goes(server: ServerUnderTest) -> None:
    await server.apply()
    await server.apply({"conditions": [condition("Ready"), condition("Degraded")], "omitted": 7})
    after = await server.apply({"conditions": [condition("Ready")]})
    assert after["status"] == {"conditions": [condition("Ready")]}


async def another_manager_s_conditions_stay(server: ServerUnderTest) -> None:
    await server.apply()
    await server.apply({"conditions": [condition("Audited")]}, OTHER_MANAGER)
    await server.apply({"conditions": [condition("Ready")]})
    after = await server.apply({"conditions": [condition("Ready", "False")]})
    by_type = {one["type"]: one for one in after["status"]["conditions"]}
    assert by_type == {"Audited": condition("Audited"), "Ready": condition("Ready", "False")}


async def an_apply_of_an_older_version_is_a_conflict(server: ServerUnderTest) -> None:
    made = await server.apply()
    await server.apply({"conditions": [condition("Ready")]})
    with pytest.raises(ConflictError) as caught:
        await server.apply({"conditions": []}, resourceVersion=version(made))
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")


async def a_patch_of_the_status_removes_others_fields(server: ServerUnderTest) -> None:
    await server.apply()
    await server.apply({"conditions": [condition("Ready")]})
    await server.apply({"omitted": 7}, OTHER_MANAGER)
    after = await server.client.merge_patch(f"{server.status}/status", {"status": {"omitted": None}}, manager=MANAGER)
    assert after["status"] == {"conditions": [condition("Ready")]}


# Deleting


async def a_deletion_is_of_that_object_and_version(server: ServerUnderTest) -> None:
    metadata = (await server.create())["metadata"]
    with pytest.raises(ConflictError):
        await server.client.delete(server.red, uid="99999999-2222-3333-4444-555555555555")
    with pytest.raises(ConflictError):
        await server.client.delete(server.red, uid=metadata["uid"], resource_version="1")
    await server.client.delete(server.red, uid=metadata["uid"], resource_version=metadata["resourceVersion"])
    with pytest.raises(NotFoundError):
        await server.client.delete(server.red, uid=metadata["uid"])


CONTRACT: Final[tuple[Clause, ...]] = (
    what_is_created_can_be_read,
    what_is_absent_is_not_found,
    a_kind_that_is_not_installed_is_not_found,
    what_rbac_does_not_allow_is_forbidden,
    a_list_comes_in_pages_of_one_version,
    a_list_limited_to_one_counts_the_rest,
    a_list_can_be_of_one_name,
    a_list_can_be_of_one_label,
    a_list_of_all_namespaces_has_the_object,
    a_page_from_forgotten_history_is_gone,
    a_watch_shows_what_happened_after_its_version,
    an_open_watch_shows_what_happens,
    a_watch_of_one_name_shows_no_other,
    a_watch_of_one_label_shows_what_gets_and_what_loses_it,
    a_quiet_watch_ends_in_time,
    a_bookmark_comes_before_the_end_of_a_watch_whose_version_is_old,
    a_watch_from_forgotten_history_is_gone,
    a_create_sets_defaults_and_keeps_the_rest,
    a_name_is_taken_once,
    an_invalid_object_is_not_created,
    a_dry_run_distinguishes_a_taken_name_from_an_invalid_object,
    a_dry_run_creates_nothing,
    a_patch_changes_what_it_names,
    a_patch_of_metadata_leaves_the_generation,
    a_patch_that_changes_nothing_makes_no_version,
    a_patch_of_an_older_version_is_a_conflict,
    a_patch_of_an_earlier_object_of_that_name_is_a_conflict,
    a_patch_for_an_earlier_uid_is_refused,
    a_lease_is_replaced_by_one_of_two_who_saw_the_same,
    a_field_that_must_not_change_is_refused,
    an_apply_creates_what_is_absent,
    a_status_needs_its_object,
    a_status_is_applied_beside_the_rest,
    a_field_that_is_no_longer_applied_goes,
    another_manager_s_conditions_stay,
    an_apply_of_an_older_version_is_a_conflict,
    a_patch_of_the_status_removes_others_fields,
    a_deletion_is_of_that_object_and_version,
)
