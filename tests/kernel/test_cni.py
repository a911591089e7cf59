"""Debian's CNI plugins make underlay interfaces in the router: macvlan with static addresses, on a real kernel."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.netlink import actor
from config.desired import CniAttachment, DesiredState
from config.models.cni import canonical
from config.problems import Reason
from supervisor.cli import main
from supervisor.operations import teardown
from tests.actors.netlink.builders import UNDERLAY, demo, state, underlay, without_underlay
from tests.kernel.node import Node, ip
from tests.kernel.test_actor import running

PARENT = Node.NIC
ADDRESSES = {"192.0.2.3/24", "2001:db8:5::3/64"}
PEER = "cni-peer"


def attachment(name: str = "net1", runtime: Mapping[str, Any] | None = None, **macvlan: Any) -> CniAttachment:
    ipam = {
        "type": "static",
        "addresses": [{"address": one} for one in sorted(ADDRESSES)],
        "routes": [{"dst": "198.51.100.0/24", "gw": "192.0.2.1"}],
    }
    plugin = {"type": "macvlan", "master": PARENT, "mtu": 1450, "capabilities": {"mac": True}, "ipam": ipam}
    conflist = {"cniVersion": "1.0.0", "name": "fabric", "plugins": [plugin | macvlan]}
    return CniAttachment(name, canonical(conflist), canonical(runtime or {}))


def wanting(*attachments: CniAttachment) -> DesiredState:
    names = tuple(one.name for one in attachments)
    return replace(demo(), underlay=replace(underlay(*names), attachments=attachments))


INSIDE = wanting(attachment())
OUTSIDE = without_underlay(INSIDE)


@pytest.fixture
def host(node: Node) -> Iterator[Node]:
    """Return a node whose NIC's other end is a host of the fabric, in a namespace of its own."""
    ip("netns", "add", PEER)
    ip("link", "set", "leaf", "netns", PEER, "up")
    ip("-n", PEER, "addr", "add", "192.0.2.1/24", "dev", "leaf")
    yield node
    subprocess.run(["ip", "netns", "del", PEER], check=False, capture_output=True)


def assert_made(node: Node, name: str = "net1") -> None:
    assert node.addresses(name) == ADDRESSES
    link = node.link(name)
    assert link["linkinfo"]["info_kind"] == "macvlan"
    assert (link["mtu"], "UP" in link["flags"]) == (1450, True)
    assert f"198.51.100.0/24 via 192.0.2.1 dev {name}" in node.router("route", "show")


def assert_nothing_left(node: Node) -> None:
    assert "net1" not in node.names()
    assert PARENT in node.names(router=False)
    assert node.kernel.observe().cni == {}
    assert {one for one in node.names(router=False) if one not in {PARENT, "lo", "leaf"}} <= {
        "tunl0",
        "sit0",
        "ip6tnl0",
    }


def test_a_macvlan_is_made_with_its_addresses_and_carries_packets(host: Node) -> None:
    found = host.converge(INSIDE)
    assert (found.clean, found.plan.model.mtu) == (True, 1450)
    assert_made(host)
    ip("netns", "exec", Node.NETNS, "ping", "-c", "1", "-W", "10", "192.0.2.1")
    before = host.link("net1")["ifindex"]
    assert host.converge(INSIDE).writes == 0
    host.crash()
    assert host.converge(INSIDE).writes == 0
    assert host.link("net1")["ifindex"] == before
    assert host.converge(OUTSIDE).clean
    assert_nothing_left(host)


def test_the_capabilities_of_the_unit_suffice(host: Node) -> None:
    unit = Path(__file__).parents[2] / "packaging/systemd/openperouter.service"
    [bounding] = re.findall(r"^CapabilityBoundingSet=(.*)$", unit.read_text(), re.MULTILINE)
    kept = ",".join(f"+{word.removeprefix('CAP_').lower()}" for word in bounding.split())
    host.plugin_command = ("setpriv", "--no-new-privs", f"--bounding-set=-all,{kept}", "--inh-caps=-all")
    assert host.converge(INSIDE).clean
    assert_made(host)
    host.router("addr", "del", "192.0.2.3/24", "dev", "net1")
    assert host.converge(INSIDE).clean
    assert_made(host)
    assert host.converge(OUTSIDE).clean
    assert_nothing_left(host)


def test_capabilities_that_the_plugin_declares_reach_it(host: Node) -> None:
    assert host.converge(wanting(attachment(runtime={"mac": "02:00:00:00:00:01"}))).clean
    assert host.link("net1")["address"] == "02:00:00:00:00:01"


@pytest.mark.parametrize(
    "drift",
    [
        ("link", "del", "net1"),
        ("addr", "del", "192.0.2.3/24", "dev", "net1"),
        ("link", "set", "net1", "down"),
    ],
    ids=["device", "address", "down"],
)
def test_drift_is_repaired(host: Node, drift: tuple[str, ...]) -> None:
    assert host.converge(INSIDE).clean
    host.router(*drift)
    found = host.converge(INSIDE)
    assert (found.clean, found.writes > 0) == (True, True)
    assert_made(host)
    assert host.converge(INSIDE).writes == 0


def test_a_new_namespace_gets_the_interface_again(host: Node) -> None:
    assert host.converge(INSIDE).clean
    host.crash()
    ip("netns", "del", Node.NETNS)
    host.add_netns()
    assert host.converge(INSIDE).clean
    assert_made(host)


@pytest.mark.parametrize("other", [attachment("net2"), attachment(runtime={"mac": "02:00:00:00:00:01"})])
def test_another_name_or_configuration_replaces_it(host: Node, other: CniAttachment) -> None:
    assert host.converge(INSIDE).clean
    assert host.converge(wanting(other)).clean
    assert_made(host, other.name)
    assert ("net1" in host.names()) == (other.name == "net1")


def test_the_parent_changes_from_a_nic_of_the_router_and_back(host: Node) -> None:
    assert host.converge(state()).clean
    assert host.converge(INSIDE).clean
    assert_made(host)
    assert PARENT in host.names(router=False)
    assert host.converge(state()).clean
    assert PARENT in host.names()
    assert "net1" not in host.names()
    assert host.converge(OUTSIDE).clean
    assert_nothing_left(host)


def test_a_plugin_that_fails_fails_its_interface_by_name_and_nothing_else(host: Node) -> None:
    found = host.converge(wanting(attachment(), attachment("net2", master="nowhere"), attachment("net3", type="none")))
    assert_made(host)
    assert {"br-pe-100", "vni100", "br-pe-110", "pe-e-100"} <= host.names()
    assert not {"net2", "net3"} & host.names()
    [failure] = found.failures
    assert (failure.resource, failure.reason) == (UNDERLAY, Reason.UNDERLAY_FAILED)
    assert "make interface net2 with CNI plugins: CNI plugin macvlan: Link not found; " in failure.message
    assert "make interface net3 with CNI plugins: CNI plugin none: cannot start /usr/lib/cni/none: " in failure.message
    assert set(host.kernel.observe().cni) == {"net1"}


def test_without_the_plugins_an_interface_stays_as_it_is(host: Node, tmp_path: Path) -> None:
    assert host.converge(INSIDE).clean
    host.crash()
    before, host.plugins = host.link("net1")["ifindex"], tmp_path
    unchecked, unremoved = host.converge(INSIDE), host.converge(wanting(attachment(mtu=1400)))
    assert [failure.message for failure in unchecked.failures] == [
        "interface net1 cannot be checked and is left as it is: "
        f"CNI plugin macvlan: cannot start {tmp_path}/macvlan: No such file or directory"
    ]
    [failure] = unremoved.failures
    assert "remove interface net1 with CNI plugins (its configuration changed): CNI plugin macvlan: " in failure.message
    assert "make interface" not in failure.message
    assert host.converge(OUTSIDE).errors
    assert_made(host)
    assert host.link("net1")["ifindex"] == before
    host.crash()
    host.plugins = Path("/usr/lib/cni")
    assert host.converge(OUTSIDE).clean
    assert_nothing_left(host)


def test_a_parent_that_is_gone_takes_the_interface_with_it_and_brings_it_back(host: Node) -> None:
    assert host.converge(INSIDE).clean
    ip("link", "del", PARENT)
    found = host.converge(INSIDE)
    [failure] = found.failures
    assert "make interface net1 with CNI plugins: CNI plugin macvlan: " in failure.message
    host.add_nic(peer="leaf2")
    assert host.converge(INSIDE).clean
    assert_made(host)
    ip("link", "del", PARENT)
    assert host.converge(OUTSIDE).clean
    assert host.kernel.observe().cni == {}


async def test_the_daemon_makes_it_and_makes_it_again_when_it_is_gone(host: Node) -> None:
    async with running(host) as run:
        run.applied_in_frr(INSIDE)
        outcome = await run.outcome()
        assert (outcome.applied, outcome.failures, outcome.underlay_mtu) == (True, (), 1450)
        assert_made(host)
        host.router("link", "del", "net1")
        outcome = await run.outcome()
        assert (outcome.applied, outcome.writes > 0) == (True, True)
        assert_made(host)


async def test_a_plugin_that_hangs_is_killed_and_named_and_the_rest_is_applied(
    host: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor, "PLUGIN_SECONDS", 1.0)
    plugin = tmp_path / "hangs"
    plugin.write_text("#!/bin/sh\nexec sleep 1000\n")
    plugin.chmod(0o755)
    async with running(host, cni_plugin_dir=tmp_path) as run:
        run.applied_in_frr(wanting(attachment(type="hangs")))
        outcome = await run.outcome()
        assert not outcome.applied
        [failure] = outcome.failures
        assert failure.resource == UNDERLAY
        assert f"make interface net1 with CNI plugins: CNI plugin hangs: {plugin} did not end" in failure.message
        assert {"br-pe-100", "vni100", "br-pe-110", "pe-e-100"} <= host.names()


def test_a_device_of_the_same_name_is_neither_taken_nor_removed(host: Node) -> None:
    host.router("link", "add", "net1", "type", "dummy")
    [failure] = host.converge(INSIDE).failures
    assert "was not made by its CNI plugins" in failure.message
    host.converge(OUTSIDE)
    assert "net1" in host.names()


def test_a_crash_between_any_two_steps_leaves_nothing(host: Node) -> None:
    assert host.converge(OUTSIDE).clean
    for first, then in ((INSIDE, OUTSIDE), (OUTSIDE, INSIDE)):
        total = len(host.plan(first)[1].steps)
        assert total > 8
        for count in (0, 1, 2, total - 2, total - 1, total):
            host.converge(then)
            host.die_after(first, count)
            assert host.converge(INSIDE).clean, count
            assert_made(host)
            assert host.converge(OUTSIDE).clean, count
            assert_nothing_left(host)
        host.converge(first)


@pytest.mark.parametrize("namespace", [True, False], ids=["with the namespace", "without"])
def test_teardown_removes_it(host: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, namespace: bool) -> None:
    monkeypatch.setattr(teardown, "SYSTEMD_BOOTED", tmp_path / "no-systemd")
    assert host.converge(INSIDE).clean
    host.crash()
    if not namespace:
        ip("netns", "del", Node.NETNS)
    settings = tmp_path / "openperouter.yaml"
    settings.write_text(
        f"netns: {Node.NETNS}\nstateDir: {host.state}\nrunDir: {tmp_path}/run\n"
        f"vtysh: {tmp_path}/no-vtysh\nfrrEtcDir: {tmp_path}/frr\n"
    )
    assert main(["--settings", str(settings), "teardown", "--yes"]) == 0
    assert not list(host.state.iterdir())
    if not namespace:
        host.add_netns()
    assert_nothing_left(host)
