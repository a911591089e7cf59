"""The end of the node's life with the package: upgrades and downgrades under traffic, removal, purge.

These are the package's own tests (debian/tests), on the node that all the others have used.
"""

from __future__ import annotations

import autopkgtest

from guestvm.machine import Machine

from .cluster import give_uplink


def test_upgrading_loses_no_packet_and_respects_who_disabled_the_unit(node: Machine) -> None:
    done = autopkgtest.run_test(node, "upgrade")
    assert done.returncode == 0, done.stdout


def test_purging_leaves_the_machine_as_it_was_before_its_first_installation(node: Machine) -> None:
    # What the tests themselves have put around the node, and a restart of the machine took away.
    node.remote.run("ip link delete dev tonear")
    give_uplink(node)
    done = autopkgtest.run_test(node, "purge")
    assert done.returncode == 0, done.stdout
