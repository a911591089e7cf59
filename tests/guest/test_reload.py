"""Changing the configuration of a running node: files come, break, and go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from demo.checks import FABRIC_HOST_V4, ping
from guestvm.machine import Machine

from .commands import CONFIGS, eventually, has_link, property_of, reload, write

BLUE = f"{CONFIGS}/openpe_blue.yaml"
GOOD = """\
l3vnis:
  - name: blue
    vrf: blue
    vni: 200
    hostSession:
      asn: 64514
      hostASN: 64515
      localCIDR:
        ipv4: 172.29.10.0/24
"""
BROKEN_FILE = GOOD + "    vni: [200\n"
BAD_RESOURCE = GOOD.replace("vni: 200", "vni: two hundred")


@pytest.fixture
def blue(node: Machine) -> Iterator[Machine]:
    """The node with one VNI more, which goes with the test."""
    write(node, BLUE, GOOD)
    reload(node)
    yield node
    node.remote.run(f"rm -f {BLUE}")
    reload(node)
    eventually(lambda: not has_link(node, "vni200"), "VNI 200 goes with its file")


def test_a_new_file_is_in_force_when_reload_returns(blue: Machine) -> None:
    assert has_link(blue, "vni200")
    known = blue.remote.run("vtysh -N perouter -c 'show evpn vni 200'").stdout
    assert "blue" in known


def test_a_broken_file_is_named_and_its_last_good_content_stays_in_force(blue: Machine) -> None:
    write(blue, BLUE, BROKEN_FILE)
    assert reload(blue, check=False).returncode != 0
    said = blue.remote.run("journalctl --no-pager -u openperouter -n 30 -o cat").stdout
    assert "openpe_blue.yaml:" in said
    assert property_of(blue, "ActiveState") == "active"
    assert has_link(blue, "vni200")
    assert "openpe_blue.yaml:" in blue.remote.run("openperouter status", check=False).stdout
    assert ping(FABRIC_HOST_V4)(blue).ok


def test_a_bad_resource_is_named_and_takes_down_only_itself(blue: Machine) -> None:
    write(blue, BLUE, BAD_RESOURCE)
    assert reload(blue, check=False).returncode != 0
    eventually(lambda: not has_link(blue, "vni200"), "the bad VNI is not in force")
    assert "openpe_blue.yaml:4" in blue.remote.run("openperouter status", check=False).stdout
    assert ping(FABRIC_HOST_V4)(blue).ok


def test_a_file_is_noticed_without_a_reload(node: Machine) -> None:
    write(node, BLUE, GOOD)
    eventually(lambda: has_link(node, "vni200"), "VNI 200 comes with its file")
    node.remote.run(f"rm {BLUE}")
    eventually(lambda: not has_link(node, "vni200"), "VNI 200 goes with its file")


def test_a_reload_that_changes_nothing_touches_nothing(node: Machine) -> None:
    links = "ip -n perouter -o link | cut -d: -f1,2 | sort"
    before = node.remote.run(links).stdout
    reload(node)
    assert node.remote.run(links).stdout == before
