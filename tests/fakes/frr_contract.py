"""What configuring FRR does: assertions that both the fake (``tests/actors/frr``) and real FRR (``tests/frr``) pass.

What FRR shows is read by its indentation, so that neither the router's parser nor the fake's can hide a mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import trio

from actors.frr.driver import FrrDriver

GOLDEN: Final = Path(__file__).parents[1] / "actors/frr/golden"
#: Golden files that FRR shows line by line as they are, but for what :func:`shown` leaves out.
SHOWN_AS_THEY_ARE: Final = ("several_neighbors", "two_l3vnis", "bfd_profile", "listen_range", "graceful_restart_timers")
#: Closing lines, FRR's own header, what reports the machine, and defaults that no version or only some show.
NOT_CONFIGURATION: Final = (
    "!", "exit", "end", "Building ", "Current ", "frr ", "hostname ", "service ", "no ip forwarding",
    "no ipv6 forwarding", "ip nht ", "ipv6 nht ",
)  # fmt: skip

#: A line that FRR shows, after the lines that it is indented below.
Shown = tuple[str, ...]

BGP: Final = "router bgp 64514"
NEIGHBOR: Final = f"{BGP}\n neighbor 192.0.2.1 remote-as 64512\n neighbor 192.0.2.1 password hush\nexit\n"
VRF: Final = "vrf red\n vni 100\nexit-vrf\n"
VRF_INSTANCE: Final = f"""\
{BGP}
exit
{BGP} vrf red
 address-family ipv4 unicast
  network 10.0.0.0/8
 exit-address-family
 address-family l2vpn evpn
  advertise ipv4 unicast
 exit-address-family
exit
"""


def shown(text: str) -> set[Shown]:
    """Return each line that FRR shows, after the lines that it is indented below."""
    found: set[Shown] = set()
    above: list[str] = []
    for line in text.splitlines():
        words = line.strip()
        if not words or words.startswith(NOT_CONFIGURATION):
            continue
        del above[len(line) - len(line.lstrip()) :]
        above.append(words)
        found.add(tuple(above))
    return found


async def accepts(frr: FrrDriver, commands: str) -> None:
    """Send commands, about which FRR must not complain."""
    complaints = await frr.send(commands)
    assert not complaints, complaints


async def becomes(frr: FrrDriver, what: Callable[[set[Shown]], bool]) -> set[Shown]:
    """Return what FRR shows once it is as expected: daemons apply what they are sent a moment later."""
    lines = shown(await frr.running())
    for _ in range(20):
        if what(lines):
            return lines
        await trio.sleep(0.25)
        lines = shown(await frr.running())
    raise AssertionError("\n".join(map(" / ".join, sorted(lines))))


class FrrContract:
    """Subclasses provide the fixture ``configured``: a driver of an FRR without configuration."""

    async def test_a_line_is_shown_in_its_context(self, configured: FrrDriver) -> None:
        await accepts(configured, NEIGHBOR)
        lines = await becomes(configured, lambda lines: (BGP, "neighbor 192.0.2.1 remote-as 64512") in lines)
        assert (BGP,) in lines
        # The whole text, secrets included: that is what has to be compared.
        assert (BGP, "neighbor 192.0.2.1 password hush") in lines

    async def test_indentation_means_nothing(self, configured: FrrDriver) -> None:
        flat = "\n".join(line.strip() for line in (VRF + NEIGHBOR).splitlines())
        await accepts(configured, flat + "\n")
        lines = await becomes(configured, lambda lines: (BGP, "neighbor 192.0.2.1 remote-as 64512") in lines)
        assert ("vrf red", "vni 100") in lines

    async def test_the_same_commands_again_change_nothing(self, configured: FrrDriver) -> None:
        await configured.send(VRF + VRF_INSTANCE)
        once = await becomes(configured, lambda lines: (f"{BGP} vrf red",) in lines and ("vrf red", "vni 100") in lines)
        await configured.send(VRF + VRF_INSTANCE)
        assert shown(await configured.running()) == once

    async def test_a_negated_line_goes_alone(self, configured: FrrDriver) -> None:
        await configured.send(NEIGHBOR)
        password = (BGP, "neighbor 192.0.2.1 password hush")
        before = await becomes(configured, lambda lines: password in lines)
        await accepts(configured, f"{BGP}\nno neighbor 192.0.2.1 password\nexit\n")
        assert await becomes(configured, lambda lines: password not in lines) == before - {password}

    async def test_a_neighbor_without_its_as_is_gone_with_all_of_its_lines(self, configured: FrrDriver) -> None:
        family = " address-family ipv4 unicast\n  neighbor 192.0.2.1 activate\n exit-address-family\n"
        await configured.send(f"{NEIGHBOR}{BGP}\n no bgp default ipv4-unicast\n{family}exit\n")
        activated = (BGP, "address-family ipv4 unicast", "neighbor 192.0.2.1 activate")
        await becomes(configured, lambda lines: activated in lines)
        await configured.send(f"{BGP}\nno neighbor 192.0.2.1 remote-as 64512\nexit\n")
        lines = await becomes(configured, lambda lines: activated not in lines)
        assert not [line for line in lines if "192.0.2.1" in line[-1]]

    async def test_a_negated_context_goes_whole(self, configured: FrrDriver) -> None:
        opening = "route-map odd permit 5"
        await configured.send(f"{opening}\n match metric 1\nexit\nroute-map odd permit 6\nexit\n")
        await becomes(configured, lambda lines: (opening, "match metric 1") in lines)
        await configured.send(f"no {opening}\n")
        lines = await becomes(configured, lambda lines: (opening,) not in lines)
        assert (opening, "match metric 1") not in lines
        assert ("route-map odd permit 6",) in lines

    async def test_another_value_replaces_the_old_one(self, configured: FrrDriver) -> None:
        await configured.send(f"{NEIGHBOR}{BGP}\n neighbor 192.0.2.1 timers 3 9\n bgp router-id 192.0.2.9\nexit\n")
        changed = "neighbor 192.0.2.1 remote-as 64513\nneighbor 192.0.2.1 timers 4 12\nbgp router-id 192.0.2.8"
        await configured.send(f"{BGP}\n{changed}\nexit\n")
        new = {(BGP, line) for line in changed.splitlines()}
        lines = await becomes(configured, lambda lines: new <= lines)
        old = ("neighbor 192.0.2.1 remote-as 64512", "neighbor 192.0.2.1 timers 3 9", "bgp router-id 192.0.2.9")
        assert not lines & {(BGP, line) for line in old}

    @pytest.mark.parametrize("default", ["bgp ebgp-requires-policy", "bgp network import-check"])
    async def test_what_is_on_by_default_is_shown_only_negated(self, default: str, configured: FrrDriver) -> None:
        await configured.send(f"{BGP}\n no {default}\nexit\n")
        await becomes(configured, lambda lines: (BGP, f"no {default}") in lines)
        await configured.send(f"{BGP}\n {default}\nexit\n")
        lines = await becomes(configured, lambda lines: (BGP, f"no {default}") not in lines)
        assert (BGP, default) not in lines

    async def test_a_line_of_the_top_level_leaves_an_open_context(self, configured: FrrDriver) -> None:
        await configured.send(f"{BGP}\n bgp router-id 192.0.2.9\nip prefix-list a seq 7 permit any\n")
        lines = await becomes(configured, lambda lines: ("ip prefix-list a seq 7 permit any",) in lines)
        assert (BGP, "bgp router-id 192.0.2.9") in lines

    async def test_an_entry_of_a_prefix_list_gets_a_number(self, configured: FrrDriver) -> None:
        await configured.send("ip prefix-list a permit 10.0.0.0/8\nip prefix-list a deny any\n")
        numbered = {("ip prefix-list a seq 5 permit 10.0.0.0/8",), ("ip prefix-list a seq 10 deny any",)}
        assert numbered <= await becomes(configured, lambda lines: numbered <= lines)

    async def test_an_entry_of_a_prefix_list_without_a_number_is_added_each_time_that_it_is_sent(
        self, configured: FrrDriver
    ) -> None:
        for _ in range(2):
            await configured.send("ip prefix-list a permit any\n")
        both = {("ip prefix-list a seq 5 permit any",), ("ip prefix-list a seq 10 permit any",)}
        assert both <= await becomes(configured, lambda lines: both <= lines)

    @pytest.mark.parametrize("bad", ["florp", f"{BGP}\n neighbour 192.0.2.1\nexit", "vrf red\n advertise-all-vni"])
    async def test_a_dry_run_refuses_what_is_no_command_and_changes_nothing(
        self, bad: str, configured: FrrDriver
    ) -> None:
        before = shown(await configured.running())
        refusal = await configured.refusal(f"hostname x\n{bad}\n")
        number = min(1, bad.count("\n"))
        assert refusal.startswith(f"line {number + 2}: % Unknown command")
        assert bad.splitlines()[number].split()[0] not in refusal
        assert await configured.refusal(VRF + VRF_INSTANCE + NEIGHBOR) == ""
        assert shown(await configured.running()) == before

    async def test_a_second_default_instance_is_refused(self, configured: FrrDriver) -> None:
        await configured.send(NEIGHBOR)
        await becomes(configured, lambda lines: (BGP,) in lines)
        assert "64514" in await configured.send("router bgp 65000\nexit\n")
        lines = shown(await configured.running())
        assert (BGP, "neighbor 192.0.2.1 remote-as 64512") in lines
        assert ("router bgp 65000",) not in lines

    async def test_the_default_instance_is_kept_while_a_vrf_advertises_into_evpn(self, configured: FrrDriver) -> None:
        await configured.send(VRF + VRF_INSTANCE)
        await becomes(configured, lambda lines: (f"{BGP} vrf red",) in lines)
        assert "Cannot delete default BGP instance" in await configured.send(f"no {BGP}\n")
        assert {(BGP,), (f"{BGP} vrf red",)} <= shown(await configured.running())
        await accepts(configured, f"vrf red\nno vni 100\nexit-vrf\nno {BGP} vrf red\n")
        await accepts(configured, f"no {BGP}\n")
        await becomes(configured, lambda lines: not [line for line in lines if line[0].startswith("router bgp")])

    async def test_a_vrf_without_a_device_is_inactive_and_can_be_removed(self, configured: FrrDriver) -> None:
        await configured.send("vrf late\n vni 4711\nexit-vrf\n")
        await becomes(configured, lambda lines: ("vrf late", "vni 4711") in lines)
        assert "late" in await configured.inactive_vrfs()
        await configured.send("vrf late\nno vni 4711\nexit-vrf\n")
        await becomes(configured, lambda lines: ("vrf late", "vni 4711") not in lines)
        await configured.send("no vrf late\n")
        await becomes(configured, lambda lines: ("vrf late",) not in lines)
        assert "late" not in await configured.inactive_vrfs()

    @pytest.mark.parametrize("name", SHOWN_AS_THEY_ARE)
    async def test_a_golden_configuration_is_shown_line_by_line(self, name: str, configured: FrrDriver) -> None:
        text = (GOLDEN / f"{name}.conf").read_text()
        await accepts(configured, text)
        await becomes(configured, lambda lines: lines == shown(text))
