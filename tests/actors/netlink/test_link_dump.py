"""Links from a dump: what is decoded, and that a change is seen although unchanged messages are not decoded again."""

from __future__ import annotations

import struct
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import pytest

from actors.netlink.planning.observed import Link, VxlanAttributes
from actors.netlink.wire import links
from actors.netlink.wire.links import LinkDump
from actors.netlink.wire.message import address, attribute, text, u8, u32

NAMES = {1: "lo", 2: "red", 3: "br-pe-100", 4: "vni100", 5: "blue"}


class Socket:
    """Answers a dump with messages."""

    def __init__(self, *messages: bytes) -> None:
        self.messages = list(messages)

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        assert (kind, len(body)) == (18, 24)
        return self.messages


def message(index: int, *parts: bytes, up: bool = True, counter: int = 0, timer: int = 0, name: str = "") -> bytes:
    """Return a link's message with counters; ``timer`` goes into what the kernel changes by itself."""
    counters = attribute(23, struct.pack("=QQ", counter, counter))
    ipv6 = attribute(26, attribute(10, u32(1, timer), u8(8, 1)))
    header = struct.pack("=BxHiII", 0, 1, index, int(up), 0)
    return header + text(3, name or NAMES[index]) + u32(27, 4243) + counters + b"".join(parts) + ipv6


def bridge(master: int = 2, timer: int = 0, **fields: Any) -> bytes:
    info = attribute(18, text(1, "bridge"), attribute(2, u32(1, 1500), u32(19, timer)))
    return message(3, u32(10, master), info, timer=timer, **fields)


def vxlan(*, vni: int = 100, suppress: int = 1, local: str = "100.65.0.0", timer: int = 0, **fields: Any) -> bytes:
    attributes = (
        u32(1, vni),
        u32(3, 1),
        address(17 if ":" in local else 4, local),
        attribute(15, struct.pack("!H", 4789)),
        u8(7, 0),
    )
    port = attribute(5, u8(32, suppress), u32(22, timer))
    info = attribute(18, text(1, "vxlan"), attribute(2, *attributes), text(4, "bridge"), port)
    return message(4, u32(10, 3), info, timer=timer, **fields)


LO = message(1)
VRF = message(2, attribute(18, text(1, "vrf"), attribute(2, u32(1, 10_000_100))))
BLUE = message(5, attribute(18, text(1, "vrf"), attribute(2, u32(1, 10_000_101))))


def read(dump: LinkDump, *messages: bytes) -> dict[str, Link]:
    return {link.name: link for link in dump.read(Socket(*messages))}  # type: ignore[arg-type]


def test_a_link_is_decoded_with_its_master_and_lower_device() -> None:
    found = read(LinkDump(), LO, VRF, bridge(), vxlan())
    assert found["red"] == Link(2, "red", "vrf", 4243, up=True, mtu=0, table=10_000_100, addr_gen_none=True)
    assert found["br-pe-100"].master == "red"
    expected = VxlanAttributes(100, 4789, ip_address("100.65.0.0"))
    assert (found["vni100"].master, found["vni100"].vxlan) == ("br-pe-100", expected)
    assert found["vni100"].neigh_suppress


def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the list of what is decoded from now on."""
    seen: list[bytes] = []
    real: Callable[[bytes], Any] = links._decode

    def spy(raw: bytes) -> Any:
        seen.append(raw)
        return real(raw)

    monkeypatch.setattr(links, "_decode", spy)
    return seen


def test_counters_and_timers_are_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    dump = LinkDump()
    before = read(dump, LO, VRF, bridge(), vxlan())
    again = decoded(monkeypatch)
    assert read(dump, LO, VRF, bridge(counter=9, timer=7), vxlan(counter=8, timer=6)) == before
    assert again == []


@pytest.mark.parametrize(
    ("changed", "field", "value"),
    [
        (vxlan(suppress=0), "neigh_suppress", False),
        (vxlan(vni=101), "vxlan", VxlanAttributes(101, 4789, ip_address("100.65.0.0"))),
        (vxlan(local="100.65.0.9"), "vxlan", VxlanAttributes(100, 4789, ip_address("100.65.0.9"))),
        (vxlan(up=False), "up", False),
        (bridge(5), "master", "blue"),
        (bridge(0), "master", ""),
        (bridge(name="br-pe-101"), "name", "br-pe-101"),
    ],
)
def test_every_other_change_is_seen(changed: bytes, field: str, value: object) -> None:
    dump, index = LinkDump(), links.index_in(changed)
    present = {1: LO, 2: VRF, 3: bridge(), 4: vxlan(), 5: BLUE}
    read(dump, *present.values())
    present[index] = changed
    [link] = [link for link in read(dump, *present.values()).values() if link.index == index]
    assert getattr(link, field) == value


def test_an_ipv6_vtep_is_at_the_number_of_a_bridges_timer() -> None:
    dump = LinkDump()
    read(dump, LO, bridge(), vxlan(local="2001:db8::1"))
    found = read(dump, LO, bridge(), vxlan(local="2001:db8::2"))
    assert found["vni100"].vxlan == VxlanAttributes(100, 4789, ip_address("2001:db8::2"))


def test_a_renamed_or_deleted_master_is_seen_although_its_port_did_not_change() -> None:
    dump = LinkDump()
    read(dump, LO, VRF, bridge(), vxlan())
    crimson = message(2, attribute(18, text(1, "vrf"), attribute(2, u32(1, 10_000_100))), name="crimson")
    assert read(dump, LO, crimson, bridge(), vxlan())["br-pe-100"].master == "crimson"
    assert read(dump, LO, bridge(), vxlan())["br-pe-100"].master == ""
    assert read(dump, LO, VRF, bridge(), vxlan())["br-pe-100"].master == "red"


def test_an_index_that_is_used_again_is_another_link() -> None:
    dump = LinkDump()
    read(dump, LO, VRF, bridge())
    other = message(3, attribute(18, text(1, "dummy")), name="eth7")
    assert read(dump, LO, VRF, other)["eth7"].kind == "dummy"


def test_a_message_that_is_cut_off_ends_where_it_does() -> None:
    found = read(LinkDump(), LO, VRF, vxlan()[:-3])
    assert found["vni100"].kind == "vxlan"
