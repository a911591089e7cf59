"""The definitions as they are shipped, on the servers that they are meant for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import trio
import yaml
from pydantic import ValidationError

from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import InvalidError
from config.api import API_VERSION, NODE_STATUS_KIND, NODE_STATUS_PLURAL, PLURALS
from config.crd.conditions import DEGRADED, READY, SUCCESSFUL, condition
from config.crd.definitions import DEFINITIONS
from config.crd.node_status import (
    MAX_FAILED,
    MAX_RESOURCES,
    MAX_SESSIONS,
    MAX_VNIS,
    NodeStatus,
    failed_resource,
    node_status,
    observed_resource,
    session_state,
    vni_state,
)
from config.models import L2Vni
from config.models.rules import VALIDATIONS
from config.outcomes import SessionHealth, VniHealth
from config.problems import Kind, Reason, ResourceId

from .corpus import BAD, GOOD, l2vni, l3vni, nic, routed, session, underlay
from .crd_agreement import MODELS, Judge, as_data
from .harness import CRD_PATH, MANAGER, PATIENCE, ClusterServer, both_versions, install_crds, kube

Json = dict[str, Any]


@pytest.fixture
async def client(server: ClusterServer, crds: list[str]) -> AsyncIterator[KubeClient]:
    async with kube(server.admin) as client:
        yield client


def path(plural: str, namespace: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{plural}"


def manifest(kind: str, name: str, **parts: Any) -> Json:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, **parts}


async def created(client: KubeClient, kind: Kind, namespace: str, spec: Any, name: str = "one") -> Json:
    return await client.create(path(PLURALS[kind], namespace), manifest(kind.value, name, spec=spec))


@both_versions
async def test_all_are_installed_and_sound(client: KubeClient, crds: list[str]) -> None:
    assert set(crds) == {definition.name for definition in DEFINITIONS}
    for name in crds:
        conditions = (await client.get(f"{CRD_PATH}/{name}"))["status"]["conditions"]
        found = {one["type"]: one["status"] for one in conditions}
        assert found == {"NamesAccepted": "True", "Established": "True"}, conditions


@both_versions
@pytest.mark.parametrize("kind", Kind)
async def test_good_objects_are_kept_with_the_models_defaults(client: KubeClient, namespace: str, kind: Kind) -> None:
    for number, spec in enumerate(GOOD[kind]):
        await created(client, kind, namespace, spec, f"good-{number}")
        kept = await client.get(f"{path(PLURALS[kind], namespace)}/good-{number}")
        assert kept["spec"] == as_data(MODELS[kind].from_api(spec))
        assert MODELS[kind].model_validate(kept["spec"]) == MODELS[kind].model_validate(spec)


@both_versions
@pytest.mark.parametrize("kind", Kind)
async def test_bad_objects_are_refused_by_both(
    server: ClusterServer, client: KubeClient, namespace: str, kind: Kind
) -> None:
    with Judge(server) as judge:
        for name, spec in BAD[kind].items():
            assert not judge.model(kind, spec).accepted, name
            body = manifest(kind.value, "bad", spec=spec)
            with pytest.raises(InvalidError):
                await client.create(path(PLURALS[kind], namespace), body, {"fieldValidation": "Strict"})


@both_versions
async def test_every_rule_refuses_something(server: ClusterServer, crds: list[str]) -> None:
    """Each rule in CEL is the reason why one of the bad objects is refused: none is there for nothing."""
    assert crds
    with Judge(server) as judge:
        shown = "\n".join(judge.server(kind, spec).why for kind, specs in BAD.items() for spec in specs.values())
    written = {rule["message"] for kind in Kind for rule in rules(schema_of(kind)) if "oldSelf" not in rule["rule"]}
    assert len(written) > 20
    assert not {message for message in written if message not in shown}


def schema_of(kind: Kind) -> Json:
    [definition] = [one for one in DEFINITIONS if one.kind == kind.value]
    schema: Json = definition.schema()["properties"]["spec"]
    return schema


def rules(schema: Any) -> Iterator[Json]:
    """Yield all CEL rules in a schema."""
    if isinstance(schema, dict):
        yield from schema.get(VALIDATIONS, ())
        for inner in schema.values():
            yield from rules(inner)


CHANGES: dict[str, tuple[Kind, Json, Json]] = {
    "an L3VNI's pool": (
        Kind.L3VNI,
        l3vni(hostSession=session()),
        l3vni(hostSession=session(localCIDR={"ipv4": "10.0.0.0/24"})),
    ),
    "a further pool": (
        Kind.L3VNI,
        l3vni(hostSession=session()),
        l3vni(hostSession=session(localCIDR={"ipv4": "172.26.10.0/24", "ipv6": "fd00::/64"})),
    ),
    "a pool in the other form": (
        Kind.L3VNI,
        l3vni(hostSession=session()),
        l3vni(hostSession=session(localCIDR=None, localCIDRs=["10.0.0.0/24"])),
    ),
    "a further pool in the other form": (
        Kind.L3VNI,
        l3vni(hostSession=session()),
        l3vni(hostSession=session(localCIDR=None, localCIDRs=["172.26.10.0/24", "fd00::/64"])),
    ),
    "the passthrough's pool": (
        Kind.L3PASSTHROUGH,
        {"hostSession": session()},
        {"hostSession": session(localCIDR={"ipv4": "10.0.0.0/24"})},
    ),
    "a gateway": (Kind.L2VNI, routed("172.28.24.1/24"), routed("172.28.24.2/24")),
    "a further gateway": (Kind.L2VNI, routed("172.28.24.1/24"), routed("172.28.24.1/24", "fd00::1/64")),
}


@both_versions
@pytest.mark.parametrize("change", CHANGES)
async def test_what_upstream_makes_immutable_is(client: KubeClient, namespace: str, change: str) -> None:
    kind, before, after = CHANGES[change]
    made = await created(client, kind, namespace, before)
    with pytest.raises(InvalidError, match=r"cannot be changed; delete .* and create it again"):
        await client.replace(f"{path(PLURALS[kind], namespace)}/one", made | {"spec": after})


@both_versions
async def test_everything_else_can_be_changed(client: KubeClient, namespace: str) -> None:
    """Sessions and gateways may also come and go as a whole: this router carries that out."""
    steps = {
        Kind.L3VNI: [l3vni(), l3vni(hostSession=session()), l3vni(vni=7, vrf="blue")],
        Kind.L2VNI: [l2vni(), routed("172.28.24.1/24"), l2vni(vni=7)],
        Kind.UNDERLAY: [underlay(), underlay(asn=1, interfaces=[nic("eth7")])],
    }
    for kind, [first, *others] in steps.items():
        made = await created(client, kind, namespace, first)
        for spec in others:
            made = await client.replace(f"{path(PLURALS[kind], namespace)}/one", made | {"spec": spec})
            assert MODELS[kind].from_api(made["spec"]) == MODELS[kind].from_api(spec)


UPSTREAM_ONLY = """
asn: 64514
interfaces:
  - type: NetworkDevice
    networkDevice: {interfaceName: eth0}
neighbors:
  - type: Internal
    address: 192.0.2.1
    addressFamilies:
      - type: evpn
        properties: [{type: routeReflectorClient}]
routeReflector: {clusterID: 192.0.2.1}
tunnelEndpoint: {cidrs: ["fd00::/64"]}
isis: {baseNet: 49.0001.0000.0000.0001.00}
srv6: {locator: {basePrefix: "fd00::/32", format: usid-f3216}}
"""


@both_versions
async def test_fields_of_upstream_that_are_not_here_yet_are_refused_or_pruned(
    server: ClusterServer, client: KubeClient, namespace: str
) -> None:
    """Kubectl asks for strictness; who does not gets a warning and an object without them (docs/compatibility.md)."""
    spec = yaml.safe_load(UPSTREAM_ONLY)
    with Judge(server) as judge:
        why = judge.server(Kind.UNDERLAY, spec).why
    for field in ("spec.isis", "spec.srv6"):
        assert f'unknown field "{field}"' in why
    made = await created(client, Kind.UNDERLAY, namespace, spec)
    assert set(made["spec"]) == {"asn", "interfaces", "neighbors", "routeReflector", "routerIDCIDR", "tunnelEndpoint"}


def upstream_s_l2vnis() -> Json:
    """Return a definition that takes the bridges of upstream that ours does not."""
    [definition] = [one.to_data() for one in DEFINITIONS if one.kind == Kind.L2VNI.value]
    [version] = definition["spec"]["versions"]
    master = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["hostMaster"]
    master["properties"]["type"]["enum"].append("OVSBridge")
    master["properties"]["ovsBridge"] = {"type": "object", "properties": {"lifecycle": {"type": "string"}}}
    del master[VALIDATIONS]
    return definition


@both_versions
async def test_for_an_object_older_than_our_definitions_the_reason_is_reported(
    client: KubeClient, namespace: str
) -> None:
    """Upstream's definitions are replaced by ours: what they kept stays, is refused by the model, and gets a status."""
    theirs = upstream_s_l2vnis()
    spec = l2vni(hostMaster={"type": "OVSBridge", "ovsBridge": {"lifecycle": "Managed"}})
    try:
        await client.apply(f"{CRD_PATH}/{theirs['metadata']['name']}", theirs, manager=MANAGER)
        await until_served(client, namespace, spec, accepted=True)
    finally:
        await install_crds(client)
    await until_served(client, namespace, spec, accepted=False)
    place = f"{path('l2vnis', namespace)}/probe"
    kept = await client.get(place)
    assert kept["spec"]["hostMaster"] == {"type": "OVSBridge"}
    with pytest.raises(ValidationError, match="OVS bridges are not supported yet"):
        L2Vni.from_api(kept["spec"])
    said = condition(READY, False, "ValidationFailed", "OVS bridges are not supported yet", now=0.0)
    status = manifest("L2VNI", "probe", status={"conditions": [as_data(said)]})
    assert (await client.apply(f"{place}/status", status, manager="test"))["status"]["conditions"]


async def until_served(client: KubeClient, namespace: str, spec: Json, *, accepted: bool) -> None:
    """Wait until the server goes by a changed definition: there is no other sign of it than what it says to objects."""
    with trio.fail_after(PATIENCE):
        while True:
            body = manifest("L2VNI", "probe" if accepted else "another", spec=spec)
            try:
                await client.create(path("l2vnis", namespace), body, {} if accepted else {"dryRun": "All"})
                found = True
            except InvalidError:
                found = False
            if found == accepted:
                return
            await trio.sleep(0.05)


@both_versions
@pytest.mark.parametrize("kind", Kind)
async def test_a_resource_s_conditions_have_several_writers(client: KubeClient, namespace: str, kind: Kind) -> None:
    """The status is a resource of its own, and conditions are distinguished by their type."""
    await created(client, kind, namespace, GOOD[kind][0])
    place = f"{path(PLURALS[kind], namespace)}/one/status"
    for manager, type_ in (("a", READY), ("b", DEGRADED)):
        said = condition(type_, True, SUCCESSFUL, "on 3 of 3 nodes", now=0.0, generation=1)
        status = {"conditions": [as_data(said)]}
        await client.apply(place, manifest(kind.value, "one", status=status), manager=manager)
    kept = await client.get(place.removesuffix("/status"))
    assert {one["type"] for one in kept["status"]["conditions"]} == {READY, DEGRADED}
    assert kept["metadata"]["generation"] == 1


COLUMNS: dict[Kind, Json] = {
    Kind.UNDERLAY: {"ASN": 64514, "Endpoints": None},
    Kind.L3VNI: {"VRF": "red", "VNI": 100, "Host IPv4": "172.26.10.0/24", "Host IPv6": None},
    Kind.L2VNI: {"VNI": 210, "Routing Domain": "red", "Gateway IPs": '["172.28.24.1/24"]'},
    Kind.L3PASSTHROUGH: {"Host IPv4": "172.26.10.0/24", "Host IPv6": None},
    Kind.RAW_FRR_CONFIG: {"Priority": 0},
}
SHOWN = {
    Kind.UNDERLAY: underlay(),
    Kind.L3VNI: l3vni(hostSession=session()),
    Kind.L2VNI: routed("172.28.24.1/24"),
    Kind.L3PASSTHROUGH: {"hostSession": session()},
    Kind.RAW_FRR_CONFIG: {"rawConfig": "!"},
}


@both_versions
@pytest.mark.parametrize("kind", Kind)
async def test_kubectl_get_shows_what_matters(
    server: ClusterServer, client: KubeClient, namespace: str, kind: Kind
) -> None:
    await created(client, kind, namespace, SHOWN[kind])
    said = condition(READY, True, SUCCESSFUL, "in force on 3 of 3 nodes", now=0.0)
    status = manifest(kind.value, "one", status={"conditions": [as_data(said)]})
    await client.apply(f"{path(PLURALS[kind], namespace)}/one/status", status, manager="test")
    with Judge(server) as judge:
        [row] = judge.table(path(PLURALS[kind], namespace))
    expected = {"Name": "one", **COLUMNS[kind], "Ready": "True", "Message": "in force on 3 of 3 nodes"}
    assert row.pop("Age")
    assert row == expected


async def write_status(client: KubeClient, namespace: str, status: Any, name: str = "worker-1") -> Json:
    """Create a node's status object where there is none, and write its status."""
    place = f"{path(NODE_STATUS_PLURAL, namespace)}/{name}"
    await client.apply(place, manifest(NODE_STATUS_KIND, name), manager="test")
    body = manifest(NODE_STATUS_KIND, name, status=status)
    return await client.apply(f"{place}/status", body, manager="test")


ODD = "tab\there\nand a line \x00 \ud800" + "x" * 600


@both_versions
async def test_whatever_a_node_says_is_kept(server: ClusterServer, client: KubeClient, namespace: str) -> None:
    status = node_status(
        [condition(READY, None, "no reason!", ODD, now=0.0), condition(DEGRADED, True, "", "", now=1.5)],
        failed=[failed_resource(kind, ODD, reason, ODD, namespace=ODD) for kind in (None, *Kind) for reason in Reason],
        resources=[observed_resource(kind, ODD, 3, in_force=True, namespace=ODD) for kind in Kind],
        sessions=[
            session_state(SessionHealth(ODD, ODD, -1, ODD, role=ODD, bfd=ODD)),
            session_state(SessionHealth("", "", 1, "", role="host")),
        ],
        vnis=[
            vni_state(VniHealth(ResourceId(kind, "", ""), 100, "L3", ODD, ok=False, detail=ODD))
            for kind in (Kind.L3VNI, Kind.L2VNI)
        ],
    )
    kept = await write_status(client, namespace, status.to_data())
    assert NodeStatus.model_validate(kept["status"]) == status
    with Judge(server) as judge:
        [row] = judge.table(path(NODE_STATUS_PLURAL, namespace))
    assert (row["Name"], row["Ready"], row["Degraded"]) == ("worker-1", "Unknown", "True")


@both_versions
async def test_the_largest_status_is_kept(client: KubeClient, namespace: str) -> None:
    name, space = "n" * 63, "s" * 63
    status = node_status(
        [condition(READY, False, SUCCESSFUL, "x" * 32768, now=0.0)],
        failed=[failed_resource(Kind.L3VNI, f"{name}{n}", Reason.VALIDATION_FAILED, ODD) for n in range(MAX_FAILED)],
        resources=[
            observed_resource(Kind.L3VNI, f"{name}{n}", n, in_force=True, namespace=space) for n in range(MAX_RESOURCES)
        ],
        sessions=[
            session_state(SessionHealth(f"2001:db8::{n}", "v" * 15, 1, "Idle", role="host"))
            for n in range(MAX_SESSIONS)
        ],
        vnis=[
            vni_state(VniHealth(ResourceId(Kind.L2VNI, space, f"{name}{n}"), n + 1, "L2", "v" * 15, ok=True))
            for n in range(MAX_VNIS)
        ],
    )
    kept = await write_status(client, namespace, status.to_data())
    assert NodeStatus.model_validate(kept["status"]) == status


@both_versions
@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "L3VPN", "name": "a", "reason": "ValidationFailed", "message": "m"},
        {"kind": "L3VNI", "name": "", "reason": "ValidationFailed", "message": "m"},
        {"kind": "L3VNI", "name": "a" * 254, "reason": "ValidationFailed", "message": "m"},
        {"kind": "L3VNI", "name": "a", "reason": "FileInvalid", "message": "m"},
        {"kind": "L3VNI", "name": "a", "reason": "ValidationFailed", "message": ""},
        {"kind": "L3VNI", "name": "a", "reason": "ValidationFailed", "message": "m" * 501},
        {"kind": "L3VNI", "name": "a", "reason": "ValidationFailed"},
    ],
)
async def test_an_illegal_failure_is_refused_with_all_beside_it(
    client: KubeClient, namespace: str, entry: Json
) -> None:
    """Upstream's schema; it is why nothing but config.crd.node_status makes these entries."""
    with pytest.raises(InvalidError):
        await write_status(client, namespace, {"failedResources": [entry]})
