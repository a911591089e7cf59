"""The address formulas, which nodes of other versions and of upstream rely on."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.desired import RouterIdScheme
from config.resolve.ipam import PoolExhaustedError, router_id, session_addresses, vtep


@pytest.mark.parametrize(
    ("pool", "index", "scheme", "expected"),
    [
        ("10.0.0.0/24", 0, "v1", "10.0.0.1"),
        ("10.0.0.0/24", 3, "v1", "10.0.0.4"),
        ("10.0.0.77/24", 1, "v1", "10.0.0.2"),
        ("10.0.0.0/24", 0, "v2", "10.0.0.0"),
        ("10.0.0.0/24", 3, "v2", "10.0.0.3"),
        ("10.0.0.77/24", 255, "v2", "10.0.0.255"),
    ],
)
def test_router_ids_start_at_host_number_one_or_zero(
    pool: str, index: int, scheme: RouterIdScheme, expected: str
) -> None:
    assert str(router_id(pool, index, scheme)) == expected


def test_a_router_id_of_zero_is_none() -> None:
    assert str(router_id("0.0.0.0/8", 0, "v1")) == "0.0.0.1"
    with pytest.raises(PoolExhaustedError, match=r"0\.0\.0\.0/8 gives it 0\.0\.0\.0"):
        router_id("0.0.0.0/8", 0, "v2")


@pytest.mark.parametrize(
    ("pool", "index", "expected"),
    [
        ("100.65.0.0/24", 0, "100.65.0.0/32"),
        ("100.65.0.0/24", 3, "100.65.0.3/32"),
        ("100.65.0.9/24", 3, "100.65.0.3/32"),
        ("2001:db8::/64", 3, "2001:db8::3/128"),
    ],
)
def test_tunnel_endpoints_start_at_host_number_zero(pool: str, index: int, expected: str) -> None:
    assert str(vtep(pool, index)) == expected


@pytest.mark.parametrize(
    ("pool", "index", "router", "host"),
    [
        ("172.26.10.0/24", 0, "172.26.10.1/24", "172.26.10.2/24"),
        ("172.26.10.0/24", 3, "172.26.10.1/24", "172.26.10.5/24"),
        ("172.26.10.4/30", 0, "172.26.10.4/30", "172.26.10.5/30"),
        ("172.26.10.4/30", 2, "172.26.10.4/30", "172.26.10.7/30"),
        ("172.26.10.99/24", 0, "172.26.10.1/24", "172.26.10.2/24"),
        ("2001:db8::/64", 0, "2001:db8::1/64", "2001:db8::2/64"),
        ("2001:db8::10/124", 0, "2001:db8::10/124", "2001:db8::11/124"),
        ("2001:db8::ab00/120", 1, "2001:db8::ab01/120", "2001:db8::ab03/120"),
    ],
)
def test_the_routers_end_is_the_first_usable_and_the_hosts_follow(
    pool: str, index: int, router: str, host: str
) -> None:
    ends = session_addresses(pool, index)
    assert (str(ends.router), str(ends.host)) == (router, host)


def by_v1(pool: str, index: int) -> object:
    return router_id(pool, index, "v1")


def by_v2(pool: str, index: int) -> object:
    return router_id(pool, index, "v2")


@pytest.mark.parametrize(
    ("formula", "pool", "last"),
    [(by_v1, "10.0.0.0/29", 6), (by_v2, "10.0.0.0/29", 7), (vtep, "10.0.0.0/29", 7),
     (session_addresses, "10.0.0.0/29", 5), (session_addresses, "10.0.0.4/30", 2), (vtep, "2001:db8::/125", 7),
     (vtep, "10.0.0.1/32", 0)],
)  # fmt: skip
def test_a_pool_ends_where_its_network_ends(formula: object, pool: str, last: int) -> None:
    assert callable(formula)
    formula(pool, last)
    with pytest.raises(PoolExhaustedError, match=rf"is too small for node index {last + 1} \(highest usable: {last}\)"):
        formula(pool, last + 1)


def test_a_negative_index_never_counts_from_the_end() -> None:
    for formula in (vtep, by_v2):
        with pytest.raises(PoolExhaustedError):
            formula("10.0.0.0/24", -1)


@given(st.integers(0, 2**32 - 1), st.integers(8, 28), st.integers(0, 12), st.integers(0, 12))
def test_two_nodes_share_the_routers_end_and_nothing_else(base: int, length: int, one: int, other: int) -> None:
    pool = str(ip_network((base, length), strict=False))
    first, second = session_addresses(pool, one), session_addresses(pool, other)
    assert first.router == second.router
    assert (first.host == second.host) == (one == other)
    assert first.router != first.host
    assert first.host.ip in ip_network(pool)
