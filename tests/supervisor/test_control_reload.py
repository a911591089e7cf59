"""The outcome of a reload when something of the configuration does not come up, derived from FRR's answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.report.status_builder import Process, StatusInputs, build_status
from config.desired import DesiredState
from config.problems import Origin
from config.status import Status
from supervisor.control import reload_outcome
from tests.actors.health.examples import applied, assessed, desired, observed

REQUEST = 3
BY_FILE = Origin("/etc/openperouter/configs/openpe_vnis.yaml", 2)
BY_OBJECT = Origin(namespace="tenants", name="red", resource_version="17")


def requested(origin: Origin) -> DesiredState:
    """Return the state that a reload has led to, with an L3VNI from a place."""
    state = desired(4, reload_id=REQUEST)
    (red,) = state.l3vnis
    return replace(state, l3vnis=(replace(red, origin=origin),))


def status_of(state: DesiredState, *, settling: bool) -> Status:
    """Return the status when bgpd has not taken up the L3VNI."""
    stages = applied(state, settling=settling)
    health = assessed(stages, replace(observed("up"), l3vnis={"default": 0, "red": 0}))
    process = Process(
        version="0.1.0", pid=42, boot_id="boot", started_at=1000.0, configs_dir="/etc/openperouter/configs"
    )
    return build_status(
        StatusInputs(process, desired=state, frr=stages.frr, kernel=stages.kernel, health=health), 2000.0
    )


@pytest.mark.parametrize("origin", [BY_FILE, BY_OBJECT])
def test_a_reload_is_not_decided_before_a_vni_had_its_time(origin: Origin) -> None:
    status = status_of(requested(origin), settling=True)
    assert (status.ready, reload_outcome(status, REQUEST)) == (False, None)


def test_a_vni_of_a_file_that_does_not_come_up_ends_the_reload_with_its_reason() -> None:
    status = status_of(requested(BY_FILE), settling=False)
    outcome = reload_outcome(status, REQUEST)
    assert outcome is not None
    assert (outcome["ok"], outcome["reason"]) == (False, "1 problem remains; everything else is in force")
    assert "bgpd has not attached it to VRF red" in str(outcome["problems"])
    assert (status.ready, status.phase) == (True, "degraded")
    assert status.summary.startswith("degraded: L3VNI red: up in zebra, but bgpd has not attached it to VRF red")


def test_a_vni_of_an_object_that_does_not_come_up_does_not_fail_the_reload() -> None:
    outcome = reload_outcome(status_of(requested(BY_OBJECT), settling=False), REQUEST)
    assert outcome is not None
    assert (outcome["ok"], outcome["problems"]) == (True, [])
