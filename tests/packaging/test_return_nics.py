"""The shell commands of a purge: their order and what they restore. See also tests/checks."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_interface

import pytest
import return_nics

from actors.netlink.planning.observed import Address, NicPhase, NicRecord, SavedRoute
from config.desired import Family


def test_the_route_to_a_gateway_is_restored_before_routes_through_it() -> None:
    default = SavedRoute(Family.IPV4, "0.0.0.0/0", 254, gateway="10.0.0.1")
    route_to_gateway = SavedRoute(Family.IPV4, "10.0.0.1/32", 254, scope=253)
    record = NicRecord("eth1", NicPhase.INSIDE, 1500, "", up=True, routes=(default, route_to_gateway))
    found = [line for line in return_nics.restoring(record) if "route add" in line]
    assert [line.split()[3] for line in found] == ["10.0.0.1/32", "0.0.0.0/0"]


def test_a_nics_own_sysctls_are_restored_before_addresses_and_before_it_is_up() -> None:
    sysctls = (("ipv4.rp_filter", "2"), ("ipv6.accept_ra", "0"))
    addresses = (Address(ip_interface("192.0.2.5/24")),)
    record = NicRecord("eth1.5", NicPhase.INSIDE, 1500, "", up=True, addresses=addresses, sysctls=sysctls)
    lines = list(return_nics.commands("perouter", record))
    found = [
        lines.index(f"    tune {line}") for line in ("ipv4/conf/eth1.5/rp_filter 2", "ipv6/conf/eth1.5/accept_ra 0")
    ]
    assert max(found) < min(number for number, line in enumerate(lines) if "address add" in line or " up" in line)


@pytest.mark.parametrize("sysctl", [("ipv6.addr_gen_mode", "1"), ("ipv6.disable_ipv6", "1")])
def test_a_link_local_address_that_the_kernel_does_not_generate_is_restored(sysctl: tuple[str, str]) -> None:
    addresses = (Address(ip_interface("fe80::5054:ff:fe12:3456/64"), scope=253),)
    record = NicRecord("eth1", NicPhase.INSIDE, 1500, "52:54:00:12:34:56", up=True, addresses=addresses)
    assert not [line for line in return_nics.restoring(record) if "address add" in line]
    record = replace(record, sysctls=(sysctl,))
    assert [line for line in return_nics.restoring(record) if "address add" in line]


def test_only_an_ipv6_address_that_a_route_has_as_its_source_is_not_checked_for_duplicates() -> None:
    addresses = tuple(Address(ip_interface(one)) for one in ("192.0.2.5/24", "2001:db8::5/64", "2001:db8::6/64"))
    routes = tuple(
        SavedRoute(family, destination, 254, source=source)
        for family, destination, source in (
            (Family.IPV4, "198.51.100.0/24", "192.0.2.5"),
            (Family.IPV6, "2001:db8:9::/48", "2001:db8::5"),
        )
    )
    record = NicRecord("eth1", NicPhase.INSIDE, 1500, "", up=True, addresses=addresses, routes=routes)
    lines = [line for line in return_nics.restoring(record) if "address add" in line]
    assert [line.endswith(" nodad") for line in lines] == [False, True, False]
