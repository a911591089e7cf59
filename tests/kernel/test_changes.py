"""Changing one random state into another leads to what a new node would have, as iproute2 shows it."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from config.desired import DesiredState
from tests.actors.netlink.random_states import EXTERNAL, NICS, desired_states
from tests.kernel.node import Node, ip

#: What differs between two devices of the same configuration, or counts time.
INCIDENTAL = {"link", "ifindex", "link_index", "link_netnsid", "num_tx_queues", "num_rx_queues", "link_netns"}
#: A bridge is "unknown" until the first change of a port; the flags say whether it has a carrier.
INCIDENTAL |= {"operstate"}
#: The other ends of the NICs, and the user's bridge, whose operational state depends on whether it ever had a port.
FOREIGN = ("leaf", EXTERNAL)
BRIDGE_STATE = ("_id", "timer", "id", "no", "designated_port", "designated_cost", "fdb_n_learned")


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


def picture(node: Node) -> set[str]:
    """Return both namespaces' links, addresses and routes as lines, with VRFs in place of their tables."""
    lines = set()
    for where in ((), ("-n", node.NETNS)):
        dump = [one for one in json.loads(ip("-j", "-d", *where, "addr")) if not one["ifname"].startswith(FOREIGN)]
        vrfs = [one for one in dump if one.get("linkinfo", {}).get("info_kind") == "vrf"]
        tables = {str(one["linkinfo"]["info_data"]["table"]): one["ifname"] for one in vrfs}
        found: list[object] = []
        for one in dump:
            found += [(one["ifname"], address(each)) for each in one.pop("addr_info")]
            found.append(link(one))
        for family in ("-4", "-6"):
            for route in json.loads(ip("-j", family, *where, "route", "show", "table", "all") or "[]"):
                if not route["dst"].startswith(("fe80:", "ff00:")) and not route.get("dev", "").startswith(FOREIGN):
                    found.append({**route, "table": tables.get(route.get("table", ""), "another")})
        lines |= {f"{where} {json.dumps(each, sort_keys=True)}" for each in found}
    return lines


def settled(node: Node) -> set[str]:
    """Return the picture once the kernel has settled: duplicate address detection and carriers take a moment."""
    before: set[str] = set()
    for _ in range(200):
        after = picture(node)
        moving = after ^ before | {line for line in after if "tentative" in line}
        if not moving:
            return after
        before = after
    raise AssertionError(f"the kernel does not settle: {sorted(moving)}")


def reached(node: Node, desired: DesiredState) -> set[str]:
    result = node.converge(desired)
    assert result.clean, (result.failures, result.errors)
    assert node.converge(desired).writes == 0
    return settled(node)


@settings(max_examples=12, deadline=None, database=None, phases=[Phase.generate], report_multiple_bugs=False)
@given(desired_states(), desired_states(), st.floats(0, 1))
def test_a_change_leads_to_what_a_new_node_has(old: DesiredState, new: DesiredState, share: float) -> None:
    with TemporaryDirectory() as directory:
        changed, fresh = Node(Path(directory, "changed")), Node(Path(directory, "fresh"))
        try:
            build(changed)
            reached(changed, old)
            changed.die_after(new, round(share * len(changed.plan(new)[1].steps)))
            found = reached(changed, new)
            changed.crash()
            build(fresh)
            expected = reached(fresh, new)
            wrong = [f"{'-' if line in expected else '+'} {line}" for line in sorted(found ^ expected)]
            assert not wrong, "\n".join(wrong)
        finally:
            changed.close()
            fresh.close()
