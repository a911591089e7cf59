"""Host sessions: who the peer is and where the addresses come from."""

from __future__ import annotations

from typing import Any

import pytest

from config.desired import Family
from config.models import HostSession
from config.models.sessions import MAX_ALLOWED_PREFIXES, SecretReference, is_external

V4 = {"ipv4": "192.0.2.0/24"}


@pytest.mark.parametrize(
    ("remote", "own", "external"),
    [(1, 2, True), (2, 2, False), ("external", 2, True), ("internal", 2, False)],
)
def test_external_means_another_as_than_the_instances_own(remote: int | str, own: int, external: bool) -> None:
    assert is_external(remote, own) is external


@pytest.mark.parametrize(
    ("fields", "remote"),
    [({"hostASN": 2}, 2), ({"hostType": "External"}, "external"), ({"hostType": "Internal"}, "internal")],
)
def test_the_host_is_known_by_number_or_relation(fields: dict[str, object], remote: object) -> None:
    assert HostSession.model_validate({"asn": 1, "localCIDR": V4} | fields).remote_as == remote


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"asn": 1, "localCIDR": V4}, "exactly one of hostASN and hostType"),
        ({"asn": 1, "localCIDR": V4, "hostASN": 2, "hostType": "External"}, "exactly one of hostASN and hostType"),
        ({"asn": 1, "localCIDR": V4, "hostType": "external"}, "hostType"),
        ({"asn": 1, "hostASN": 2, "localCIDR": {}}, "at least one of ipv4 and ipv6"),
        ({"asn": 1, "hostASN": 2}, "exactly one of localCIDR and localCIDRs"),
        ({"asn": 1, "hostASN": 2, "localCIDR": V4, "localCIDRs": ["192.0.2.0/24"]}, "exactly one of localCIDR and"),
        ({"asn": 1, "hostASN": 2, "localCIDRs": []}, "localCIDRs"),
        ({"asn": 1, "hostASN": 2, "localCIDRs": ["192.0.2.0/24", "198.51.100.0/24"]}, "at most one IPv4 and one IPv6"),
        ({"asn": 1, "hostASN": 2, "localCIDRs": ["10.0.0.0/15"]}, "prefix length of at least 16"),
        ({"hostASN": 2, "localCIDR": V4}, "asn"),
        ({"asn": 0, "hostASN": 2, "localCIDR": V4}, "asn"),
        ({"asn": 1, "hostASN": 2, "localCIDR": {"ipv4": "2001:db8::/64"}}, "must be an IPv4 network"),
        ({"asn": 1, "hostASN": 2, "localCIDR": {"ipv6": "192.0.2.0/24"}}, "must be an IPv6 network"),
        ({"asn": 1, "hostASN": 2, "localCIDR": {"ipv4": "192.0.2.0"}}, "prefix length"),
    ],
)
def test_a_wrong_session_is_refused(spec: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HostSession.model_validate(spec)


@pytest.mark.parametrize(
    "written",
    [
        {"localCIDR": {"ipv6": "2001:db8::/64", "ipv4": "192.0.2.0/24"}},
        {"localCIDRs": ["2001:db8::/64", "192.0.2.0/24"]},
        {"localCIDRs": ["192.0.2.0/24", "2001:db8::/64"]},
    ],
)
def test_pools_and_families_are_listed_ipv4_first(written: dict[str, object]) -> None:
    session = HostSession.model_validate({"asn": 1, "hostASN": 2} | written)
    assert session.pools == ("192.0.2.0/24", "2001:db8::/64")
    assert session.families == (Family.IPV4, Family.IPV6)


def test_a_pool_is_named_where_it_is_written() -> None:
    older = HostSession.model_validate({"asn": 1, "hostASN": 2, "localCIDR": {"ipv6": "2001:db8::/64"}})
    newer = HostSession.model_validate({"asn": 1, "hostASN": 2, "localCIDRs": ["192.0.2.0/24", "2001:db8::/64"]})
    assert older.field_of("2001:db8::/64") == "localCIDR.ipv6"
    assert newer.field_of("2001:db8::/64") == "localCIDRs[1]"


@pytest.mark.parametrize(
    ("written", "names", "file_name"),
    [
        ("fabric", ("fabric", "password"), "fabric"),
        (4711, ("4711", "password"), "4711"),
        ({"name": "fabric"}, ("fabric", "password"), "fabric"),
        ({"name": "fabric", "key": "password"}, ("fabric", "password"), "fabric"),
        ({"name": "fabric", "key": "tor-1"}, ("fabric", "tor-1"), "fabric.tor-1"),
    ],
)
def test_a_password_is_referred_to_by_name_and_key(written: object, names: tuple[str, str], file_name: str) -> None:
    found = SecretReference.model_validate(written)
    assert (found.in_secret, found.file_name) == (names, file_name)


@pytest.mark.parametrize("written", [True, [], {}, {"key": "a"}, {"name": "a", "key": "../b"}, {"name": ""}, ""])
def test_a_wrong_reference_to_a_password_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="SecretReference"):
        SecretReference.model_validate(written)


LOCAL = {"asn": 64514, "hostASN": 64515, "localCIDR": {"ipv4": "192.0.2.0/24"}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"password": "a", "passwordSecret": "b"}, "at most one of password and passwordSecret"),
        ({"passwordSecret": "../b"}, "passwordSecret"),
        ({"ttlSecurityHops": 0}, "ttlSecurityHops"),
        ({"ttlSecurityHops": 255}, "ttlSecurityHops"),
        ({"maximumPrefixes": 0}, "maximumPrefixes"),
        ({"maximumPrefixes": 4294967296}, "maximumPrefixes"),
        ({"allowedPrefixes": []}, "allowedPrefixes"),
        ({"allowedPrefixes": ["192.0.2.1"]}, "must be an address with a prefix length"),
        ({"allowedPrefixes": ["192.0.2.0/24"] * (MAX_ALLOWED_PREFIXES + 1)}, "allowedPrefixes"),
    ],
)
def test_what_guards_a_session_is_checked(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HostSession.model_validate(LOCAL | fields)


def test_nothing_guards_a_session_unless_it_is_written() -> None:
    plain = HostSession.model_validate(LOCAL)
    guards = (plain.password, plain.ttl_security_hops, plain.maximum_prefixes, plain.allowed_prefixes)
    assert guards == (None,) * 4
