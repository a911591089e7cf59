"""The addresses of the API server and of name servers are in use: neither session nor tunnel endpoints take them."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.netlink import preview
from actors.netlink.actor import _server_of
from actors.netlink.kernel import _single
from actors.netlink.planning.observed import NamespaceView
from config.api import ApiAccess, ApiCredentials, ApiReach
from config.settings import Settings
from supervisor.runtime.channel import Latest
from tests.actors.lib.kube.kubeconfigs import kubeconfig


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


def test_what_tunnel_endpoints_must_not_take_has_the_servers_of_kubeconfig_and_resolver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "resolv.conf").write_text("nameserver 100.65.0.53\n")
    (tmp_path / "kubeconfig").write_text(kubeconfig(cluster={"server": "https://[2001:db8::10]:6443"}))
    monkeypatch.setattr(preview, "RESOLV_CONF", tmp_path / "resolv.conf")
    monkeypatch.setattr(preview, "_views", lambda netns: ((NamespaceView(), NamespaceView()), []))
    found = preview.host_networks(Settings(credentials_dir=tmp_path, state_dir=tmp_path, run_dir=tmp_path))
    assert {(str(one.network), one.what) for one in found} == {
        ("2001:db8::10/128", "the API server 2001:db8::10"),
        ("100.65.0.53/32", f"name server 100.65.0.53 of {tmp_path / 'resolv.conf'}"),
    }
