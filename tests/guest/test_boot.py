"""One restart of the machine: the router comes back by itself, as it was, before anybody who needs it.

Before it, everything that must not come back is there (a configuration on trial), and a stand-in for the kubelet that
knows nothing of us.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from demo.checks import CHECKS, LEAF, Check
from guestvm.machine import Machine

from .commands import CONFIGS, active, eventually, property_of, status
from .evidence import evidence_of_failure
from .try_session import NEW, UNDERLAY, UNUSED_ADDRESS, cut_off

KUBELET = """\
[Unit]
Description=Stand-in for the kubelet
Wants=network-online.target

[Service]
ExecStart=/usr/bin/sleep infinity

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Picture:
    """What a node is: FRR's configuration, devices with their addresses in both namespaces, the desired state.

    ``settings`` are the lines of FRR's configuration before its first block, in any order: vtysh prints a line where
    the first daemon has it, and after a boot in which watchfrr started a daemon once more that may be another one.
    """

    settings: list[str]
    frr: list[str]
    devices: frozenset[tuple[object, ...]]
    desired: str


@dataclass(frozen=True)
class Rebooted:
    """The node after the restart, what it was before, and the warnings of its life until then."""

    node: Machine
    before: Picture
    warnings: str


def picture(node: Machine) -> Picture:
    """Look at a node."""
    shown = node.remote.run("vtysh -N perouter -c 'show running-config'").stdout
    _title, settings, *frr = shown.split("\n!\n")
    desired = node.remote.run("openperouter show desired").stdout
    host = json.loads(node.remote.run("ip -j -d address show group 4243").stdout)
    router = json.loads(node.remote.run("ip -j -d -n perouter address").stdout)
    devices = {describe(where, link) for where, links in (("host", host), ("router", router)) for link in links if link}
    return Picture(sorted(settings.splitlines()), frr, frozenset(devices), desired)


def describe(where: str, link: dict[str, object]) -> tuple[object, ...]:
    """Return what of a device must be the same after a restart: all but indices and random MACs."""
    given = link["addr_info"]
    assert isinstance(given, list)
    addresses = sorted(f"{one['local']}/{one['prefixlen']}" for one in given if one["scope"] == "global")
    return (
        where,
        link["ifname"],
        link["mtu"],
        link["group"],
        link.get("master"),
        "UP" in str(link["flags"]),
        *addresses,
    )


@pytest.fixture(scope="module")
def rebooted(configured: Machine) -> Iterator[Rebooted]:
    """The node after a restart in the middle of a trial that had cut it off."""
    with evidence_of_failure(configured, "before-the-restart"):
        for check in CHECKS:
            verdict = check.wait(configured)
            assert verdict.ok, f"before the restart: {check.title}: {verdict.evidence}"
    before = picture(configured)
    life = property_of(configured, "InvocationID")
    warnings = configured.remote.run(f"journalctl -q _SYSTEMD_INVOCATION_ID={life} --priority=warning -o cat").stdout
    configured.remote.run("cat >/etc/systemd/system/kubelet.service", stdin=KUBELET)
    configured.remote.run("systemctl enable --quiet kubelet.service")
    configured.remote.run(f"rm -rf {NEW} && cp -a {CONFIGS} {NEW}")
    cut_off(configured, "--detach --timeout 3600")
    assert UNUSED_ADDRESS in configured.remote.run("vtysh -N perouter -c 'show running-config'").stdout
    configured.restart()
    eventually(lambda: active(configured), "the router is ready after the boot", seconds=300)
    configured.remote.run("/usr/local/libexec/fabric/attach")
    yield Rebooted(configured, before, warnings)
    configured.remote.run("systemctl disable --quiet --now kubelet.service && rm /etc/systemd/system/kubelet.service")
    configured.remote.run("systemctl daemon-reload")


@pytest.fixture
def after(rebooted: Rebooted, node: Machine) -> Rebooted:
    """The same, with evidence when a test fails."""
    assert rebooted.node is node
    return rebooted


def test_a_healthy_node_had_logged_no_warning(after: Rebooted) -> None:
    assert not after.warnings.strip()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.title)
def test_the_node_forwards_without_a_hand(after: Rebooted, check: Check) -> None:
    verdict = check.wait(after.node)
    assert verdict.ok, verdict.evidence


def test_the_node_is_as_it_was_before_the_trial(after: Rebooted) -> None:
    now = picture(after.node)
    assert now.settings == after.before.settings
    assert now.frr == after.before.frr
    assert now.devices == after.before.devices
    assert now.desired == after.before.desired
    assert f"address: {LEAF}" in after.node.remote.run(f"cat {CONFIGS}/{UNDERLAY}").stdout


def test_the_trial_is_over_and_known_to_be(after: Rebooted) -> None:
    assert "restarted" in after.node.remote.run("openperouter try --status", check=False).stdout
    assert not any("trial" in problem["message"] for problem in status(after.node).get("problems", ()))


def test_the_kubelet_started_only_when_the_router_was_ready(after: Rebooted) -> None:
    ready = int(property_of(after.node, "ActiveEnterTimestampMonotonic"))
    eventually(lambda: property_of(after.node, "MainPID", "kubelet") != "0", "the stand-in is started")
    assert int(property_of(after.node, "ExecMainStartTimestampMonotonic", "kubelet")) >= ready > 0


def test_the_network_is_online_only_when_the_router_is_ready(after: Rebooted) -> None:
    ready = int(property_of(after.node, "ActiveEnterTimestampMonotonic"))
    online = int(property_of(after.node, "ActiveEnterTimestampMonotonic", "network-online.target"))
    assert online >= ready > 0


def test_nothing_failed_on_the_way(after: Rebooted) -> None:
    assert not after.node.remote.run("systemctl --failed --no-legend --plain").stdout.strip()
    assert property_of(after.node, "NRestarts") == "0"
