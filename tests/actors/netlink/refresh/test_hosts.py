"""Which hosts are asked, when, and in which order."""

from __future__ import annotations

from ipaddress import ip_address, ip_interface

from actors.netlink.refresh.hosts import MOST_ADDRESSES, MOST_HOSTS, Host, Look, Memory, Probe, Segment, batches

PLAIN = Segment(110)
ROUTED = Segment(130, (ip_interface("192.0.2.1/24"), ip_interface("2001:db8::1/64")))
SEGMENTS = {segment.vni: segment for segment in (PLAIN, ROUTED)}
V4, V6, ELSEWHERE = ip_address("192.0.2.9"), ip_address("2001:db8::9"), ip_address("198.51.100.9")
SECONDS = 30.0
ALL = 1000


def host(number: int = 1, vni: int = 110) -> Host:
    return Host(vni, b"\x02" + number.to_bytes(5, "big"))


def asked(memory: Memory, look: Look, now: float, most: int = ALL) -> list[Probe]:
    memory.update(look)
    return memory.due(look, SEGMENTS, now, most)


def test_a_host_that_is_silent_is_asked_for_each_of_its_addresses() -> None:
    look = Look({host(): SECONDS}, seen=((host(), V4), (host(), V6)))
    assert asked(Memory(SECONDS), look, 0) == [Probe(host(), V4), Probe(host(), V6)]


def test_a_host_that_sends_or_whose_address_is_unknown_is_not_asked() -> None:
    assert asked(Memory(SECONDS), Look({host(1): 29.9, host(2): 99}, seen=((host(1), V4),)), 0) == []


def test_a_host_that_does_not_answer_is_asked_again_until_it_has_aged_out_and_then_forgotten() -> None:
    memory = Memory(SECONDS)
    assert len(asked(memory, Look({host(): 30}, seen=((host(), V4),)), 0)) == 1
    assert asked(memory, Look({host(): 40}), 10) == []
    assert len(asked(memory, Look({host(): 45}), 15)) == 1
    assert asked(memory, Look(), 30) == []
    assert len(memory) == 0
    assert asked(memory, Look({host(): 99}), 99) == []


def test_an_address_outside_of_the_host_s_port_is_not_taken() -> None:
    memory = Memory(SECONDS)
    memory.update(Look({}, {(host(), V4): True}, ((host(), V6),)))
    assert len(memory) == 0


def test_the_gateway_asks_for_neighbours_that_are_stale_even_of_hosts_that_send() -> None:
    routed = host(vni=130)
    look = Look({routed: 0}, {(routed, V4): True, (routed, V6): False, (routed, ELSEWHERE): True})
    assert asked(Memory(SECONDS), look, 0) == [Probe(routed, V4, ip_address("192.0.2.1"))]
    look = Look({routed: 31}, look.neighbors)
    assert asked(Memory(SECONDS), look, 0) == [
        Probe(routed, V4, ip_address("192.0.2.1")),
        Probe(routed, V6, ip_address("2001:db8::1")),
        Probe(routed, ELSEWHERE),
    ]


def test_the_gateway_does_not_ask_for_its_own_address() -> None:
    assert ROUTED.sender(ip_address("192.0.2.1")) is None


def test_those_come_first_that_have_been_silent_for_the_longest_and_segments_take_turns() -> None:
    hosts = [host(1), host(2), host(3), host(4, 130)]
    silent = dict(zip(hosts, (40.0, 250.0, 90.0, 31.0), strict=True))
    look = Look(silent, seen=tuple((one, ELSEWHERE) for one in hosts))
    memory = Memory(SECONDS)
    assert [probe.host for probe in asked(memory, look, 0, most=2)] == [host(2), host(4, 130)]
    assert [probe.host for probe in asked(memory, look, 1)] == [host(3), host(1)]


def test_a_host_that_claims_many_addresses_keeps_the_newest() -> None:
    many = tuple(ip_address(f"192.0.2.{number}") for number in range(50))
    look = Look({host(): 30}, seen=tuple((host(), address) for address in many))
    assert [probe.address for probe in asked(Memory(SECONDS), look, 0)] == list(many[-MOST_ADDRESSES:])


def test_a_segment_that_is_flooded_with_macs_costs_bounded_memory() -> None:
    many = [host(number) for number in range(MOST_HOSTS + 100)]
    look = Look(dict.fromkeys(many, 30.0), seen=tuple((one, V4) for one in many))
    memory = Memory(SECONDS)
    memory.update(look)
    assert len(memory) == MOST_HOSTS


def test_a_segment_that_was_removed_is_not_asked() -> None:
    memory = Memory(SECONDS)
    look = Look({host(): 30}, seen=((host(), V4),))
    memory.update(look)
    assert memory.due(look, {}, 0, ALL) == []


def test_batches_keep_the_order() -> None:
    probes = [Probe(host(number), V4) for number in range(5)]
    assert list(batches(probes, 2)) == [probes[:2], probes[2:4], probes[4:]]
