"""The API server and the models accept the same, refuse the same, and fill in the same defaults.

Every rule is written twice, as a validator and in the definitions (CEL, patterns, ranges); this is what keeps the two
equal. The exceptions are listed at the end, each with its own test: there the models never meet the difference, since
the server changes what it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.crd.definitions import DEFINITIONS
from config.problems import Kind

from .corpus import GOOD, bridge, dynamic, l2vni, l3vni, neighbor, nic, routed, session, underlay, with_neighbor
from .crd_agreement import MODELS, Judge
from .crd_edge_cases import Schema, near_misses, networks, texts
from .harness import ClusterServer, both_versions, install_crds, kube

SCHEMAS: dict[Kind, Schema] = {
    Kind(one.kind): one.schema()["properties"]["spec"] for one in DEFINITIONS if one.spec is not None
}
#: Ten milliseconds an example: the whole file stays below a minute for each version.
SPECS = settings(max_examples=500, suppress_health_check=list(HealthCheck))
TEXTS = settings(max_examples=150, suppress_health_check=list(HealthCheck))


@pytest.fixture
def judge(server: ClusterServer) -> Iterator[Judge]:
    trio.run(_install, server)
    with Judge(server) as judge:
        yield judge


async def _install(server: ClusterServer) -> None:
    async with kube(server.admin) as client:
        await install_crds(client)


def schema_at(kind: Kind, *path: str) -> Schema:
    """Return the schema of a field; ``[]`` is a list's item."""
    schema = SCHEMAS[kind]
    for step in path:
        schema = schema["items"] if step == "[]" else schema["properties"][step]
    return schema


@both_versions
@pytest.mark.parametrize("kind", MODELS)
def test_specs_are_judged_alike(judge: Judge, kind: Kind) -> None:
    @SPECS
    @given(near_misses(GOOD[kind], SCHEMAS[kind]))
    def alike(spec: Any) -> None:
        judge.both(kind, spec)

    alike()


TEXT_FIELDS: dict[str, tuple[Kind, Schema, Callable[[str], Any]]] = {
    "address": (
        Kind.UNDERLAY,
        schema_at(Kind.UNDERLAY, "neighbors", "[]", "address"),
        lambda text: with_neighbor(address=text),
    ),
    "neighbour's interface": (
        Kind.UNDERLAY,
        schema_at(Kind.UNDERLAY, "neighbors", "[]", "interface"),
        lambda text: with_neighbor(address=None, interface=text),
    ),
    "listen range": (
        Kind.UNDERLAY,
        schema_at(Kind.UNDERLAY, "neighbors", "[]", "listenRange"),
        lambda text: underlay(neighbors=[dynamic(text)]),
    ),
    "password": (
        Kind.UNDERLAY,
        schema_at(Kind.UNDERLAY, "neighbors", "[]", "password"),
        lambda text: with_neighbor(password=text),
    ),
    "secret": (
        Kind.UNDERLAY,
        schema_at(Kind.UNDERLAY, "neighbors", "[]", "passwordSecret", "name"),
        lambda text: with_neighbor(passwordSecret={"name": text}),
    ),
    "link": (
        Kind.UNDERLAY,
        schema_at(Kind.UNDERLAY, "interfaces", "[]", "networkDevice", "interfaceName"),
        lambda text: underlay(interfaces=[nic(text)]),
    ),
    "IPv4 network": (
        Kind.UNDERLAY,
        schema_at(Kind.UNDERLAY, "routerIDCIDR"),
        lambda text: underlay(routerIDCIDR=text),
    ),
    "IPv6 network": (
        Kind.L3VNI,
        schema_at(Kind.L3VNI, "hostSession", "localCIDR", "ipv6"),
        lambda text: l3vni(hostSession=session(localCIDR={"ipv6": text})),
    ),
    "network": (Kind.L2VNI, schema_at(Kind.L2VNI, "gatewayIPs", "[]"), routed),
    "VRF": (Kind.L3VNI, schema_at(Kind.L3VNI, "vrf"), lambda text: l3vni(vrf=text)),
    "route target": (
        Kind.L3VNI,
        schema_at(Kind.L3VNI, "exportRTs", "[]"),
        lambda text: l3vni(exportRTs=[text]),
    ),
    "route distinguisher": (Kind.L2VNI, schema_at(Kind.L2VNI, "rd"), lambda text: l2vni(rd=text)),
    "bridge": (
        Kind.L2VNI,
        schema_at(Kind.L2VNI, "hostMaster", "linuxBridge", "name"),
        lambda text: bridge(lifecycle="External", name=text),
    ),
}


@both_versions
@pytest.mark.parametrize("field", TEXT_FIELDS)
def test_texts_are_judged_alike(judge: Judge, field: str) -> None:
    kind, schema, spec = TEXT_FIELDS[field]
    verdicts: set[bool] = set()

    @TEXTS
    @given(texts(schema))
    def alike(text: str) -> None:
        verdicts.add(judge.both(kind, spec(text)))

    alike()
    assert verdicts == {True, False}, "the strategy proves nothing"


SMALL_NETWORKS = st.builds(
    "10.0.{}.{}/{}".format, st.integers(0, 3), st.sampled_from([0, 1, 128]), st.sampled_from([0, 8, 22, 23, 24, 25, 32])
)
PEERS = st.one_of(
    SMALL_NETWORKS.map(dynamic),
    st.sampled_from(["2001:db8::/32", "2001:db8:1::/48", "2001:DB8::1/128", "::/0"]).map(dynamic),
    st.sampled_from(["10.0.0.1", "2001:db8::1", "2001:0DB8::0001", "::1"]).map(lambda text: neighbor(address=text)),
    st.sampled_from(["eth0", "eth1", "ETH0"]).map(lambda text: neighbor(address=None, interface=text)),
)
LISTS: dict[str, tuple[Kind, st.SearchStrategy[Any]]] = {
    "neighbours": (Kind.UNDERLAY, st.lists(PEERS, min_size=2, max_size=5).map(lambda many: underlay(neighbors=many))),
    "links": (
        Kind.UNDERLAY,
        st.lists(st.sampled_from(["eth0", "eth1", "eth2", "Eth0"]), min_size=2, max_size=4).map(
            lambda names: underlay(interfaces=[nic(name) for name in names])
        ),
    ),
    "tunnel networks": (
        Kind.UNDERLAY,
        st.lists(networks(), max_size=3).map(lambda cidrs: underlay(tunnelEndpoint={"cidrs": cidrs})),
    ),
    "gateways": (
        Kind.L2VNI,
        st.lists(st.sampled_from(["10.0.0.1/24", "10.1.0.1/24", "fd00::1/64", "fd01::1/64", "x"]), max_size=3).map(
            lambda gateways: routed(*gateways)
        ),
    ),
}


@both_versions
@pytest.mark.parametrize("name", LISTS)
def test_entries_beside_one_another_are_judged_alike(judge: Judge, name: str) -> None:
    kind, strategy = LISTS[name]
    verdicts: set[bool] = set()

    @TEXTS
    @given(strategy)
    def alike(spec: Any) -> None:
        verdicts.add(judge.both(kind, spec))

    alike()
    assert verdicts == {True, False}, "the strategy proves nothing"


@both_versions
def test_the_longest_lists_are_within_the_server_s_means(judge: Judge) -> None:
    """CEL has a budget, and rules about pairs use the most of it."""
    long = "2001:0db8:{:04x}:1111:2222:3333:4444:5555"
    many: dict[str, list[dict[str, Any]]] = {
        "ranges": [dynamic(long.format(number) + "/127") for number in range(128)],
        "addresses": [neighbor(address=long.format(number)) for number in range(128)],
        "interfaces": [neighbor(address=None, interface=f"{number:015d}") for number in range(128)],
    }
    for peers in many.values():
        links = [nic(f"e{number:014d}") for number in range(64)]
        assert judge.both(Kind.UNDERLAY, underlay(neighbors=peers, interfaces=links))
    assert judge.both(
        Kind.L3VNI, l3vni(importRTs=["255.255.255.255:65535"] * 100, exportRTs=["4294967295:65535"] * 100)
    )
    hosts = [f"worker-{number}.example.org" for number in range(5000)]
    selecting = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": hosts}] * 20}
    assert judge.both(Kind.L2VNI, l2vni(nodeSelector=selecting))


# The exceptions. Neither can reach a model by way of the server.


@both_versions
def test_exception_whole_number_with_a_point(judge: Judge) -> None:
    """The server takes 5.0 for an integer and keeps 5; the model wants 5."""
    verdict = judge.server(Kind.L3VNI, l3vni(vni=5.0))
    assert verdict.spec["vni"] == 5
    assert isinstance(verdict.spec["vni"], int)
    assert not judge.model(Kind.L3VNI, l3vni(vni=5.0)).accepted
    assert judge.model(Kind.L3VNI, verdict.spec).accepted


@both_versions
def test_exception_unknown_key_without_a_value(judge: Judge) -> None:
    """A strict client gets an error; for the model, which reads YAML files as well, null is the same as not written."""
    spec = l3vni() | {"unknown": None}
    assert "unknown" in judge.server(Kind.L3VNI, spec).why
    assert judge.model(Kind.L3VNI, spec).accepted
