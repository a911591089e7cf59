"""The tree to the letter: where each part hangs, what is marked as down, and names that Graphviz would misread."""

from __future__ import annotations

import re
from dataclasses import replace

from config.outcomes import InterfaceHealth, SessionHealth, VniHealth
from config.problems import Kind, ResourceId
from config.status import Status, UnderlayStatus
from supervisor.operations.inspection.topology import Place, lines, to_document, to_dot, topology
from tests.supervisor.operations.inspection.example_node import DESIRED, STATUS


def text(root: Place) -> str:
    return "\n".join(f"{branch}{place}" for branch, place in lines(root))


def test_a_node_with_everything() -> None:
    assert (
        text(topology(STATUS, DESIRED))
        == """\
n1, AS 64514, router ID 10.0.0.1, VTEP 100.65.0.0/32
├─ NIC eth1, MTU 9000
│  └─ fabric eth1, AS 64512: Established
├─ NIC eth2, MTU 9000: DOWN (no carrier)
│  └─ fabric eth2, AS 64513: DOWN (Idle, the peer sends no BFD packets)
├─ fabric 172.31.0.0/24: listen range
├─ fabric 172.31.0.9, AS 64520: Established
├─ fabric 10.9.9.9, AS 64521: DOWN (Connect)
├─ segments without a VRF
│  └─ L2VNI tenant/lone, VNI 120: DOWN (host bridge br0 is missing)
│     ├─ host host-e-120
│     └─ 0 remote VTEPs
├─ VRF red
│  ├─ L3VNI red, VNI 100, 1 route
│  │  ├─ host 172.27.10.2/24 on host-e-100, AS 64515: DOWN (Active)
│  │  └─ host 2001:db9:1::2/64 on host-e-100, AS 64515: Established
│  └─ L2VNI red, VNI 110
│     ├─ host host-e-110, a port of br-hs-110, gateways 172.28.24.1/24
│     └─ 2 remote VTEPs
├─ BGP passthrough
│  └─ host 172.27.10.2/24 on pt-host, AS 64515: Established
└─ L3VNI green: DOWN (not in force: vni: is taken)"""
    )


def test_it_is_the_same_of_a_status_that_was_read_from_json() -> None:
    assert topology(Status.from_json(STATUS.to_json()), DESIRED) == topology(STATUS, DESIRED)


def test_without_the_configuration_only_addresses_and_bridges_are_missing() -> None:
    tree = text(topology(STATUS, None))
    assert "├─ host 172.27.10.2 on host-e-100, AS 64515: DOWN (Active)\n" in tree
    assert "├─ host host-e-110\n" in tree
    assert len(tree.splitlines()) == len(text(topology(STATUS, DESIRED)).splitlines())


def test_a_node_without_anything() -> None:
    assert text(topology(Status(), None)) == "this node"


def test_all_sessions_are_below_the_only_nic() -> None:
    nic = InterfaceHealth("eth1", present=False, up=False)
    underlay = UnderlayStatus("u", "", 64514, "10.0.0.1", (), (nic,))
    status = Status(node="n1", underlay=underlay, sessions=(SessionHealth("192.0.2.1", "default", 0, "Missing"),))
    assert text(topology(status, None)).splitlines() == [
        "n1, AS 64514, router ID 10.0.0.1",
        "└─ NIC eth1: DOWN (missing)",
        "   └─ fabric 192.0.2.1: DOWN (Missing)",
    ]


def test_a_session_in_a_vrf_without_l3vni_is_shown() -> None:
    status = Status(node="n1", sessions=(SessionHealth("192.0.2.1", "mine", 64520, "Established", role="host"),))
    assert text(topology(status, DESIRED)).splitlines()[1:] == [
        "└─ VRF mine",
        "   └─ host 192.0.2.1, AS 64520: Established",
    ]


def test_a_document_for_graphviz() -> None:
    tree = Place("n1", children=(Place("NIC eth1", "no carrier", down=True, children=(Place("a"),)), Place("b", "ok")))
    assert (
        to_dot(tree)
        == """\
digraph openperouter {
  rankdir=LR;
  node [shape=box, fontname="sans-serif"];
  n0 [label="n1"];
  n1 [label="NIC eth1: DOWN (no carrier)", color=red, fontcolor=red];
  n0 -> n1;
  n2 [label="a"];
  n1 -> n2;
  n3 [label="b: ok"];
  n0 -> n3;
}"""
    )


def test_names_cannot_end_a_string_of_the_document_or_begin_an_escape_in_it() -> None:
    hostile = 'a"]; evil [label="\\N\\" \n\x1b[2J<b>'
    resource = ResourceId(Kind.L2VNI, "ns", hostile)
    status = replace(STATUS, node=hostile, vnis=(VniHealth(resource, 1, "L2", hostile, ok=True),))
    strings = re.compile(r'"(?:[^"\\]|\\["\\])*"')
    document = to_dot(topology(status, None))
    for line in document.splitlines():
        assert re.fullmatch(
            r'digraph openperouter \{|  rankdir=LR;|  node \[shape=box, fontname=""\];|\}'
            r'|  n\d+ -> n\d+;|  n\d+ \[label=""(, color=red, fontcolor=red)?\];',
            strings.sub('""', line),
        ), line
    assert "\x1b" not in document
    assert r'"a\"]; evil [label=\"\\N\\\" ??[2J<b>' in document


def test_the_tree_for_programs_has_the_same_places() -> None:
    document = to_document(topology(STATUS, DESIRED))
    second = document["children"][1]
    assert (second["name"], second["state"], second["down"]) == ("NIC eth2, MTU 9000", "no carrier", True)
    assert [child["name"] for child in second["children"]] == ["fabric eth2, AS 64513"]
