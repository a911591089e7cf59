"""Changing one random state into another leads to what a new node would have, as iproute2 shows it."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from config.desired import DesiredState
from tests.actors.netlink.random_states import EXTERNAL, NICS, desired_states
from tests.kernel.node import Node, ip

#: What differs between two devices of the same configuration, or counts time.
INCIDENTAL = {"ifindex", "link_index", "link_netnsid", "num_tx_queues", "num_rx_queues", "link_netns"}
BRIDGE_STATE = ("_id", "timer", "id", "no", "designated_port", "designated_cost")


def build(node: Node) -> None:
    node.build()
    for number, (nic, mtu) in enumerate(NICS.items()):
        if nic != node.NIC:
            node.add_nic(nic, f"leaf{number}")
        ip("addr", "add", f"192.168.{11 + number}.3/24", "dev", nic)
        ip("link", "set", nic, "mtu", str(mtu))
    ip("link", "add", EXTERNAL, "type", "bridge")
    ip("link", "set", EXTERNAL, "up")


def link(found: dict[str, Any]) -> dict[str, Any]:
    """Return a link without what is incidental; a MAC counts only where it is configured."""
    plain = {key: value for key, value in found.items() if key not in INCIDENTAL}
    mac = plain.pop("address", "")
    info = plain.pop("linkinfo", {})
    for part in ("info_data", "info_slave_data"):
        data = info.get(part, {})
        kept = {key: value for key, value in data.items() if key != "table" and not key.endswith(BRIDGE_STATE)}
        info[part] = data if "vxlan" in info.get("info_kind", "") and part == "info_data" else kept
    return {**plain, "mac": mac if mac.startswith("00:f3:") else "", "linkinfo": info}


def address(found: dict[str, Any]) -> dict[str, Any]:
    """Return an address; of a link-local one only that it exists, since it follows the MAC."""
    return {"scope": "link"} if found["local"].startswith("fe80:") else found


def picture(node: Node) -> object:
    """Return both namespaces' links, addresses and routes, with VRFs in place of their tables."""
    result = []
    for where in ((), ("-n", node.NETNS)):
        dump = json.loads(ip("-j", "-d", *where, "addr"))
        tables = {one["linkinfo"]["info_data"]["table"]: one["ifname"] for one in dump if _is_vrf(one)}
        links = {one["ifname"]: link({k: v for k, v in one.items() if k != "addr_info"}) for one in dump}
        addresses = {one["ifname"]: [address(a) for a in one["addr_info"]] for one in dump}
        routes = [
            {**route, "table": tables.get(int(route["table"]), "") if route.get("table", "").isdigit() else ""}
            for family in ("-4", "-6")
            for route in json.loads(ip("-j", family, *where, "route", "show", "table", "all") or "[]")
            if not route["dst"].startswith(("fe80:", "ff00:"))
        ]
        result.append((links, _sorted(addresses), sorted(map(_text, routes))))
    return result


def _is_vrf(found: dict[str, Any]) -> bool:
    return bool(found.get("linkinfo", {}).get("info_kind") == "vrf")


def _sorted(addresses: dict[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    return {name: sorted(map(_text, found)) for name, found in addresses.items()}


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def settled(node: Node) -> object:
    """Return the picture once the kernel is at rest: duplicate address detection and carriers take a moment."""
    before: object = None
    for _ in range(200):
        after = picture(node)
        if before == after and "tentative" not in _text(after):
            return after
        before = after
    raise AssertionError("the kernel does not come to rest")


def reached(node: Node, desired: DesiredState) -> object:
    result = node.converge(desired)
    assert result.clean, (result.failures, result.errors)
    assert node.converge(desired).writes == 0
    return settled(node)


@settings(max_examples=25, deadline=None, database=None)
@given(desired_states(), desired_states(), st.floats(0, 1))
def test_a_change_leads_to_what_a_new_node_has(old: DesiredState, new: DesiredState, share: float) -> None:
    with TemporaryDirectory() as directory:
        changed, fresh = Node(Path(directory, "changed")), Node(Path(directory, "fresh"))
        try:
            build(changed)
            reached(changed, old)
            changed.apply_prefix(new, round(share * len(changed.plan(new)[1].steps)))
            changed.crash()
            found = reached(changed, new)
            changed.crash()
            build(fresh)
            assert found == reached(fresh, new)
        finally:
            changed.close()
            fresh.close()
