"""The router of the samples: its configuration, and an FRR that answers as the real one did."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from ipaddress import IPv4Address, ip_interface
from pathlib import Path

from actors.health.assess import HealthInputs, assess
from actors.health.frr_json import NEXT_HOPS, Observation, parse, parse_evpn
from actors.health.vnis import faults_of
from actors.lib.tunnel_entries import TunnelEntries
from config.desired import (
    Bfd,
    BGPFamily,
    DesiredL2VNI,
    DesiredL3VNI,
    DesiredSession,
    DesiredState,
    DesiredUnderlay,
    EndpointKind,
    FabricNeighbor,
    Family,
    SessionAddresses,
)
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome
from config.problems import Kind, Origin, ResourceId
from supervisor.runtime.faults import DependencyFault

#: What the kernel has of the only next hop in the samples ``fabric_*``.
ENTRIES = TunnelEntries(
    neighbors=frozenset({("br-pe-100", "100.64.0.1", "02:00:00:00:40:01")}),
    endpoints=frozenset({("vni100", "02:00:00:00:40:01", "100.64.0.1")}),
)
SAMPLES = Path(__file__).parent / "samples"

UNDERLAY = ResourceId(Kind.UNDERLAY, "openperouter-system", "underlay", "underlay")
RED = ResourceId(Kind.L3VNI, "openperouter-system", "red", "red")
RED_L2 = ResourceId(Kind.L2VNI, "openperouter-system", "red-110", "red-110")
BLUE_L2 = ResourceId(Kind.L2VNI, "openperouter-system", "blue-111", "blue-111")


def neighbor(endpoint: str, kind: EndpointKind = EndpointKind.ADDRESS, bfd: Bfd | None = None) -> FabricNeighbor:
    families = (BGPFamily.IPV4_UNICAST, BGPFamily.EVPN)
    return FabricNeighbor(endpoint, kind, Family.IPV4, "external", True, families, bfd=bfd)


def desired(generation: int = 1, *, reload_id: int = 0) -> DesiredState:
    vtep = IPv4Address("100.65.0.1")
    neighbors = (
        neighbor("192.168.11.2", bfd=Bfd()),
        neighbor("192.168.11.77"),
        neighbor("toswitch1", EndpointKind.INTERFACE),
        neighbor("172.31.0.0/24", EndpointKind.LISTEN_RANGE),
    )
    underlay = DesiredUnderlay(
        UNDERLAY,
        Origin("underlay.yaml", 2),
        asn=64514,
        router_id=IPv4Address("10.0.0.1"),
        interfaces=("toswitch1",),
        neighbors=neighbors,
        vteps=(ip_interface("100.65.0.1/32"),),
        advertise_evpn=True,
    )
    addresses = SessionAddresses(ip_interface("172.27.10.1/24"), ip_interface("172.27.10.2/24"))
    session = DesiredSession(64514, 64515, True, (addresses,))
    red = DesiredL3VNI(RED, Origin("vnis.yaml", 2), "red", 100, 4789, vtep, 64514, session)
    red_l2 = DesiredL2VNI(RED_L2, Origin("vnis.yaml", 9), 110, 4789, vtep, vrf="red")
    blue_l2 = DesiredL2VNI(BLUE_L2, Origin("vnis.yaml", 14), 111, 4789, vtep)
    return DesiredState(
        generation, "n1", 0, reload_id=reload_id, underlay=underlay, l3vnis=(red,), l2vnis=(blue_l2, red_l2)
    )


def applied(state: DesiredState, *, settling: bool = False) -> HealthInputs:
    """The inputs of a state that FRR and the kernel both report as applied."""
    kernel = KernelOutcome(state, applied=True, underlay_mtu=9000)
    return HealthInputs(state, FrrOutcome(state, applied=True), kernel, settling=settling)


def sample(name: str) -> tuple[frozenset[str], dict[str, object]]:
    document = json.loads((SAMPLES / f"{name}.json").read_text())
    return frozenset(document["daemons"]), document["answers"]


def observed(name: str) -> Observation:
    daemons, answers = sample(name)
    seen = parse(daemons, answers)
    return replace(seen, evpn=parse_evpn(answers)) if NEXT_HOPS in answers else seen


def fabric(generation: int = 1) -> DesiredState:
    """The router of the samples ``fabric_*``: one neighbour, an L3VNI and two L2VNIs; the leaf has the same ones."""
    state = desired(generation)
    assert state.underlay is not None
    target = ("64512:100",)
    red = replace(state.l3vnis[0], import_rts=target, export_rts=target)
    return replace(state, underlay=replace(state.underlay, neighbors=(neighbor("192.168.11.2"),)), l3vnis=(red,))


def assessed(inputs: HealthInputs, seen: Observation) -> HealthReport:
    """Return the report in which every fault counts."""
    return assess(inputs, seen, faults_of(inputs.state, inputs.omitted, seen) if inputs.state else {})


class SampledFrr:
    """Answers like vtysh in one of the sampled situations, which a test may change between two polls."""

    def __init__(self, situation: str) -> None:
        self.situation = situation
        #: A daemon that runs and does not answer.
        self.silent = ""
        self.polls = 0
        #: What happens once, during the next poll.
        self.meanwhile: Callable[[], None] | None = None

    async def daemons(self) -> frozenset[str]:
        self.polls += 1
        if self.meanwhile is not None:
            self.meanwhile()
            self.meanwhile = None
        if self.situation == "unresponsive":
            raise DependencyFault("FRR does not answer: failed to connect to any daemons")
        return sample(self.situation)[0]

    async def send(self, asked: Mapping[str, tuple[str, ...]]) -> None:
        assert set(asked) <= sample(self.situation)[0]

    async def json(self, *commands: str, daemon: str) -> list[object]:
        if daemon == self.silent:
            raise DependencyFault(f"{daemon} did not answer within 20 s")
        answers = sample(self.situation)[1]
        return [answers.get(command) for command in commands]
