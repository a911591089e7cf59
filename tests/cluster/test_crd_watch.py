"""The crd_watch actor against real API servers: what it sees, and what a real server's bad days are to it."""

from __future__ import annotations

import shutil
import subprocess
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import yaml

from actors.crd_watch.debounce import FIRST_CEILING_SECONDS, QUIET_SECONDS
from actors.desired.reconcile import Known, decide
from actors.lib.kube import client as kube_client
from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import CredentialsError, NotFoundError
from actors.lib.kube.mirror_signature import mirror_key, proof
from config.api import API_VERSION, GROUP, NODE_STATUS_PLURAL, PLURALS, PROOF_ANNOTATION
from config.desired import Secret
from config.precedence import NOTHING_IN_FORCE
from config.problems import Kind, ResourceId
from config.resolve.grants import NAMED, Grants
from config.settings import MaxResources, Settings
from tests.actors.desired.examples import files, underlay
from tests.actors.desired.examples import l3vni as file_l3vni
from tests.cluster.harness import (
    CRD_PATH,
    MANAGER,
    PATIENCE,
    ClusterServer,
    both_versions,
    install_crds,
    kube,
    service_account,
)
from tests.cluster.watching import RBAC, ROLE, SYSTEM, UNDERLAY, Watcher, here, in_parallel, l3vni, watching

Remove = Callable[[Kind], Awaitable[None]]
#: How many collections of each resource are followed: of the status objects the node's own, and others'.
ALL = {**dict.fromkeys(PLURALS.values(), 1), NODE_STATUS_PLURAL: 2, "nodes": 1}


@pytest.fixture
async def watcher(
    server: ClusterServer, crds: list[str], system: str, namespace: str, tmp_path: Path
) -> AsyncIterator[Watcher]:
    """Yield an actor that knows nothing yet, with two networks and no password on the server."""
    async with watching(server, namespace, tmp_path) as watcher:
        with suppress(NotFoundError):
            await watcher.admin.delete(f"/api/v1/namespaces/{SYSTEM}/secrets/bgp-passwords")
        await watcher.put(Kind.L3VNI, "red", l3vni(100))
        await watcher.put(Kind.L3VNI, "blue", l3vni(101, **here(watcher.node)))
        await watcher.put(Kind.L3VNI, "elsewhere", l3vni(102, **here("another")))
        yield watcher


@both_versions
async def test_everything_that_concerns_the_node_and_each_change_of_it(watcher: Watcher) -> None:
    key = mirror_key(watcher.settings.state_dir)
    signed = {PROOF_ANNOTATION: proof(key, ResourceId(Kind.L3VNI, SYSTEM, "ours"))}
    secretive = {**UNDERLAY, "neighbors": [{**UNDERLAY["neighbors"][0], "passwordSecret": {"name": "bgp-passwords"}}]}
    await watcher.put(Kind.L3VNI, "ours", l3vni(103), namespace=SYSTEM, annotations=signed)
    await watcher.put(Kind.UNDERLAY, "fabric", secretive, namespace=SYSTEM)
    status = f"/apis/{API_VERSION}/namespaces/{SYSTEM}/{NODE_STATUS_PLURAL}"
    body = {"apiVersion": API_VERSION, "kind": "RouterNodeConfigurationStatus", "metadata": {"name": watcher.node}}
    await watcher.admin.create(status, body)

    snapshot = await watcher.following("red", "blue")
    assert snapshot.node is not None
    assert (snapshot.node.name, snapshot.labels["zone"]) == (watcher.node, "a")
    assert [one.name for one in snapshot.mirrored] == ["ours"]
    assert snapshot.secrets == {(SYSTEM, "bgp-passwords", "password"): None}
    assert snapshot.node_status is not None
    assert snapshot.node_status["metadata"]["name"] == watcher.node
    [red] = [one for one in snapshot.objects if one.name == "red" and one.namespace == watcher.namespace]
    assert (red.spec["vni"], red.generation) == (100, 1)

    await watcher.put_secret("bgp-passwords", "first")
    await watcher.until(lambda snapshot: snapshot.secrets == {(SYSTEM, "bgp-passwords", "password"): Secret("first")})
    await watcher.put_secret("bgp-passwords", "second")
    await watcher.until(lambda snapshot: snapshot.secrets == {(SYSTEM, "bgp-passwords", "password"): Secret("second")})
    await watcher.admin.delete(f"/api/v1/namespaces/{SYSTEM}/secrets/bgp-passwords")
    await watcher.until(lambda snapshot: snapshot.secrets == {(SYSTEM, "bgp-passwords", "password"): None})

    await watcher.put(Kind.L3VNI, "zoned", l3vni(104, nodeSelector={"matchLabels": {"zone": "b"}}))
    await watcher.put(Kind.L3VNI, "red", l3vni(105))
    await watcher.until(lambda snapshot: any(one.spec.get("vni") == 105 for one in snapshot.objects))
    await watcher.label(zone="b")
    await watcher.names("red", "blue", "zoned")
    await watcher.label(zone=None)
    await watcher.names("red", "blue")
    await watcher.put(Kind.L3VNI, "blue", l3vni(101, **here("another")))
    await watcher.names("red")
    await watcher.delete(Kind.L3VNI, "red")
    await watcher.names()
    await watcher.admin.delete(f"{status}/{watcher.node}")
    await watcher.until(lambda snapshot: snapshot.node_status is None)
    assert all(snapshot.live for snapshot in watcher.out.values)
    assert "second" not in repr(watcher.out.values)


async def test_one_change_is_published_before_the_ceiling_for_bursts(watcher: Watcher) -> None:
    """0.4 s on a quiet machine."""
    await watcher.following("red", "blue")
    begin = trio.current_time()
    await watcher.put(Kind.L3VNI, "pink", l3vni(200))
    await watcher.names("red", "blue", "pink")
    assert trio.current_time() - begin < FIRST_CEILING_SECONDS


@both_versions
async def test_a_restart_of_the_server_loses_nothing_and_costs_little(watcher: Watcher) -> None:
    await watcher.following("red", "blue")
    await trio.to_thread.run_sync(watcher.server.stop)
    await watcher.state("reconnecting")
    await trio.to_thread.run_sync(watcher.server.start)
    await watcher.state("watching")
    asked = watcher.requests()
    await watcher.put(Kind.L3VNI, "pink", l3vni(200))
    await watcher.names("red", "blue", "pink")
    assert watcher.never_without("red", "blue")
    # At best a watch for each; a server that has forgotten, as one that begins again may, costs a list and another,
    # and one that starts slowly ends a few.
    assert all(asked[f"list {resource}"] <= number + (resource == "nodes") for resource, number in ALL.items()), asked
    assert all(number <= asked[f"watch {resource}"] <= 6 * number for resource, number in ALL.items()), asked


async def test_changes_while_the_connection_is_cut_come_without_a_list(watcher: Watcher) -> None:
    await watcher.following("red", "blue")
    await watcher.cable.cut()
    await watcher.put(Kind.L3VNI, "pink", l3vni(200))
    await watcher.delete(Kind.L3VNI, "blue")
    lost = await watcher.until(lambda snapshot: not snapshot.live)
    assert watcher.named(lost) == {"red", "blue"}
    assert watcher.requests() == {}
    watcher.cable.restore()
    back = await watcher.until(lambda snapshot: snapshot.live)
    assert watcher.named(back) == {"red", "pink"}
    await watcher.state("watching")
    asked = watcher.requests()
    assert [what for what in asked if what.startswith("list")] == ["list nodes"]
    assert [snapshot.live for snapshot in watcher.out.values] == [True, False, True]


@both_versions
async def test_a_history_that_was_forgotten_meanwhile_means_lists_and_the_difference(watcher: Watcher) -> None:
    await watcher.following("red", "blue")
    await watcher.cable.cut()
    await watcher.put(Kind.L3VNI, "pink", l3vni(200))
    await watcher.delete(Kind.L3VNI, "blue")
    await trio.to_thread.run_sync(watcher.server.stop)
    await trio.to_thread.run_sync(watcher.server.compact)
    await trio.to_thread.run_sync(watcher.server.start)
    watcher.cable.restore()
    await watcher.names("red", "pink")
    assert watcher.requests()["list l3vnis"] == 1
    assert watcher.never_without("red")


async def test_a_version_from_long_ago_is_gone_and_listed_again(watcher: Watcher) -> None:
    """Other writes push a version out of what a restarted server remembers."""
    await watcher.following("red", "blue")
    await watcher.cable.cut()
    await in_parallel(lambda number: watcher.put(Kind.L2VNI, f"noise-{number % 5}", {"vni": 1000 + number}), 50)
    await watcher.delete(Kind.L3VNI, "blue")
    await trio.to_thread.run_sync(watcher.server.stop)
    await trio.to_thread.run_sync(watcher.server.start)
    watcher.cable.restore()
    await watcher.names("red", *(f"noise-{number}" for number in range(5)))
    assert watcher.requests()["list l3vnis"] == 1


async def test_a_server_that_stands_still_is_noticed_and_found_again(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_client, "WATCH_SECONDS", 3.0)
    monkeypatch.setattr(kube_client, "SLACK_SECONDS", 1.0)
    await watcher.following("red", "blue")
    watcher.server.pause()
    lost = await watcher.until(lambda snapshot: not snapshot.live)
    assert watcher.named(lost) == {"red", "blue"}
    assert "no answer" in str(watcher.ctx.facts["trouble"])
    watcher.server.resume()
    await watcher.until(lambda snapshot: snapshot.live)
    await watcher.put(Kind.L3VNI, "pink", l3vni(200))
    await watcher.names("red", "blue", "pink")


@pytest.mark.parametrize("moment", ["beginning", "watching", "paused", "frozen", "connecting"])
async def test_it_ends_without_waiting_for_any_deadline(watcher: Watcher, moment: str) -> None:
    if moment == "connecting":
        watcher.cable.freeze()
    watcher.begin()
    if moment not in ("beginning", "connecting"):
        await watcher.state("watching")
    if moment == "paused":
        watcher.server.pause()
    if moment == "frozen":
        watcher.cable.freeze()
    await trio.sleep(0.2)
    # The shortest of all deadlines: a busy machine may take a second for nothing.
    assert await watcher.stop() < kube_client.CONNECT_SECONDS
    watcher.server.resume()
    watcher.cable.restore()


@pytest.fixture
async def remove_crd(watcher: Watcher) -> AsyncIterator[Remove]:
    """Yield what removes a kind, completely; afterwards all are there again, as other tests take for granted."""

    async def remove(kind: Kind) -> None:
        path = f"{CRD_PATH}/{PLURALS[kind]}.{GROUP}"
        await watcher.admin.delete(path)
        with trio.fail_after(PATIENCE):
            while await there(watcher, path):  # noqa: ASYNC110 - another process's work
                await trio.sleep(0.05)

    yield remove
    await install_crds(watcher.admin)


async def there(watcher: Watcher, path: str) -> bool:
    try:
        await watcher.admin.get(path)
    except NotFoundError:
        return False
    return True


@both_versions
async def test_a_kind_may_come_late_and_go_early(watcher: Watcher, remove_crd: Remove) -> None:
    await remove_crd(Kind.L2VNI)
    watcher.begin()
    await watcher.names("red", "blue")
    await watcher.fact("not_installed", lambda value: value == "l2vnis")
    await install_crds(watcher.admin)
    await watcher.put(Kind.L2VNI, "segment", {"vni": 300})
    await watcher.names("red", "blue", "segment")
    await watcher.fact("not_installed", lambda value: value is None)
    await remove_crd(Kind.L2VNI)
    await watcher.names("red", "blue")
    await watcher.fact("not_installed", lambda value: value == "l2vnis")
    assert all(snapshot.live for snapshot in watcher.out.values)


async def test_a_kind_that_disappears_without_events_leaves_its_objects(watcher: Watcher, remove_crd: Remove) -> None:
    await watcher.put(Kind.L2VNI, "segment", {"vni": 300})
    await watcher.following("red", "blue", "segment")
    await watcher.cable.cut()
    await remove_crd(Kind.L2VNI)
    watcher.cable.restore()
    await watcher.fact("not_installed", lambda value: value == "l2vnis")
    assert watcher.never_without("segment")
    await install_crds(watcher.admin)
    await watcher.names("red", "blue")


async def test_rights_that_are_withdrawn_keep_what_is_known_and_are_logged(
    watcher: Watcher, caplog: pytest.LogCaptureFixture
) -> None:
    await watcher.following("red", "blue")
    await watcher.allow(networks=False)
    await watcher.cable.cut()
    await watcher.state("reconnecting")
    watcher.cable.restore()
    await watcher.fact("refused", lambda value: "watch l3vnis" in str(value) and "nodes" in str(value))
    await watcher.delete(Kind.L3VNI, "blue")
    assert watcher.never_without("red", "blue")
    errors = [record.__dict__.get("fields", {}).get("error", "") for record in caplog.records]
    assert any('cannot watch resource "l3vnis"' in error for error in errors)
    await watcher.allow()
    await watcher.names("red")
    await watcher.fact("refused", lambda value: value is None)


async def test_without_rights_nothing_is_published_and_with_them_everything(watcher: Watcher) -> None:
    await watcher.allow(networks=False)
    watcher.begin()
    await watcher.fact("refused", lambda value: value == "list nodes")
    assert watcher.out.values == []
    await watcher.allow()
    await watcher.names("red", "blue")


async def test_a_kind_that_older_roles_do_not_allow_holds_up_no_other(watcher: Watcher) -> None:
    await watcher.put(Kind.L2VNI, "segment", {"vni": 300})
    await watcher.allow(networks=False)
    role = await watcher.admin.get(f"{RBAC}/clusterroles/{ROLE}")
    rules = [
        {**rule, "resources": [one for one in rule["resources"] if one != "l2vnis"]}
        for rule in role["rules"]
        if rule["resources"] != ["l2vnis"]
    ]
    older = {"apiVersion": role["apiVersion"], "kind": "ClusterRole", "metadata": {"name": watcher.user}}
    await watcher.admin.apply(f"{RBAC}/clusterroles/{watcher.user}", {**older, "rules": rules}, manager=MANAGER)
    who = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": watcher.user}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": watcher.user}
    body = {"metadata": {"name": watcher.user}, "roleRef": reference, "subjects": [who]}
    await watcher.admin.create(f"{RBAC}/clusterrolebindings", body)
    watcher.begin()
    snapshot = await watcher.names("red", "blue")
    assert (snapshot.live, snapshot.unlisted) == (True, frozenset({Kind.L2VNI}))
    # A change of labels, which has all others listed again.
    await watcher.put(Kind.L3VNI, "zoned", l3vni(104, nodeSelector={"matchLabels": {"zone": "b"}}))
    await watcher.put(Kind.L2VNI, "zoned", {"vni": 301, "nodeSelector": {"matchLabels": {"zone": "b"}}})
    await watcher.label(zone="b")
    await watcher.names("red", "blue", "zoned")
    await watcher.allow()
    snapshot = await watcher.until(lambda snapshot: not snapshot.not_followed)
    assert {one.name for one in snapshot.objects if one.kind is Kind.L2VNI} == {"segment", "zoned"}
    await watcher.admin.delete(f"{RBAC}/clusterroles/{watcher.user}")


async def known(client: KubeClient) -> bool:
    try:
        await client.get("/api/v1/nodes")
    except CredentialsError:
        return False
    return True


async def test_a_token_that_is_good_no_more_waits_for_another(watcher: Watcher) -> None:
    account = await service_account(watcher.admin, watcher.namespace, "node")
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    who = {"kind": "ServiceAccount", "name": "node", "namespace": watcher.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    body = {"metadata": {"name": watcher.namespace}, "roleRef": reference, "subjects": [who]}
    await watcher.admin.create(path, body)
    watcher.begin()
    watcher.say(account)
    await watcher.names("red", "blue")
    await watcher.admin.delete(f"/api/v1/namespaces/{watcher.namespace}/serviceaccounts/node")
    # The server remembers for some seconds whom it has let in.
    async with kube(account) as client:
        with trio.fail_after(PATIENCE):
            while await known(client):  # noqa: ASYNC110 - another process's memory
                await trio.sleep(0.5)
    await watcher.cable.cut()
    await watcher.state("reconnecting")
    watcher.cable.restore()
    await watcher.fact("trouble", lambda value: "Unauthorized" in str(value))
    watcher.requests()
    watcher.say(watcher.server.credentials(watcher.user))
    await watcher.state("watching")
    # The new ones continue where the old ones were.
    assert [what for what in watcher.requests() if what.startswith("list")] in ([], ["list nodes"])
    assert watcher.never_without("red", "blue")
    await watcher.admin.delete(f"{path}/{watcher.namespace}")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl (Debian: kubernetes-client)")
async def test_what_one_kubectl_does_to_a_hundred_objects_is_few_snapshots(watcher: Watcher, tmp_path: Path) -> None:
    await watcher.following("red", "blue")
    about = {"apiVersion": API_VERSION, "kind": "L3VNI"}
    names = [f"vni-{number}" for number in range(100)]
    manifests = [
        {**about, "metadata": {"name": name, "namespace": watcher.namespace}, "spec": l3vni(1000 + number)}
        for number, name in enumerate(names)
    ]
    (tmp_path / "ca.pem").write_text(watcher.server.ca)
    file = tmp_path / "vnis.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    for verb, expected in (("apply", ["red", "blue", *names]), ("delete", ["red", "blue"])):
        published, begin = len(watcher.out.values), time.monotonic()
        command = ["kubectl", f"--server={watcher.server.url}", f"--token={watcher.server.admin_token}"]
        command += [f"--certificate-authority={tmp_path / 'ca.pem'}", verb, "-f", str(file)]
        await trio.run_process(command, stdout=subprocess.DEVNULL)
        took = time.monotonic() - begin
        await watcher.names(*expected)
        later = time.monotonic() - begin - took
        snapshots = len(watcher.out.values) - published
        # Where kubectl is slower than the first ceiling the machine is busy, and its gaps end bursts: one each.
        most = 3 if took < FIRST_CEILING_SECONDS else 3 + took / QUIET_SECONDS
        assert snapshots <= most, f"kubectl {verb}: {took:.1f} s, {snapshots} snapshots, the last {later:.2f} s after"


async def test_thousands_of_objects_cost_memory_for_those_of_this_node(watcher: Watcher) -> None:
    count, mine = 1500, 20

    async def make(number: int) -> None:
        selected = here(watcher.node if number % (count // mine) == 0 else "another")
        about = {"name": f"vni-{number}", "annotations": {"text": "x" * 4000}}
        body = {"apiVersion": API_VERSION, "kind": "L3VNI", "metadata": about}
        await watcher.admin.create(watcher.collection(Kind.L3VNI), {**body, "spec": l3vni(1000 + number, **selected)})

    await in_parallel(make, count)
    tracemalloc.start()
    try:
        watcher.begin()
        snapshot = await watcher.until(lambda snapshot: len(snapshot.objects) >= mine)
        await watcher.state("watching")
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(watcher.named(snapshot)) == mine + 2
    # A page of them is some five megabytes while it is read; all of them would be thirty.
    assert kept < 5e6, f"{kept / 1e6:.1f} MB are kept"
    assert peak < 20e6, f"{peak / 1e6:.1f} MB at most"


@pytest.mark.timeout(300)
async def test_a_flood_of_objects_is_limited_named_and_bounded(watcher: Watcher) -> None:
    """Users of a namespace make many networks for this node, each as large as annotations may make it."""
    count, most = 600, 50
    grants = Grants.of(Settings(namespace=SYSTEM, max_resources=MaxResources(l3vnis=most)))

    async def make(number: int) -> None:
        about = {"name": f"flood-{number:04}", "annotations": {"text": "x" * 16000}}
        body = {"apiVersion": API_VERSION, "kind": "L3VNI", "metadata": about, "spec": l3vni(1000 + number)}
        await watcher.admin.create(watcher.collection(Kind.L3VNI), body)

    await in_parallel(make, count)
    tracemalloc.start()
    try:
        watcher.begin()
        snapshot = await watcher.until(lambda snapshot: len(snapshot.objects) >= count)
        await watcher.state("watching")
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    own = files(underlay(), file_l3vni("own", 100_000))
    first = decide(Known(own, None, None, NOTHING_IN_FORCE), None, grants)
    assert first.state is not None
    state = decide(Known(own, snapshot, None, first.standing), first.state, grants).state
    assert state is not None
    assert len(state.l3vnis) == most
    assert "own" in {one.vrf for one in state.l3vnis}
    surplus = [one for one in state.problems if f"this node takes at most {most} l3vnis" in one.message]
    named = {one.resource.name for one in surplus if one.resource is not None}
    assert len(named) == len(surplus) == NAMED + 1
    assert all(name.startswith("flood-") for name in named)
    assert f"the same is true of {len(snapshot.objects) + 1 - most - NAMED} more" in surplus[-1].message
    # They are 10 MB on the server.
    assert kept < 6e6, f"{kept / 1e6:.1f} MB are kept"
    assert peak < 30e6, f"{peak / 1e6:.1f} MB at most"


@pytest.mark.timeout(300)
async def test_a_few_huge_objects_cost_little_and_hold_up_nothing(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the definitions do not bound is the node selector, of which the server takes a megabyte."""
    count = 8
    values = [f"{number:05x}" for number in range(40_000)]
    selector = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": values}]}
    for number in range(count):
        await watcher.put(Kind.L3VNI, f"huge-{number}", l3vni(1000 + number, nodeSelector=selector))
    tracemalloc.start()
    with monkeypatch.context() as patch:
        patch.setattr(kube_client, "MAX_ANSWER_BYTES", 2_000_000)
        try:
            watcher.begin()
            snapshot = await watcher.until(lambda snapshot: len(snapshot.objects) >= count)
            await watcher.state("watching")
            kept, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert len(watcher.named(snapshot)) == count + 2
    # One page of the list would hold them, but for their size.
    assert watcher.requests()["list l3vnis"] > 1
    assert kept < 5e6, f"{kept / 1e6:.1f} MB are kept"
    assert peak < 40e6, f"{peak / 1e6:.1f} MB at most"
