"""Names of devices and VRFs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.models.names import check_bridge_name, check_interface_name, check_neighbor_interface, check_vrf_name

CHECKS = [check_interface_name, check_vrf_name, check_bridge_name, check_neighbor_interface]


def accepts(check: Callable[[str], str], name: str) -> bool:
    try:
        return check(name) == name
    except ValueError:
        return False


@pytest.mark.parametrize("name", ["eth0", "eth0.100", "enp1s0f0np0", "bond-a", "a_b", "a"])
def test_network_devices_are_accepted(name: str) -> None:
    assert accepts(check_interface_name, name)


@pytest.mark.parametrize("name", ["", ".eth0", "0eth", "a" * 16, "eth/0", "eth:0", "eth 0", "eth0\n", "éth0", "-x"])
def test_what_is_no_device_name_is_refused(name: str) -> None:
    assert not accepts(check_interface_name, name)
    assert not accepts(check_vrf_name, name)


def test_a_vrf_has_no_dot() -> None:
    assert accepts(check_vrf_name, "red-blue_1")
    assert not accepts(check_vrf_name, "red.blue")


@pytest.mark.parametrize(
    "name",
    [
        *("lo", "all", "default", "pt-host", "pt-ns", "pt-vrf", "br-pe-100", "vni100", "host-e-1", "host-v-1"),
        *("pe-e-1", "host-s-1", "pe-s-9"),
    ],
)
def test_names_of_the_system_and_of_generated_devices_are_reserved(name: str) -> None:
    assert not accepts(check_vrf_name, name)
    assert not accepts(check_interface_name, name)


@pytest.mark.parametrize("name", ["vni", "vnired", "br-pe-", "br-pe-1a", "lo1", "defaults"])
def test_names_that_only_look_reserved_are_free(name: str) -> None:
    assert accepts(check_vrf_name, name)


def test_a_users_own_bridge_may_be_called_like_a_managed_one() -> None:
    assert accepts(check_bridge_name, "br-hs-5")
    assert not accepts(check_bridge_name, "host-e-5")
    assert not accepts(check_bridge_name, "lo")


@given(st.text(max_size=17))
def test_no_accepted_name_can_break_a_line_or_a_word(name: str) -> None:
    for check in CHECKS:
        if accepts(check, name):
            assert name.isascii()
            assert name.isprintable()
            assert not set(name) & set(" !/:#\"'\\")
            assert 1 <= len(name) <= 15
