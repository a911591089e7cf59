"""The metrics: a parser reads the status from them, names cannot break the format, no secret appears."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from actors.lib.metrics.descriptions import DESCRIPTIONS, MOST_FAILED, MOST_SESSIONS, MOST_VNIS
from actors.lib.metrics.exposition import metrics_text
from actors.report.status_builder import build_status
from config.outcomes import (
    PROBE_DOWN,
    PROBE_UP,
    InterfaceHealth,
    KernelOutcome,
    ProbeHealth,
    SessionHealth,
    VniHealth,
)
from config.status import ActorStatus, ApiStatus, Status, UnderlayStatus
from tests.actors.report.examples import ERROR, FAILURE, PASSWORD, RED, WARNING, desired, inputs

Labels = dict[str, str]


def measured(status: Status) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return every sample as the parser of Prometheus' own library reads it."""
    families = text_string_to_metric_families(metrics_text(status))
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def value(status: Status, name: str, /, **labels: str) -> float | None:
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


def test_a_probe_is_shown_once_its_state_is_known() -> None:
    up = ProbeHealth(RED, "red", "10.0.0.1", "target", PROBE_UP, 0.25, 7, 1)
    status = Status(probes=(up, replace(up, target="10.0.0.2", state=PROBE_DOWN), ProbeHealth(RED, "red", "h", "host")))
    of = {"target": "10.0.0.1", "vrf": "red"}
    assert value(status, "probe_up", **of, role="target") == 1
    assert value(status, "probe_rtt_seconds", **of) == 0.25
    assert (value(status, "probe_sent_total", **of), value(status, "probe_lost_total", **of)) == (7, 1)
    assert value(status, "probe_up", target="10.0.0.2", vrf="red", role="target") == 0
    assert value(status, "probe_rtt_seconds", target="10.0.0.2", vrf="red") is None
    assert value(status, "probe_up", target="h", vrf="red", role="host") is None


def test_vnis_are_counted_by_type() -> None:
    status = Status(vnis=(vni("L2"), vni("L2", ok=False), vni("L3")))
    assert [value(status, name, type=kind) for name in ("vnis", "vnis_ok") for kind in ("L2", "L3")] == [2, 1, 1, 1]


def test_links_daemons_and_actors_go_by_their_names() -> None:
    status = Status(
        underlay=UnderlayStatus(interfaces=(InterfaceHealth("eth1", True, True), InterfaceHealth("eth2", True, False))),
        daemons={"bgpd": True, "bfdd": False},
        actors=(
            ActorStatus("frr", "running", causes={"bug": 1, "frozen": 2}, facts={"frr_version": "10.3"}),
            ActorStatus("netlink", "backoff", progress_age_seconds=7.0),
        ),
    )
    assert [value(status, "interface_up", interface=name) for name in ("eth1", "eth2")] == [1, 0]
    assert [value(status, "frr_daemon_up", daemon=name) for name in ("bgpd", "bfdd")] == [1, 0]
    assert [value(status, "actor_restarts_total", actor="frr", cause=cause) for cause in ("bug", "frozen")] == [1, 2]
    assert [value(status, "actor_up", actor=name) for name in ("frr", "netlink")] == [1, 0]
    assert value(status, "actor_progress_age_seconds", actor="netlink") == 7
    assert value(status, "frr_info", version="10.3") == 1


def test_problems_and_failures_are_counted() -> None:
    refused = replace(
        inputs(problems=(ERROR, WARNING, WARNING)), kernel=KernelOutcome(desired(), True, failures=(FAILURE,))
    )
    status = build_status(refused, 2000.0)
    assert [value(status, "problems", severity=word) for word in ("error", "warning")] == [1, 2]
    assert (value(status, "failed_resources"), value(status, "other_faults")) == (1, 0)
    failed = {"kind": "L3VNI", "namespace": "", "name": "red", "reason": "OverlayAttachmentFailed"}
    assert value(status, "resource_failed", **failed) == 1


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


def test_there_is_no_secret() -> None:
    text = metrics_text(build_status(inputs(problems=(ERROR,)), 2000.0))
    assert PASSWORD not in text
    assert ERROR.message not in text


def test_each_session_has_its_own_series() -> None:
    down = SessionHealth("b", "red", 1, "Active", role="host", bfd="down", flaps=3)
    up = SessionHealth("a", "default", 1, "Established", 100, {"ipv4Unicast": 3, "l2VpnEvpn": 5})
    status = Status(sessions=(up, down, SessionHealth("10.0.0.0/8", "default", 0, "Listening")))
    assert value(status, "bgp_session_up", peer="a", vrf="default", role="fabric") == 1
    assert value(status, "bgp_session_up", peer="b", vrf="red", role="host") == 0
    assert value(status, "bgp_session_up", peer="10.0.0.0/8", vrf="default", role="fabric") is None
    assert value(status, "bgp_session_uptime_seconds", peer="a", vrf="default") == 100
    assert value(status, "bgp_session_flaps_total", peer="b", vrf="red") == 3
    assert value(status, "bgp_session_prefixes_received", peer="a", vrf="default", afi="l2VpnEvpn") == 5
    assert value(status, "bfd_session_up", peer="b", vrf="red") == 0
    assert value(status, "bfd_session_up", peer="a", vrf="default") is None


def test_each_vni_has_its_own_series() -> None:
    status = Status(
        vnis=(
            VniHealth(RED, 100, "L3", "red", ok=False, routes=7, remote_vteps=1),
            VniHealth(RED, 110, "L2", "", ok=True, remote_vteps=2),
        )
    )
    assert value(status, "vni_ok", vni="100", type="L3", vrf="red") == 0
    assert value(status, "vni_routes", vni="100", type="L3", vrf="red") == 7
    assert value(status, "vni_remote_vteps", vni="110", type="L2", vrf="") == 2
    assert value(status, "vni_routes", vni="110", type="L2", vrf="") is None


def test_evpn_routes_have_a_series_for_each_type_that_is_known() -> None:
    counted = VniHealth(RED, 110, "L2", "", ok=True, evpn_received={"2": 14, "3": 1}, evpn_advertised={"2": 0, "3": 1})
    status = Status(vnis=(counted, VniHealth(RED, 111, "L2", "", ok=True)))
    of = {"vni": "110", "type": "L2", "vrf": ""}
    assert value(status, "vni_evpn_routes_received", **of, route_type="2") == 14
    assert value(status, "vni_evpn_routes_advertised", **of, route_type="2") == 0
    assert value(status, "vni_evpn_routes_advertised", **of, route_type="3") == 1
    assert value(status, "vni_evpn_routes_received", **of, route_type="5") is None
    assert value(status, "vni_evpn_routes_received", **(of | {"vni": "111"}), route_type="2") is None


def test_the_trial_and_the_credentials_have_their_end_only_while_there_is_one() -> None:
    trial = ActorStatus("static_config", facts={"trial_ends_at": 1234.5})
    status = Status(actors=(trial,), api=ApiStatus(expires_at=99.0))
    assert value(status, "trial_deadline_timestamp_seconds") == 1234.5
    assert value(status, "api_credentials_expiry_timestamp_seconds") == 99
    for name in ("trial_deadline_timestamp_seconds", "api_credentials_expiry_timestamp_seconds"):
        assert value(Status(), name) is None


def test_the_number_of_series_is_bounded_and_what_is_left_out_is_counted() -> None:
    number = 3000
    many = Status(
        sessions=tuple(
            SessionHealth(f"10.0.{i // 256}.{i % 256}", "red", 1, "Idle", role="host") for i in range(number)
        ),
        vnis=tuple(VniHealth(RED, i, "L3", "", ok=True) for i in range(number)),
        failures=tuple(replace(FAILURE, resource=replace(RED, name=f"red{i}", label=f"red{i}")) for i in range(number)),
    )
    found = [name.removeprefix("openperouter_") for name, _ in measured(many)]
    limits = {"bgp_session_up": MOST_SESSIONS, "vni_ok": MOST_VNIS, "resource_failed": MOST_FAILED}
    for name, most in limits.items():
        assert found.count(name) == most
        assert value(many, "series_omitted", metric=f"openperouter_{name}") == number - most
    # The totals count all of them, and what is configured comes first.
    assert value(many, "bgp_sessions", role="host") == number
    assert value(many, "bgp_session_up", peer="10.0.0.0", vrf="red", role="host") == 0


def test_two_sessions_of_one_name_are_one_series() -> None:
    """Prometheus refuses a text with the same series twice as a whole."""
    session = SessionHealth("a", "red", 1, "Idle", role="host")
    text = metrics_text(Status(sessions=(session, session)))
    assert text.count("openperouter_bgp_session_up{") == 1


def test_a_name_that_is_not_utf8_can_be_exported() -> None:
    broken = replace(FAILURE, resource=replace(RED, label="r\udcffd" + "x" * 300))
    [line] = (line for line in metrics_text(Status(failures=(broken,))).splitlines() if 'name="r?dxxx' in line)
    assert line.encode().isascii()


def test_names_follow_the_conventions_of_prometheus() -> None:
    for one in DESCRIPTIONS.values():
        assert (one.kind == "counter") == one.name.endswith("_total"), one.name
        assert one.kind != "histogram" or one.name.endswith("_seconds"), one.name
        assert one.meaning.endswith("."), one.name
