"""The metrics: a parser reads the status from them, names cannot break the format, no secret appears."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from actors.report.metrics import metrics_text
from actors.report.status_builder import build_status
from config.outcomes import InterfaceHealth, KernelOutcome, SessionHealth, VniHealth
from config.status import ActorStatus, ApiStatus, Status, UnderlayStatus

from .examples import ERROR, FAILURE, PASSWORD, RED, WARNING, desired, inputs

Labels = dict[str, str]


def measured(status: Status) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return every sample as the parser of Prometheus' own library reads it."""
    families = text_string_to_metric_families(metrics_text(status))
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def value(status: Status, name: str, **labels: str) -> float | None:
    return measured(status).get((f"openperouter_{name}", frozenset(labels.items())))


def vni(type_: str, *, ok: bool = True) -> VniHealth:
    return VniHealth(RED, 100, type_, "", ok)


def test_a_converged_router() -> None:
    status = build_status(inputs(), 2000.0)
    assert value(status, "ready") == 1
    assert value(status, "phase", phase="running") == 1
    assert value(status, "phase", phase="degraded") == 0
    assert [value(status, "generation", stage=stage) for stage in ("desired", "frr", "kernel", "verified")] == [4] * 4
    assert value(status, "build_info", version="0.1.0") == 1
    assert (value(status, "start_timestamp_seconds"), value(status, "status_timestamp_seconds")) == (1000, 2000)


def test_sessions_are_counted_by_role_and_ranges_are_none() -> None:
    sessions = (
        SessionHealth("a", "default", 1, "Established"),
        SessionHealth("b", "default", 1, "Active"),
        SessionHealth("c", "red", 1, "Established", role="host"),
        SessionHealth("10.0.0.0/8", "default", 0, "Listening"),
    )
    status = Status(sessions=sessions)
    assert [value(status, "bgp_sessions", role=role) for role in ("fabric", "host")] == [2, 1]
    assert [value(status, "bgp_sessions_up", role=role) for role in ("fabric", "host")] == [1, 1]


def test_vnis_are_counted_by_type() -> None:
    status = Status(vnis=(vni("L2"), vni("L2", ok=False), vni("L3")))
    assert [value(status, name, type=kind) for name in ("vnis", "vnis_ok") for kind in ("L2", "L3")] == [2, 1, 1, 1]


def test_links_daemons_and_actors_go_by_their_names() -> None:
    status = Status(
        underlay=UnderlayStatus(interfaces=(InterfaceHealth("eth1", True, True), InterfaceHealth("eth2", True, False))),
        daemons={"bgpd": True, "bfdd": False},
        actors=(ActorStatus("frr", restarts=3), ActorStatus("netlink")),
    )
    assert [value(status, "interface_up", interface=name) for name in ("eth1", "eth2")] == [1, 0]
    assert [value(status, "frr_daemon_up", daemon=name) for name in ("bgpd", "bfdd")] == [1, 0]
    assert [value(status, "actor_restarts_total", actor=name) for name in ("frr", "netlink")] == [3, 0]


def test_problems_and_failures_are_counted() -> None:
    refused = replace(
        inputs(problems=(ERROR, WARNING, WARNING)), kernel=KernelOutcome(desired(), True, failures=(FAILURE,))
    )
    status = build_status(refused, 2000.0)
    assert [value(status, "problems", severity=word) for word in ("error", "warning")] == [1, 2]
    assert (value(status, "failures"), value(status, "notes")) == (1, 0)


@pytest.mark.parametrize(
    ("api", "reachable", "followed", "objects", "moment"),
    [
        (ApiStatus(), 0, 0, 0, None),
        (ApiStatus("reachable", "https://a", source="server", live=True, objects=5), 1, 1, 5, 2000),
        (ApiStatus("unreachable", source="server", objects=5, snapshot_age_seconds=30.0), 0, 0, 5, 1970),
        (ApiStatus("", source="memory", objects=5, snapshot_age_seconds=500.0), 0, 0, 5, 1500),
    ],
)
def test_the_api_has_its_reach_and_the_moment_of_what_is_known(
    api: ApiStatus, reachable: int, followed: int, objects: int, moment: float | None
) -> None:
    status = Status(updated_at=2000.0, api=api)
    assert value(status, "api_reachable") == reachable
    assert value(status, "api_followed") == followed
    assert value(status, "api_objects") == objects
    assert value(status, "api_snapshot_timestamp_seconds") == moment


def test_what_is_not_followed_is_counted() -> None:
    silent = ApiStatus("reachable", source="server", live=True, not_followed=("l2vnis (refused)", "secrets (failing)"))
    assert [value(Status(api=api), "api_not_followed") for api in (ApiStatus(), silent)] == [0, 2]


@given(st.text(), st.text(alphabet='\\"\n{},= #'))
def test_no_name_breaks_the_format(one: str, other: str) -> None:
    status = Status(actors=(ActorStatus(one, restarts=1),), daemons={other: True}, version=other)
    lines = metrics_text(status).split("\n")
    assert all(line == "" or line.startswith(("# ", "openperouter_")) for line in lines)
    assert value(Status(daemons={other: True}), "frr_daemon_up", daemon=other) == 1


def test_there_is_no_secret_and_nothing_of_a_tenant() -> None:
    text = metrics_text(build_status(inputs(problems=(ERROR,)), 2000.0))
    assert PASSWORD not in text
    for word in ("192.168.11.2", "red", "blue", "green"):
        assert f'"{word}"' not in text


def test_the_number_of_series_does_not_grow_with_the_configuration() -> None:
    few, many = (
        Status(sessions=(SessionHealth("a", "red", 1, "Idle", role="host"),) * number, vnis=(vni("L3"),) * number)
        for number in (1, 500)
    )
    assert len(measured(few)) == len(measured(many))
