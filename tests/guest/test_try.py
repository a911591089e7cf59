"""Trying a configuration on a running node: what is confirmed stays, what cuts the node off goes by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from demo.checks import FABRIC_HOST_V4, ping
from guestvm.machine import Machine

from .commands import CONFIGS, eventually, has_link, property_of, reload, status, write
from .test_reload import GOOD
from .try_session import EVPN, NEW, cut_off

BLUE = "openpe_blue.yaml"
#: Long enough to kill the supervisor and see it back on an emulated machine, with time left.
SECONDS = 150


@pytest.fixture
def new(node: Machine) -> Iterator[Machine]:
    """The node with a copy of its configuration to edit; no trial and no VNI of it is left behind."""
    node.remote.run(f"rm -rf {NEW} && cp -a {CONFIGS} {NEW}")
    yield node
    node.remote.run("openperouter try --revert", check=False)
    node.remote.run(f"rm -rf {CONFIGS}/{BLUE} {NEW}")
    reload(node)


def on_trial(node: Machine) -> bool:
    """Whether the daemon reports a trial."""
    return any("trial" in problem["message"] for problem in status(node).get("problems", ()))


def router_files(node: Machine) -> str:
    """Return names and checksums of the configuration files."""
    return node.remote.run(f"cd {CONFIGS} && sha256sum openpe_*.yaml").stdout


def test_what_is_confirmed_stays(new: Machine) -> None:
    write(new, f"{NEW}/{BLUE}", GOOD)
    new.remote.run(f"openperouter try --detach --timeout 600 {NEW}")
    assert has_link(new, "vni200")
    assert on_trial(new)
    assert "s left" in new.remote.run("openperouter try --status").stdout
    new.remote.run("systemctl reload openperouter")
    assert has_link(new, "vni200")
    new.remote.run("openperouter try --confirm")
    assert new.remote.run(f"cat {CONFIGS}/{BLUE}").stdout == GOOD
    assert has_link(new, "vni200")
    assert not on_trial(new)
    assert new.remote.run("openperouter try --status", check=False).returncode == 1


def test_a_configuration_with_an_error_is_refused_and_nothing_changes(new: Machine) -> None:
    write(new, f"{NEW}/{BLUE}", GOOD.replace("vni: 200", "vni: two hundred"))
    refused = new.remote.run(f"openperouter try {NEW}", check=False)
    assert refused.returncode == 78
    assert f"{NEW}/{BLUE}:4" in refused.stdout
    assert not on_trial(new)


def test_input_that_ends_reverts_at_once(new: Machine) -> None:
    write(new, f"{NEW}/{BLUE}", GOOD)
    tried = new.remote.run(f"openperouter try {NEW}/{BLUE} </dev/null", check=False, seconds=300)
    assert tried.returncode == 1
    assert "in force and verified" in tried.stdout
    assert "reverted" in tried.stdout
    assert not has_link(new, "vni200")


def test_what_cuts_the_node_off_is_reverted_although_the_supervisor_was_killed(new: Machine) -> None:
    before = router_files(new)
    cut_off(new, f"--detach --timeout {SECONDS}")
    killed = property_of(new, "MainPID")
    new.remote.run("systemctl kill --kill-whom=main --signal=KILL openperouter")
    eventually(lambda: property_of(new, "MainPID") not in {killed, "0"}, "the supervisor is back")
    eventually(lambda: on_trial(new), "the next supervisor continues the trial")
    assert not EVPN(new).ok
    eventually(lambda: EVPN(new).ok, "the session to the fabric is back by itself", seconds=SECONDS + 300)
    eventually(lambda: ping(FABRIC_HOST_V4)(new).ok, "the fabric answers")
    assert "not confirmed in time" in new.remote.run("openperouter try --status", check=False).stdout
    assert not on_trial(new)
    assert router_files(new) == before
