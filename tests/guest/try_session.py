"""What tests of ``openperouter try`` share: an underlay that cuts the node off."""

from __future__ import annotations

from demo.checks import LEAF, session
from guestvm.machine import Machine

from .commands import eventually

NEW = "/run/new-configs"
UNDERLAY = "openpe_underlay.yaml"
#: No host has this address: the session to the fabric goes down and stays down.
UNUSED_ADDRESS = "192.168.11.77"
EVPN = session("perouter", "show bgp l2vpn evpn summary", LEAF)


def cut_off(node: Machine, options: str) -> None:
    """Try, from :data:`NEW`, an underlay whose only neighbour does not exist; return once its session is gone."""
    node.remote.run(f"sed -i s/{LEAF}/{UNUSED_ADDRESS}/ {NEW}/{UNDERLAY}")
    node.remote.run(f"openperouter try {options} {NEW}/{UNDERLAY}", check=False, seconds=300)
    eventually(lambda: not EVPN(node).ok, "the session to the fabric is gone")
