"""The pages of one session and one VNI, to the letter."""

from __future__ import annotations

import re

import pytest

from supervisor.cli.terminal import Painter
from supervisor.cli.verbs.node.details_page import session_page, vni_page
from supervisor.operations.inspection.details import sessions_named, vnis_named
from tests.supervisor.operations.inspection.example_node import DESIRED, STATUS

SESSIONS = {
    "eth1": """\
session eth1 in VRF default, with the fabric
  state          Established for 1h2m
  peer's AS      64512
  flaps          0 since bgpd's start
  prefixes       IPv4 3, EVPN 8
  BFD            up
  configured in  Underlay underlay, /etc/openperouter/configs/openpe_node.yaml:2:5""",
    "eth2": """\
session eth2 in VRF default, with the fabric
  state          DOWN (Idle)
  peer's AS      64513
  flaps          4 since bgpd's start
  BFD            down
  configured in  Underlay underlay, /etc/openperouter/configs/openpe_node.yaml:2:5
  problem        the peer sends no BFD packets""",
    "172.31.0.0/24": """\
session 172.31.0.0/24 in VRF default, with the fabric
  state          listen range
  configured in  Underlay underlay, /etc/openperouter/configs/openpe_node.yaml:2:5""",
    "2001:db9:1::2": """\
session 2001:db9:1::2 in VRF red, with the host
  state          Established for 7s
  peer's AS      64515
  flaps          0 since bgpd's start
  prefixes       IPv6 2
  host's end     host-e-100, 2001:db9:1::2/64
  router's end   2001:db9:1::1/64, AS 64514
  configured in  L3VNI red, /etc/openperouter/configs/openpe_node.yaml:10:5
  problem        /etc/openperouter/configs/openpe_node.yaml:11:5: warning: L3VNI red: VRF: spelled VRF""",
}
VNIS = {
    "100": """\
L3VNI red
  VNI            100
  VRF            red
  state          ok
  routes         1
  own VTEP       100.65.0.0, port 4789
  host session   172.27.10.2: DOWN (Active)
  host's end     host-e-100, 172.27.10.2/24
  router's end   172.27.10.1/24, AS 64514
  host session   2001:db9:1::2: Established for 7s
  host's end     host-e-100, 2001:db9:1::2/64
  router's end   2001:db9:1::1/64, AS 64514
  configured in  /etc/openperouter/configs/openpe_node.yaml:10:5
  problem        /etc/openperouter/configs/openpe_node.yaml:11:5: warning: L3VNI red: VRF: spelled VRF""",
    "110": """\
L2VNI red
  VNI            110
  VRF            red
  state          ok
  remote VTEPs   2
  EVPN in        type-2 14 type-3 2
  EVPN out       type-2 4 type-3 1
  own VTEP       100.65.0.0, port 4789
  host's end     host-e-110, a port of br-hs-110
  gateways       172.28.24.1/24
  configured in  /etc/openperouter/configs/openpe_node.yaml:20:5""",
    "lone": """\
L2VNI tenant/lone
  VNI            120
  VRF            none
  state          DOWN
  remote VTEPs   0
  own VTEP       100.65.0.0, port 4789
  host's end     host-e-120
  configured in  t/lone
  problem        host bridge br0 is missing""",
    "green": """\
L3VNI green
  state          not in force
  configured in  /etc/openperouter/configs/openpe_node.yaml:30:9
  problem        /etc/openperouter/configs/openpe_node.yaml:30:9: error: L3VNI green: vni: is taken (it is left out)""",
}


@pytest.mark.parametrize(("name", "page"), SESSIONS.items())
def test_a_session(name: str, page: str) -> None:
    (found,) = sessions_named(STATUS, DESIRED, name)
    assert session_page(found, Painter(colour=False)) == page


@pytest.mark.parametrize(("name", "page"), VNIS.items())
def test_a_vni(name: str, page: str) -> None:
    (found,) = vnis_named(STATUS, DESIRED, name)
    assert vni_page(found, Painter(colour=False)) == page


def test_colour_adds_nothing_but_colour() -> None:
    (found,) = vnis_named(STATUS, DESIRED, "100")
    coloured = vni_page(found, Painter(colour=True))
    assert "\033[31m172.27.10.2: DOWN (Active)\033[0m" in coloured
    assert re.sub("\033\\[[0-9]+m", "", coloured) == vni_page(found, Painter(colour=False))
