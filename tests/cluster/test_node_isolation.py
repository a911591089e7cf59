"""One compromised node: with node A's token every write on what is node B's is refused, and A's own writes are not.

The writes are those of every kind that a node may write at all (packaging/kubernetes/rbac.yaml), on a real API server
with the shipped admission policies. A token that is bound to no node writes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

import pytest
import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.decoding import api_node
from actors.lib.kube.errors import ApiError, ConflictError, ForbiddenError, InvalidError
from actors.status_writer.node_events import index_replaced
from config.api import (
    API_VERSION,
    HOSTNAME_LABEL,
    INDEX_ANNOTATION,
    INDEX_LABEL,
    NODE_STATUS_KIND,
    NODE_STATUS_PLURAL,
    PLURALS,
    STATIC_NODE_LABEL,
    ApiCredentials,
)
from config.problems import Kind
from config.settings import Settings
from config.sources.mirror_objects import label_value, manifest
from config.sources.naming import resource_name
from supervisor.operations.doctor.policies import Policies, read_policies
from tests.actors.lib.kube.kubeconfigs import base64_of, kubeconfig
from tests.cluster.harness import (
    MANAGER,
    PATIENCE,
    ClusterServer,
    Json,
    both_versions,
    kube,
    make,
    make_namespace,
    make_node,
    of_node,
    service_account,
)
from tests.cluster.permissions import ACCOUNT, NAMESPACE, install
from tests.cluster.rbac_scenarios import Stage, collection, mirrored, put_mirror

EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
MOMENT: Final = "2026-01-01T00:00:00.000000Z"
STATUSES: Final = collection(NAMESPACE, NODE_STATUS_PLURAL)
#: Edits of a mirror of A that would make it another node's matter: what to put into the object.
REACHING_OUT: Final[dict[str, Callable[[Json, str], None]]] = {
    "the selector of B": lambda one, b: one["spec"].update(nodeSelector={"matchLabels": {HOSTNAME_LABEL: b}}),
    "no selector": lambda one, b: one["spec"].pop("nodeSelector"),
    "an empty selector": lambda one, b: one["spec"].update(nodeSelector={}),
    "a selector for all but A": lambda one, b: one["spec"].update(
        nodeSelector={"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "NotIn", "values": ["x"]}]}
    ),
    "the label of B": lambda one, b: one["metadata"]["labels"].update({STATIC_NODE_LABEL: b}),
    "no label": lambda one, b: one["metadata"].update(labels={STATIC_NODE_LABEL: None}),
    "the owner B": lambda one, b: one["metadata"]["ownerReferences"][0].update(name=b),
    "no owner": lambda one, b: one["metadata"].update(ownerReferences=[]),
    "two owners": lambda one, b: one["metadata"]["ownerReferences"].append(
        {"apiVersion": "v1", "kind": "Node", "name": b, "uid": "1"}
    ),
    "a finalizer": lambda one, b: one["metadata"].update(finalizers=["example.com/kept"]),
}


@dataclass
class Pair:
    """Nodes A and B, each as the stage of its own credentials; ``unbound`` is a token of the ServiceAccount alone."""

    a: Stage
    b: Stage
    unbound: ApiCredentials


@pytest.fixture
async def pair(server: ClusterServer, system: str, namespace: str, tmp_path: Path) -> AsyncIterator[Pair]:
    async with kube(server.admin) as admin:
        await install(admin)
        unbound = await service_account(admin, NAMESPACE, ACCOUNT)
        stages = []
        for suffix in "ab":
            name = f"{namespace}-{suffix}"
            node = api_node(await make_node(admin, name))
            token = (await service_account(admin, NAMESPACE, ACCOUNT, bound=of_node(name))).token
            stages.append(Stage(server, admin, replace(unbound, token=token), name, tmp_path, node))
        await policies_are_in_force(unbound, stages[0])
        a, b = stages
        yield Pair(a, b, unbound)


async def policies_are_in_force(unbound: ApiCredentials, stage: Stage) -> None:
    """Wait until each policy refuses something: the server takes a moment from a policy to its enforcement."""
    async with kube(unbound) as client:
        for write in all_writes(stage):
            with trio.fail_after(PATIENCE):
                for _ in count():
                    if await refusal(write(client)) is not None:
                        break
                    await trio.sleep(0.1)
    async with kube(stage.server.admin) as admin:
        for path in (STATUSES, *(collection(NAMESPACE, plural) for plural in PLURALS.values()), EVENTS):
            await admin.delete(path)


Write = Callable[[KubeClient], object]


def status_of(stage: Stage, **metadata: object) -> Json:
    owner = {"apiVersion": "v1", "kind": "Node", "name": stage.node.name, "uid": stage.node.uid}
    head = {"name": stage.node.name, "namespace": NAMESPACE, "ownerReferences": [owner], **metadata}
    return {"apiVersion": API_VERSION, "kind": NODE_STATUS_KIND, "metadata": head}


def all_writes(stage: Stage) -> list[Write]:
    """Return what a node writes first, one write of each policy."""
    event = index_replaced("7", 3).body(stage.node, MOMENT)
    annotation = {"metadata": {"annotations": {INDEX_ANNOTATION: "3"}}}
    mirror = mirrored(stage, Kind.L3VNI, "probe")
    return [
        lambda client: client.create(EVENTS, event),
        lambda client: client.apply(f"{STATUSES}/{stage.node.name}", status_of(stage), manager=MANAGER),
        lambda client: client.create(collection(NAMESPACE, PLURALS[mirror.kind]), manifest(mirror)),
        lambda client: client.merge_patch(f"/api/v1/nodes/{stage.node.name}", annotation, manager=MANAGER),
    ]


async def refusal(request: object) -> str | None:
    """Return why a write is refused by RBAC or by a policy, None when it is made."""
    try:
        await request  # type: ignore[misc]
    except ConflictError:
        # Admitted: it is there already.
        return None
    except ForbiddenError as error:
        return str(error)
    except InvalidError as error:
        # What the schema refuses would prove nothing.
        if "ValidatingAdmissionPolicy" not in str(error):
            raise
        return str(error)
    return None


async def all_refused(client: KubeClient, writes: dict[str, object]) -> None:
    made = [what for what, request in writes.items() if await refusal(request) is None]
    assert made == []


@both_versions
@pytest.mark.parametrize("kind", list(Kind), ids=str)
async def test_mirrors(server: ClusterServer, pair: Pair, kind: Kind) -> None:
    plural = collection(NAMESPACE, PLURALS[kind])
    own, foreign = mirrored(pair.a, kind, "own"), mirrored(pair.b, kind, "net")
    theirs = await put_mirror(pair.b, foreign)
    there = f"{plural}/{foreign.name}"
    # And one of no node, as users write them.
    users = {**manifest(own), "metadata": {"name": "users", "namespace": NAMESPACE}}
    plain = await make(pair.b.admin, plural, users)
    async with kube(pair.a.account) as client:
        # What is A's own.
        await client.create(plural, manifest(own))
        await client.merge_patch(f"{plural}/{own.name}", {"metadata": {"annotations": {"a": "b"}}}, manager=MANAGER)
        another = mirrored(pair.a, kind, "another")
        await client.create(plural, manifest(another))
        await client.delete(f"{plural}/{another.name}")
        # What is B's, with every verb.
        renamed = {**manifest(foreign), "metadata": {**manifest(foreign)["metadata"], "name": f"{foreign.name}-2"}}
        taken = {"metadata": {key: manifest(own)["metadata"][key] for key in ("labels", "ownerReferences")}}
        await all_refused(
            client,
            {
                "create": client.create(plural, renamed),
                "create a name outside": client.create(
                    plural, {**manifest(own), "metadata": {**manifest(own)["metadata"], "name": "plain"}}
                ),
                "create elsewhere": client.create(collection("default", PLURALS[kind]), _in(manifest(own), "default")),
                "patch": client.merge_patch(there, {"metadata": {"annotations": {"a": "b"}}}, manager=MANAGER),
                "patch the spec": client.merge_patch(there, {"spec": {"nodeSelector": None}}, manager=MANAGER),
                "take over": client.merge_patch(there, {**taken, "spec": own.spec}, manager=MANAGER),
                "apply": client.apply(there, manifest(foreign), manager=MANAGER),
                "replace": client.replace(there, manifest(theirs)),
                "status": client.merge_patch(f"{there}/status", {"status": {"conditions": []}}, manager=MANAGER),
                "replace the status": client.replace(f"{there}/status", manifest(theirs)),
                "delete": client.delete(there),
                "delete all": client.delete(plural),
                "patch a user's": client.merge_patch(f"{plural}/users", {"spec": own.spec}, manager=MANAGER),
                "mark a user's": client.merge_patch(f"{plural}/users", taken, manager=MANAGER),
                "apply a user's": client.apply(f"{plural}/users", users, manager=MANAGER),
                "replace a user's": client.replace(f"{plural}/users", plain),
                "delete a user's": client.delete(f"{plural}/users"),
            },
        )
        for what, edit in REACHING_OUT.items():
            one = manifest(mirrored(pair.a, kind, "new"))
            edit(one, pair.b.node.name)
            assert await refusal(client.create(plural, one)), f"create with {what}"
            patch = manifest(own)
            edit(patch, pair.b.node.name)
            if "nodeSelector" not in patch["spec"]:
                patch["spec"]["nodeSelector"] = None
            elif "matchLabels" not in patch["spec"]["nodeSelector"]:
                patch["spec"]["nodeSelector"]["matchLabels"] = None
            assert await refusal(client.merge_patch(f"{plural}/{own.name}", patch, manager=MANAGER)), f"patch: {what}"
    assert await pair.a.admin.get(there) == await pair.b.admin.get(there)
    assert (await pair.a.admin.get(there))["metadata"]["resourceVersion"] == theirs.resource_version
    assert await pair.a.admin.get(f"{plural}/users") == plain


def _in(body: Json, namespace: str) -> Json:
    return {**body, "metadata": {**body["metadata"], "namespace": namespace}}


@both_versions
async def test_a_mirror_without_label_and_owner_is_restored(server: ClusterServer, pair: Pair) -> None:
    own = mirrored(pair.a, Kind.L3VNI, "own")
    path = f"{collection(NAMESPACE, PLURALS[own.kind])}/{own.name}"
    await put_mirror(pair.a, own)
    lost = {"metadata": {"labels": None, "ownerReferences": None}}
    await pair.a.admin.merge_patch(path, lost, manager=MANAGER)
    async with kube(pair.a.account) as client:
        await client.merge_patch(path, manifest(own), manager=MANAGER)
        await pair.a.admin.merge_patch(path, {"metadata": {"labels": {STATIC_NODE_LABEL: "x"}}}, manager=MANAGER)
        restored = await client.merge_patch(path, manifest(own), manager=MANAGER)
        assert {field: restored["metadata"][field] for field in lost["metadata"]} == {
            field: manifest(own)["metadata"][field] for field in lost["metadata"]
        }
        await client.delete(path)


@both_versions
async def test_long_names(server: ClusterServer, pair: Pair) -> None:
    """Names and labels that are cut, and end in a digest, are the node's own too."""
    name = f"{'a' * 60}.{'b' * 60}.{'c' * 60}.{'d' * 60}"
    node = api_node(await make_node(pair.a.admin, name, {HOSTNAME_LABEL: "short"}))
    token = (await service_account(pair.a.admin, NAMESPACE, ACCOUNT, bound=of_node(name))).token
    stage = replace(pair.a, account=replace(pair.a.account, token=token), node=node)
    one = replace(mirrored(stage, Kind.L3VNI, "x"), name=resource_name(name, "red"))
    assert len(one.name) <= 253
    assert one.labels[STATIC_NODE_LABEL] == label_value(name) != name
    async with kube(stage.account) as client:
        plural = collection(NAMESPACE, PLURALS[one.kind])
        await client.create(plural, manifest(one))
        await client.merge_patch(f"{plural}/{one.name}", manifest(one), manager=MANAGER)
        await client.delete(f"{plural}/{one.name}")
        for write in (*all_writes(stage)[:2], all_writes(stage)[3]):
            assert await refusal(write(client)) is None


@both_versions
async def test_status_objects(server: ClusterServer, pair: Pair) -> None:
    a, b = (f"{STATUSES}/{one.node.name}" for one in (pair.a, pair.b))
    news: Json = {"status": {"conditions": []}}
    async with kube(pair.a.account) as client:
        # B's has to be refused before it is there, too.
        await all_refused(
            client,
            {
                "apply": client.apply(b, status_of(pair.b), manager=MANAGER),
                "create": client.create(STATUSES, status_of(pair.b)),
                "own without owner": client.apply(a, status_of(pair.a, ownerReferences=[]), manager=MANAGER),
                "own with B's owner": client.apply(a, {**status_of(pair.b, name=pair.a.node.name)}, manager=MANAGER),
                "own with a finalizer": client.apply(a, status_of(pair.a, finalizers=["a.b/c"]), manager=MANAGER),
                "own with a label": client.apply(a, status_of(pair.a, labels={"a": "b"}), manager=MANAGER),
            },
        )
        await client.apply(a, status_of(pair.a, labels={INDEX_LABEL: "3"}), manager=MANAGER)
        await client.apply(a, status_of(pair.a, labels={INDEX_LABEL: "4"}), manager=MANAGER)
        await client.apply(a, status_of(pair.a), manager=MANAGER)
        await client.apply(f"{a}/status", {**status_of(pair.a), **news}, manager=MANAGER)
        theirs = await pair.b.admin.apply(b, status_of(pair.b), manager=MANAGER)
        await all_refused(
            client,
            {
                "apply": client.apply(b, status_of(pair.b), manager="other"),
                "apply the status": client.apply(f"{b}/status", {**status_of(pair.b), **news}, manager="other"),
                "patch": client.merge_patch(b, {"metadata": {"annotations": {"a": "b"}}}, manager=MANAGER),
                "patch the status": client.merge_patch(f"{b}/status", news, manager=MANAGER),
                "replace": client.replace(b, theirs),
                "replace the status": client.replace(f"{b}/status", theirs),
                "delete": client.delete(b),
                "delete all": client.delete(STATUSES),
                "give away": client.merge_patch(
                    a, {"metadata": {"ownerReferences": status_of(pair.b)["metadata"]["ownerReferences"]}}, manager="x"
                ),
                "hold": client.merge_patch(a, {"metadata": {"finalizers": ["a.b/c"]}}, manager=MANAGER),
            },
        )
        # Another client's label does not keep the node from writing.
        await pair.a.admin.merge_patch(a, {"metadata": {"labels": {"a": "b"}}}, manager=MANAGER)
        await client.apply(f"{a}/status", {**status_of(pair.a), **news}, manager=MANAGER)


@both_versions
async def test_events(server: ClusterServer, pair: Pair) -> None:
    own, foreign = (index_replaced("7", 3).body(one.node, MOMENT) for one in (pair.a, pair.b))
    counted = {"series": {"count": 2, "lastObservedTime": MOMENT}}
    theirs = await pair.b.admin.create(EVENTS, foreign)
    there = f"{EVENTS}/{theirs['metadata']['name']}"

    def changed(name: str, **fields: object) -> Json:
        return {**own, **fields, "metadata": {**own["metadata"], "name": f"{pair.a.node.name}.{name}"}}

    async with kube(pair.a.account) as client:
        await client.create(EVENTS, own)
        mine = f"{EVENTS}/{own['metadata']['name']}"
        await client.merge_patch(mine, counted, manager=MANAGER)
        applied = {**foreign, "metadata": dict(foreign["metadata"])}
        foreign["metadata"]["name"] += "-2"
        pod = {"apiVersion": "v1", "kind": "Pod", "name": pair.a.node.name, "namespace": "default"}
        other = await make(pair.b.admin, EVENTS, {**changed("other"), "reportingController": "kubelet"})
        await all_refused(
            client,
            {
                "about B": client.create(EVENTS, foreign),
                "about B under A's name": client.create(EVENTS, changed("0", regarding=foreign["regarding"])),
                "about a Pod": client.create(EVENTS, changed("1", regarding=pod)),
                "as another program": client.create(EVENTS, changed("2", reportingController="kubelet")),
                "under B's name": client.create(EVENTS, {**own, "metadata": foreign["metadata"]}),
                "in another namespace": client.create(
                    EVENTS.replace("/default/", "/kube-system/"), _in(changed("3"), "kube-system")
                ),
                "count B's": client.merge_patch(there, counted, manager=MANAGER),
                "count another program's": client.merge_patch(
                    f"{EVENTS}/{other['metadata']['name']}", counted, manager=MANAGER
                ),
                "apply B's": client.apply(there, applied, manager=MANAGER),
                "replace B's": client.replace(there, theirs),
                "delete B's": client.delete(there),
                "delete all": client.delete(EVENTS),
            },
        )


@both_versions
async def test_nodes(server: ClusterServer, pair: Pair) -> None:
    a, b = (f"/api/v1/nodes/{one.node.name}" for one in (pair.a, pair.b))
    index = {"metadata": {"annotations": {INDEX_ANNOTATION: "3"}}}
    new = {"apiVersion": "v1", "kind": "Node"}
    theirs = await pair.b.admin.get(b)
    async with kube(pair.a.account) as client:
        await client.merge_patch(a, index, manager=MANAGER)
        await all_refused(
            client,
            {
                "B's index": client.merge_patch(b, index, manager=MANAGER),
                "B's labels": client.merge_patch(b, {"metadata": {"labels": {"a": "b"}}}, manager=MANAGER),
                "apply B": client.apply(b, {**new, **index}, manager=MANAGER),
                "replace B": client.replace(b, theirs),
                "B's status": client.merge_patch(f"{b}/status", {"status": {"phase": "Pending"}}, manager=MANAGER),
                "create a Node": client.create("/api/v1/nodes", {**new, "metadata": {"name": "new"}}),
                "own labels": client.merge_patch(a, {"metadata": {"labels": {"a": "b"}}}, manager=MANAGER),
                "own taints": client.merge_patch(a, {"spec": {"unschedulable": True}}, manager=MANAGER),
                "own status": client.merge_patch(f"{a}/status", {"status": {"phase": "Pending"}}, manager=MANAGER),
                "delete B": client.delete(b),
                "delete A": client.delete(a),
                "delete all": client.delete("/api/v1/nodes"),
            },
        )


@both_versions
async def test_secrets_are_read_by_name(server: ClusterServer, pair: Pair) -> None:
    secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    for name in ("bgp-passwords", "others"):
        head = {"name": name, "namespace": NAMESPACE}
        await make(pair.a.admin, secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": head})
    async with kube(pair.a.account) as client:
        found = await client.get(secrets, {"fieldSelector": "metadata.name=bgp-passwords"})
        assert [one["metadata"]["name"] for one in found["items"]] == ["bgp-passwords"]
        await all_refused(
            client,
            {
                "list": client.get(secrets),
                "list by another name": client.get(secrets, {"fieldSelector": "metadata.name=others"}),
                "get": client.get(f"{secrets}/others"),
                "list elsewhere": client.get("/api/v1/namespaces/default/secrets"),
                "create": client.create(secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}),
            },
        )


@both_versions
async def test_a_token_that_is_bound_to_no_node_writes_nothing(server: ClusterServer, pair: Pair) -> None:
    async with kube(pair.unbound) as client:
        for write in all_writes(pair.a):
            assert "not bound to a node" in (await refusal(write(client)) or "")
        assert (await client.get(collection(NAMESPACE, PLURALS[Kind.L3VNI])))["items"] == []


@both_versions
async def test_a_token_of_a_pod_is_its_nodes(server: ClusterServer, pair: Pair) -> None:
    """As a credentials proxy, a DaemonSet, has it: from a projected volume, bound to the Pod."""
    await make_namespace(pair.a.admin, NAMESPACE)
    spec = {
        "nodeName": pair.a.node.name,
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": False,
        "containers": [{"name": "proxy", "image": "example.com/proxy"}],
    }
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    head = {"name": pair.a.node.name, "namespace": NAMESPACE}
    pod = await pair.a.admin.create(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec})
    bound = {"apiVersion": "v1", "kind": "Pod", "name": head["name"], "uid": pod["metadata"]["uid"]}
    token = (await service_account(pair.a.admin, NAMESPACE, ACCOUNT, bound=bound)).token
    async with kube(replace(pair.unbound, token=token)) as client:
        for write in all_writes(pair.a):
            assert await refusal(write(client)) is None
        for write in all_writes(pair.b):
            assert await refusal(write(client)) is not None


async def doctor_of(stage: Stage) -> Policies:
    """Return what the doctor of a node finds with its credentials."""
    assert stage.account.token is not None
    directory = stage.directory / stage.node.name
    await trio.Path(directory).mkdir(exist_ok=True)
    text = kubeconfig(
        {"token": stage.account.token.reveal()},
        {"server": stage.server.url, "certificate-authority-data": base64_of(stage.server.ca)},
    )
    await trio.Path(directory / "kubeconfig").write_text(text)
    await trio.Path(directory / "node-config.yaml").write_text(f"nodeName: {stage.node.name}\n")
    settings = Settings(credentials_dir=directory, node_config_file=directory / "node-config.yaml")
    return await read_policies(settings)


KINDS: Final = ("status objects", "networks", "Events", "Nodes")


async def test_the_doctor_names_what_a_token_may_do_beyond_a_nodes_work(pair: Pair) -> None:
    assert (await doctor_of(pair.a)).wide == ()
    rbac, name = "/apis/rbac.authorization.k8s.io/v1", f"wide-{pair.a.node.name}"
    body = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    binding = {**body, "kind": "ClusterRoleBinding", "subjects": [subject], "roleRef": role}
    both = ("read all Secrets of the cluster", f"read all Secrets of {NAMESPACE}")
    for verbs, expected in ((["list"], both), (["*"], ("do everything",))):
        anything = "*" if verbs == ["*"] else ""
        rules = [{"apiGroups": [anything], "resources": [anything or "secrets"], "verbs": verbs}]
        await pair.a.admin.create(f"{rbac}/clusterroles", {**body, "kind": "ClusterRole", "rules": rules})
        await pair.a.admin.create(f"{rbac}/clusterrolebindings", binding)
        try:
            with trio.fail_after(PATIENCE):
                while (await doctor_of(pair.a)).wide != expected:  # noqa: ASYNC110
                    await trio.sleep(0.1)
        finally:
            await pair.a.admin.delete(f"{rbac}/clusterrolebindings/{name}")
            await pair.a.admin.delete(f"{rbac}/clusterroles/{name}")


async def test_without_the_policies_one_node_writes_for_another(server: ClusterServer, pair: Pair) -> None:
    """These tests can fail: what refuses is the policies. The doctor shows both."""
    assert await doctor_of(pair.a) == Policies(dict.fromkeys(KINDS, True))
    bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    for kind in ("nodes", "statuses", "mirrors", "events"):
        await pair.a.admin.delete(f"{bindings}/openperouter-controller-{kind}")
    try:
        async with kube(pair.a.account) as client:
            for write in all_writes(pair.b):
                with trio.fail_after(PATIENCE):
                    while await refusal(write(client)) is not None:  # noqa: ASYNC110
                        await trio.sleep(0.1)
        assert await doctor_of(pair.a) == Policies(dict.fromkeys(KINDS, False))
        # A dry run stores nothing.
        names = [one["metadata"]["name"] for one in (await pair.a.admin.get(STATUSES))["items"]]
        assert names == [pair.b.node.name]
    finally:
        await install(pair.a.admin)
    with pytest.raises(ApiError):
        async with kube(pair.unbound) as client:
            await client.get("/api/v1/secrets")
