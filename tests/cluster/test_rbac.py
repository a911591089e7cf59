"""RBAC as shipped: all that the daemon needs and nothing else, verb by verb on a real API server.

The verbs come from packaging/kubernetes/rbac.yaml itself; :mod:`tests.cluster.rbac_scenarios` has what each is for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import trio
import trio.testing

from actors.api_mirror import actor as mirror
from actors.api_wait.probe import probe
from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import ApiError, ForbiddenError, InvalidError
from actors.status_writer import actor as status_writer
from config.api import INDEX_ANNOTATION, NODE_STATUS_PLURAL, SOURCE_LABEL, ApiCredentials, ApiReach
from config.outcomes import NodeIdentity, StaticSnapshot
from config.problems import Kind
from config.settings import Settings
from config.sources.static_files import read_directory
from config.store.last_good import LastGood
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.faults import leaves
from tests.cluster.harness import MANAGER, PATIENCE, ClusterServer, Json, both_versions, kube, service_account
from tests.cluster.permissions import ACCOUNT, NAMESPACE, SHIPPED, USER, Permission, install
from tests.cluster.rbac_scenarios import NEEDS, Need, Stage, collection, index_is_shown, put, stage
from tests.cluster.status_writing import ReportingNode, until


@pytest.fixture
async def account(server: ClusterServer, system: str) -> AsyncIterator[ApiCredentials]:
    """Yield the shipped ServiceAccount's credentials; a permission that a test removes is restored."""
    async with kube(server.admin) as admin:
        await install(admin)
        yield await service_account(admin, NAMESPACE, ACCOUNT)
        await install(admin)


def test_each_shipped_permission_has_a_need() -> None:
    assert set(SHIPPED) == set(NEEDS)


@pytest.mark.parametrize("permission", SHIPPED, ids=str)
async def test_the_daemon_needs(
    permission: Permission, server: ClusterServer, account: ApiCredentials, namespace: str, tmp_path: Path
) -> None:
    """It works with what is shipped, and without one permission it does not, because of that one."""
    async with stage(server, account, f"{namespace}-with", tmp_path) as complete:
        await NEEDS[permission](complete)
        assert complete.refusals() == []
        await install(complete.admin, [permission])
    async with stage(server, account, f"{namespace}-without", tmp_path) as lacking:
        error = await failure(NEEDS[permission], lacking)
        refused = {f"{one.verb} {one.resource}" for one in lacking.refusals()}
    reason = f'cannot {permission.verb} resource "{permission.resource}"'
    assert isinstance(error, ForbiddenError | AssertionError)
    assert reason in str(error) or refused == {f"{permission.verb} {permission.resource}"}


class PromptNode(ReportingNode):
    """A node that waits as little as chance allows."""

    async def _report(self) -> None:
        await status_writer.run(
            self.ctx,
            settings=self.settings,
            access=self.access.reader(),
            api=self.api.reader(),
            desired=self.desired.reader(),
            frr=self.frr.reader(),
            kernel=self.kernel.reader(),
            health=self.health.reader(),
            chance=lambda: 0.0,
        )


async def test_the_daemon_as_a_whole_is_refused_nothing(
    server: ClusterServer, account: ApiCredentials, namespace: str, tmp_path: Path
) -> None:
    """All that talks to the API server runs at once, and does its work, with what is shipped."""
    assert (await probe(account, KubeClient)).reach is ApiReach.REACHABLE
    settings = Settings(state_dir=tmp_path, run_dir=tmp_path, configs_dir=tmp_path, namespace=NAMESPACE)
    (tmp_path / "openpe_a.yaml").write_text("l3vnis: [{vrf: blue, vni: 200}]\n")
    # Other modules may have used the account on this server.
    earlier = len(server.requests(USER))
    async with stage(server, account, namespace, tmp_path) as complete, trio.open_nursery() as nursery:
        node = PromptNode(complete.node.name, NAMESPACE, settings, complete.account, complete.account)
        await put(complete, Kind.L3VNI, NAMESPACE, "red")
        nursery.start_soon(node.run)
        await trio.testing.wait_all_tasks_blocked()
        files = read_directory(tmp_path, node.name, LastGood(), namespace=NAMESPACE)
        node.static.set(StaticSnapshot(NodeIdentity(node.name, node.index), files.resources))
        mirroring = partial(
            mirror.run,
            settings=settings,
            access=node.access.reader(),
            snapshots=node.static.reader(),
            api=node.api.reader(),
        )
        nursery.start_soon(mirroring, ActorContext("api_mirror"))
        await until("everything is written", partial(all_is_written, complete))
        nursery.cancel_scope.cancel()
        assert complete.refusals() == []
        used = {f"{one.verb} {one.resource}" for one in server.requests(USER)[earlier:] if one.resource}
        assert used <= {f"{one.verb} {one.resource}" for one in SHIPPED}


async def all_is_written(complete: Stage) -> bool:
    """Whether status object, index and mirror are there."""
    statuses, objects = [
        (await complete.admin.get(collection(NAMESPACE, plural)))["items"] for plural in (NODE_STATUS_PLURAL, "l3vnis")
    ]
    annotations = (await complete.admin.get(f"/api/v1/nodes/{complete.node.name}"))["metadata"].get("annotations", {})
    mirrors = [one for one in objects if SOURCE_LABEL in one["metadata"].get("labels", {})]
    return bool(statuses and statuses[0].get("status") and mirrors and INDEX_ANNOTATION in annotations)


CHANGES: dict[str, Json] = {
    "a label": {"metadata": {"labels": {"rack": "1"}}},
    "the hostname": {"metadata": {"labels": {"kubernetes.io/hostname": None}}},
    "a taint": {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
    "scheduling": {"spec": {"unschedulable": True}},
    "another annotation": {"metadata": {"annotations": {"a": "b"}}},
    "another's annotation": {"metadata": {"annotations": {"others": "2"}}},
    "another's annotation away": {"metadata": {"annotations": {"others": None}}},
    "a finalizer": {"metadata": {"finalizers": ["a.b/c"]}},
}


@both_versions
async def test_of_a_node_the_daemon_may_change_its_index_only(
    server: ClusterServer, account: ApiCredentials, namespace: str, tmp_path: Path
) -> None:
    async with stage(server, account, namespace, tmp_path) as complete, kube(complete.account) as client:
        path = f"/api/v1/nodes/{complete.node.name}"
        await complete.admin.merge_patch(path, {"metadata": {"annotations": {"others": "1"}}}, manager=MANAGER)
        await policy_is_in_force(client, path)
        allowed = [what for what, change in CHANGES.items() if await may_change(client, path, change)]
        assert allowed == []
        await index_is_shown(complete)
        assert await may_change(client, path, {"metadata": {"annotations": {INDEX_ANNOTATION: None}}})
        # Other clients are not limited.
        assert all([await may_change(complete.admin, path, change) for change in CHANGES.values()])


async def may_change(client: KubeClient, path: str, change: Json) -> bool:
    try:
        await client.merge_patch(path, change, manager=MANAGER)
    except InvalidError as error:
        if "openpe.io/nodeindex" not in str(error):
            raise
        return False
    return True


async def policy_is_in_force(client: KubeClient, path: str) -> None:
    """The server takes a moment from a policy to its enforcement."""
    with trio.fail_after(PATIENCE):
        for number in count():
            if not await may_change(client, path, {"metadata": {"annotations": {"probe": str(number)}}}):
                return
            await trio.sleep(0.1)


async def failure(need: Need, stage: Stage) -> BaseException | None:
    """Return why something cannot be done."""
    try:
        await need(stage)
    except (ApiError, AssertionError, ExceptionGroup) as error:
        return leaves(error)[0]
    return None
