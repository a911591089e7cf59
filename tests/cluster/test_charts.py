"""Helm chart and kustomizations by the real helm and kustomize, on real API servers: accepted, applied, and gone again.

Each server is one of its own: what is installed here must not be there before, and nothing may be left.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import yaml

from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import NotFoundError
from kubeserver import clients
from kubeserver.build import RELEASES, Release
from supervisor.operations.cluster import manifests
from tests.cluster.harness import CRD_PATH, MANAGER, PATIENCE, ClusterServer, kube

SYSTEM: Final = "openperouter-system"
#: A node has the package or the pod, so the router is in none of the others.
ROUTER: Final = "--set=router.enabled=true"
ALL: Final = tuple(
    f"--set={value}=true"
    for value in (
        "controller.enabled",
        "webhook.enabled",
        "metrics.enabled",
        "networkPolicy.enabled",
        "monitoring.prometheusRule",
        "monitoring.podMonitor",
        "monitoring.dashboard",
    )
)
#: What the server keeps for itself.
OWN: Final = frozenset({"events", "leases", "endpoints", "endpointslices", "apiservices"})

Json = dict[str, Any]
Key = tuple[str, str, str]


def operators_definition(kind: str) -> dict[str, Any]:
    """Return a definition that Prometheus' operator brings: without its schema, which is not at hand."""
    singular = kind.lower()
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{singular}s.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": f"{singular}s", "singular": singular},
            "versions": [version],
        },
    }


class Tools:
    """helm and kustomize with a home of their own; ``kubeconfig`` names the server."""

    def __init__(self, tree: Path, home: Path, kubeconfig: Path | None = None) -> None:
        self.tree, self.chart = tree, str(tree / "chart")
        self._programs = {path.name: path for path in clients.ensure()}
        self._environment = {"PATH": os.defpath, "HOME": str(home)}
        if kubeconfig is not None:
            self._environment["KUBECONFIG"] = str(kubeconfig)

    def run(self, program: str, *words: str, fails: bool = False) -> str:
        """Run one; return what it prints, or if it ``fails`` what it complains of."""
        command = [str(self._programs[program]), *words]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert (done.returncode != 0) == fails, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stderr if fails else done.stdout

    async def helm(self, *words: str) -> str:
        """Run helm against the server."""
        return await trio.to_thread.run_sync(lambda: self.run("helm", *words))

    def template(self, *values: str, namespace: str = SYSTEM) -> dict[Key, Json]:
        return by_key(self.run("helm", "template", "openperouter", self.chart, f"--namespace={namespace}", *values))

    def build(self, overlay: str) -> dict[Key, Json]:
        return by_key(self.run("kustomize", "build", str(self.tree / "kustomize" / overlay)))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart and the kustomizations as a user gets them."""
    directory = tmp_path_factory.mktemp("manifests") / "tree"
    manifests.write(directory)
    return directory


@pytest.fixture
def offline(tree: Path, tmp_path: Path) -> Tools:
    return Tools(tree, tmp_path)


@pytest.fixture(params=RELEASES, ids=lambda release: release.minor)
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterServer]:
    release: Release = request.param
    server = ClusterServer(release, logs=tmp_path / "logs")
    try:
        server.start()
        yield server
    finally:
        server.discard()


@pytest.fixture
def tools(tree: Path, tmp_path: Path, fresh: ClusterServer) -> Tools:
    return Tools(tree, tmp_path, fresh.admin_kubeconfig())


def by_key(text: str) -> dict[Key, Json]:
    """Return manifests' objects by kind, namespace and name."""
    found = [one for one in yaml.safe_load_all(text) if one]
    keyed = {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in found}
    assert len(keyed) == len(found)
    return keyed


def path_of(one: Json) -> str:
    """Return where an object is on the server."""
    kind, metadata = one["kind"].lower(), one["metadata"]
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    prefix = "/api" if one["apiVersion"] == "v1" else "/apis"
    where = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{prefix}/{one['apiVersion']}{where}/{plural}/{metadata['name']}"


async def collections(client: KubeClient) -> list[str]:
    """Return the paths of all collections that the server can list."""
    groups = (await client.get("/apis"))["groups"]
    paths = ["/api/v1", *(f"/apis/{version['groupVersion']}" for group in groups for version in group["versions"])]
    return [
        f"{path}/{resource['name']}"
        for path in paths
        for resource in (await client.get(path))["resources"]
        if "list" in resource["verbs"] and resource["name"] not in OWN
    ]


async def inventory(client: KubeClient) -> set[str]:
    """Return every object on the server but namespaces that are being deleted: no controller runs that ends it.

    The server makes a service of its own some time after its start, which is waited for.
    """
    with trio.fail_after(PATIENCE):
        while not (await client.get("/api/v1/namespaces/default/services"))["items"]:  # noqa: ASYNC110 - a poll
            await trio.sleep(0.1)
    return {
        f"{path} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}"
        for path in await collections(client)
        for one in (await client.get(path))["items"]
        if not (path == "/api/v1/namespaces" and "deletionTimestamp" in one["metadata"])
    }


async def new_since(client: KubeClient, before: set[str]) -> set[str]:
    """Return what is there that was not; definitions that are being deleted are waited for."""
    with trio.fail_after(PATIENCE):
        while True:
            definitions = (await client.get(CRD_PATH))["items"]
            if not any("deletionTimestamp" in one["metadata"] for one in definitions):
                try:
                    return await inventory(client) - before
                except NotFoundError:
                    # A definition that is gone is announced for a moment longer.
                    assert definitions
            await trio.sleep(0.1)


async def install_operators_definitions(client: KubeClient) -> None:
    """Install what Prometheus' operator would, and wait until it is served."""
    for kind in ("PrometheusRule", "PodMonitor"):
        definition = operators_definition(kind)
        await client.apply(path_of(definition), definition, manager=MANAGER)
    with trio.fail_after(PATIENCE):
        while not {"prometheusrules", "podmonitors"} <= {  # noqa: ASYNC110
            path.rpartition("/")[2] for path in await collections(client)
        }:
            await trio.sleep(0.1)


@pytest.mark.parametrize("values", [(), (*ALL, ROUTER), ("--set=hostbridge.enabled=false", "--set=crds.install=false")])
def test_helm_finds_no_fault_in_the_chart(offline: Tools, values: tuple[str, ...]) -> None:
    assert "1 chart(s) linted, 0 chart(s) failed" in offline.run("helm", "lint", "--strict", offline.chart, *values)


def test_chart_kustomizations_and_manifests_are_the_same(offline: Tools) -> None:
    wanted = offline.build("overlays/full")
    parts = [name for name in manifests.PARTS if name != "router"]
    assert by_key(manifests.manifests(parts)) == wanted
    # Helm makes the namespace by itself (--create-namespace).
    del wanted["Namespace", "", SYSTEM]
    assert offline.template(*ALL, "--set=crds.keep=false") == wanted


def test_without_pods_they_are_the_same(offline: Tools) -> None:
    wanted = offline.build("base")
    assert by_key(manifests.manifests(("crds", "nodes"))) == wanted
    del wanted["Namespace", "", SYSTEM]
    assert offline.template("--set=crds.keep=false", "--set=hostbridge.enabled=false") == wanted


def test_with_the_router_as_a_pod_they_are_the_same(offline: Tools) -> None:
    wanted = offline.build("overlays/router")
    assert by_key(manifests.manifests((*manifests.DEFAULT_PARTS, "router"))) == wanted
    del wanted["Namespace", "", SYSTEM]
    assert offline.template("--set=crds.keep=false", ROUTER) == wanted


def test_the_routers_values_reach_its_containers(offline: Tools) -> None:
    image = "registry.example:5000/openperouter-router:1.0"
    values = (f"--set=router.image={image}", "--set=imagePullPolicy=Always", "--set=router.resources.requests.cpu=1")
    found = offline.template(ROUTER, *values, "--set=router.nodeSelector.role=edge")
    pod = found["DaemonSet", SYSTEM, "openperouter-router"]["spec"]["template"]["spec"]
    containers = {one["name"]: one for one in (*pod["initContainers"], *pod["containers"])}
    assert containers.keys() == {"prepare", "daemon", "frr"}
    assert {(one["image"], one["imagePullPolicy"]) for one in containers.values()} == {(image, "Always")}
    assert containers["daemon"]["resources"]["requests"] == {"cpu": 1, "memory": "128Mi"}
    assert pod["nodeSelector"] == {"role": "edge"}
    other = found["DaemonSet", SYSTEM, "openperouter-hostbridge"]["spec"]["template"]["spec"]["containers"][0]
    assert other["image"] == "openperouter"


def test_the_servers_address_is_the_same_everywhere(offline: Tools) -> None:
    wanted = by_key(manifests.manifests(api_server="node-local"))
    assert offline.build("overlays/node-local") == wanted
    del wanted["Namespace", "", SYSTEM]
    assert offline.template("--set=crds.keep=false", "--set=hostbridge.apiServer=node-local") == wanted


def test_values_reach_the_manifests(offline: Tools) -> None:
    found = offline.template(
        "--set=image=registry.example:5000/openperouter:1.0",
        "--set=imagePullPolicy=Always",
        "--set=hostbridge.resources.limits.memory=256Mi",
        "--set=hostbridge.nodeSelector.role=edge",
        "--set=imagePullSecrets[0].name=registry",
        "--set=passwordSecrets={leaf,spine}",
        *ALL,
        "--set=controller.replicas=1",
        "--set=networkPolicy.apiServerPorts={8443}",
        "--set=metrics.hostDirectory=/var/lib/prometheus/node-exporter",
        "--set=networkPolicy.metricsFrom[0].ipBlock.cidr=192.0.2.1/32",
        "--set=monitoring.labels.team=network",
        namespace="routers",
    )
    assert {namespace for _, namespace, _ in found} == {"", "default", "routers"}
    pod = found["DaemonSet", "routers", "openperouter-hostbridge"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("registry.example:5000/openperouter:1.0", "Always")
    assert "--daemonset=routers/openperouter-hostbridge" in container["args"]
    assert container["resources"] == {"requests": {"cpu": "5m", "memory": "48Mi"}, "limits": {"memory": "256Mi"}}
    assert (pod["imagePullSecrets"], pod["nodeSelector"]) == ([{"name": "registry"}], {"role": "edge"})
    [rule] = found["Role", "routers", "openperouter-passwords"]["rules"]
    assert rule["resourceNames"] == ["leaf", "spine"]
    assert found["ConfigMap", "routers", "openperouter-dashboard"]["metadata"]["labels"]["team"] == "network"
    policy = found["ValidatingAdmissionPolicy", "", "openperouter-controller-nodes"]["spec"]
    assert policy["matchConditions"][0]["expression"].endswith("'system:serviceaccount:routers:controller'")
    assert found["Deployment", "routers", "openperouter-controller"]["spec"]["replicas"] == 1
    [admission] = found["ValidatingWebhookConfiguration", "", "openperouter"]["webhooks"]
    assert admission["clientConfig"]["service"]["namespace"] == "routers"
    assert admission["matchConditions"][0]["expression"].endswith("'system:serviceaccount:routers:controller'")
    [webhook] = found["Deployment", "routers", "openperouter-webhook"]["spec"]["template"]["spec"]["containers"]
    assert webhook["image"] == container["image"]
    assert "--namespace=routers" in webhook["args"]
    [egress] = found["NetworkPolicy", "routers", "openperouter-controller"]["spec"]["egress"]
    assert egress["ports"] == [{"protocol": "TCP", "port": 8443}]
    metrics = found["DaemonSet", "routers", "openperouter-metrics"]["spec"]["template"]["spec"]
    assert metrics["volumes"][0]["hostPath"]["path"] == "/var/lib/prometheus/node-exporter"
    assert metrics["containers"][0]["volumeMounts"][0]["mountPath"] == "/run/openperouter/metrics"
    [ingress] = found["NetworkPolicy", "routers", "openperouter-metrics"]["spec"]["ingress"]
    assert ingress["from"] == [{"ipBlock": {"cidr": "192.0.2.1/32"}}]
    assert ingress["ports"] == [{"protocol": "TCP", "port": 9473}]
    assert found["PodMonitor", "routers", "openperouter"]["metadata"]["labels"]["team"] == "network"
    kept = [one for (kind, _, _), one in found.items() if kind == "CustomResourceDefinition"]
    assert len(kept) == 6
    assert all(one["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"} for one in kept)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("image=", "image"),
        ("image=a b", "image"),
        # A role without names would open all Secrets.
        ("passwordSecrets=null", "passwordSecrets"),
        ("hostbridge.apiServer=http://192.0.2.1", "apiServer"),
        ("hostbridge.apisServer=service", "apisServer"),
        ("crds.keep=maybe", "keep"),
        ("metrics.hostDirectory=run", "hostDirectory"),
        ("monitoring.podMonitor=yes", "podMonitor"),
        ("router.image=", "image"),
    ],
)
def test_wrong_values_are_refused_by_their_names(offline: Tools, value: str, field: str) -> None:
    said = offline.run("helm", "template", "openperouter", offline.chart, f"--set={value}", fails=True)
    assert "values don't meet the specifications of the schema" in said
    assert field in said


async def test_helm_installs_upgrades_and_leaves_nothing(fresh: ClusterServer, tools: Tools) -> None:
    release = ("openperouter", tools.chart, f"--namespace={SYSTEM}", *ALL, ROUTER)
    async with kube(fresh.admin) as client:
        await install_operators_definitions(client)
        before = await inventory(client)
        await tools.helm("install", *release, "--create-namespace", "--dry-run=server")
        assert await new_since(client, before) == set()
        await tools.helm("install", *release, "--create-namespace")
        for one in tools.template(*ALL, ROUTER).values():
            assert (await client.get(path_of(one)))["kind"] == one["kind"]
        await tools.helm("upgrade", *release, "--set=image=openperouter:2")
        daemonset = await client.get(f"/apis/apps/v1/namespaces/{SYSTEM}/daemonsets/openperouter-hostbridge")
        assert daemonset["spec"]["template"]["spec"]["containers"][0]["image"] == "openperouter:2"
        await tools.helm("uninstall", "openperouter", f"--namespace={SYSTEM}")
        # Users' objects stay, with their definitions; and helm does not remove a namespace that it made.
        kept = await new_since(client, before)
        assert {one.partition(" ")[0] for one in kept} == {CRD_PATH, "/api/v1/namespaces"}
        assert len(kept) == 7
        await tools.helm("install", *release, "--set=crds.keep=false")
        await tools.helm("uninstall", "openperouter", f"--namespace={SYSTEM}")
        assert await new_since(client, before) == {f"/api/v1/namespaces /{SYSTEM}"}


async def test_kustomizations_are_applied_and_leave_nothing(fresh: ClusterServer, tools: Tools) -> None:
    objects = list((tools.build("overlays/full") | tools.build("overlays/router")).values())
    async with kube(fresh.admin) as client:
        await install_operators_definitions(client)
        before = await inventory(client)
        for one in objects:
            path = path_of(one)
            answer = await client.create(path.rpartition("/")[0], one, {"dryRun": "All", "fieldValidation": "Strict"})
            assert answer["metadata"]["name"] == one["metadata"]["name"]
            await client.apply(path, one, manager=MANAGER)
        assert len(await new_since(client, before)) >= len(objects)
        for one in reversed(objects):
            await client.delete(path_of(one))
        assert await new_since(client, before) == set()
