"""The API server's address is in use: no session may take it from the host."""

from __future__ import annotations

import pytest

from actors.netlink.actor import _server_of
from actors.netlink.kernel import _single
from config.api import ApiAccess, ApiCredentials, ApiReach
from supervisor.runtime.channel import Latest


@pytest.mark.parametrize(
    ("url", "network"),
    [
        ("https://192.0.2.10:6443", ["192.0.2.10/32"]),
        ("https://[2001:db8::10]:6443", ["2001:db8::10/128"]),
        ("https://127.0.0.1:6443", []),
        ("https://api.example.org:6443", []),
    ],
)
def test_the_address_of_the_server_counts(url: str, network: list[str]) -> None:
    access = Latest[ApiAccess]("access")
    access.set(ApiAccess(ApiReach.REACHABLE, ApiCredentials(url)))
    found = list(_single(_server_of(access.reader()), "the API server {}"))
    assert [str(one.network) for one in found] == network
    assert all(one.what == f"the API server {one.network.network_address}" for one in found)


def test_until_a_server_has_answered_there_is_none() -> None:
    assert _server_of(None) == ""
    assert _server_of(Latest[ApiAccess]("access").reader()) == ""
