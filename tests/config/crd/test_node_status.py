"""A node's status is legal whatever goes in, bounded, and the same for the same state."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.crd.conditions import READY, SUCCESSFUL, condition
from config.crd.node_status import (
    BFD_STATES,
    MAX_FAILED,
    MAX_MESSAGE,
    MAX_NAME,
    MAX_RESOURCES,
    MAX_SESSIONS,
    MAX_VNIS,
    SESSION_STATES,
    ConfigKind,
    FailedKind,
    NodeStatus,
    SessionState,
    VniState,
    failed_resource,
    frr_failure,
    node_status,
    observed_resource,
    session_state,
    vni_state,
)
from config.outcomes import SessionHealth, VniHealth
from config.problems import Kind, Reason, ResourceId

CLUSTER_PAGE = Path(__file__).resolve().parents[3] / "docs/cluster.md"


def session(
    state: str, *, peer: str = "192.0.2.1", vrf: str = "default", remote_as: int = 1, bfd: str = ""
) -> SessionState:
    return session_state(SessionHealth(peer, vrf, remote_as, state, role="host", bfd=bfd))


def segment(name: str, vni: int, *, namespace: str = "", vrf: str = "") -> VniState:
    return vni_state(VniHealth(ResourceId(Kind.L2VNI, namespace, name), vni, "L2", vrf, ok=True))


ANY_TEXT = st.text(st.characters(), max_size=600)


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_can_be_reported(kind: Kind) -> None:
    assert kind.value in get_args(FailedKind)
    assert kind.value in get_args(ConfigKind)


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_can_be_reported(reason: Reason) -> None:
    entry = failed_resource(Kind.L3VNI, "red", reason, "why")
    assert entry.reason in (
        "ValidationFailed",
        "DependencyFailed",
        "OverlayAttachmentFailed",
        "FrrConfigurationFailed",
    )


@given(st.one_of(st.none(), st.sampled_from(Kind)), ANY_TEXT, st.sampled_from(Reason), ANY_TEXT, ANY_TEXT)
def test_any_failure_is_legal(kind: Kind | None, name: str, reason: Reason, message: str, namespace: str) -> None:
    entry = failed_resource(kind, name, reason, message, namespace=namespace)
    assert 1 <= len(entry.name) <= MAX_NAME
    assert 1 <= len(entry.message) <= MAX_MESSAGE
    json.dumps(entry.model_dump(by_alias=True)).encode()


@given(st.lists(ANY_TEXT, min_size=5, max_size=5), st.integers())
def test_any_session_is_legal(texts: list[str], asn: int) -> None:
    peer, vrf, role, state, bfd = texts
    entry = session_state(SessionHealth(peer, vrf, asn, state, role=role, bfd=bfd))
    assert entry.state in SESSION_STATES
    assert entry.bfd in {None, *BFD_STATES}


@given(st.sampled_from([Kind.L3VNI, Kind.L2VNI]), ANY_TEXT, st.booleans(), ANY_TEXT, ANY_TEXT)
def test_any_vni_is_legal(kind: Kind, name: str, ok: bool, vrf: str, detail: str) -> None:
    entry = vni_state(VniHealth(ResourceId(kind, "", name), 100, "L3", vrf, ok, detail))
    assert (entry.vni, entry.ok) == (100, ok)
    assert entry.detail is None or not ok


def test_a_file_and_frr_as_a_whole_have_kinds_of_their_own() -> None:
    assert failed_resource(None, "openpe_a.yaml", Reason.FILE_INVALID, "no YAML").kind == "File"
    assert frr_failure("").message


def test_a_session_that_frr_does_not_know_yet_has_no_as() -> None:
    assert session("Idle", remote_as=0).remote_asn is None
    assert session("Established", remote_as=4294967295).up


#: The states that bgpd (bgp_status_msg and its summary) and the health actor use.
STATES = [
    "Established",
    "Idle",
    "Connect",
    "Active",
    "OpenSent",
    "OpenConfirm",
    "Clearing",
    "Deleted",
    "NoNeg",
    "PfxCt",
]
STATES += ["Idle (Admin)", "Idle (PfxCt)", "Listening", "Missing", "Unknown", ""]


def test_the_documentation_lists_the_words_that_are_written_and_no_others() -> None:
    written = {session(state).state for state in STATES}
    described = SessionState.model_fields["state"].description or ""
    assert [entry.partition(": ")[0] for entry in described.rstrip(".").split("; ")] == list(SESSION_STATES)
    assert written == set(SESSION_STATES)
    bfd = {session("", bfd=word).bfd for word in ("up", "down", "init", "shutdown")}
    assert (
        SessionState.model_fields["bfd"].description
        == f"BFD: {', '.join(BFD_STATES)}; absent if the session does not use it."
    )
    assert bfd == set(BFD_STATES)


def test_the_pages_list_the_words_that_are_written() -> None:
    [row] = (line for line in CLUSTER_PAGE.read_text().splitlines() if line.startswith("| `sessions` |"))
    assert set(re.findall(r"`([^`]+)`", row)) - {"sessions"} == set(SESSION_STATES)


def test_the_data_has_the_api_s_keys_and_nothing_empty() -> None:
    ready = condition(READY, True, SUCCESSFUL, "all is well", now=0.0)
    status = node_status(
        [ready],
        failed=[failed_resource(Kind.L2VNI, "blue", Reason.DEPENDENCY_FAILED, "no L3VNI", namespace="tenants")],
        resources=[observed_resource(Kind.L3VNI, "red", 3, in_force=True, namespace="tenants")],
        vnis=[vni_state(VniHealth(ResourceId(Kind.L3VNI, "tenants", "red"), 100, "L3", "red", True, "never mind"))],
    )
    assert status.to_data() == {
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "lastTransitionTime": "1970-01-01T00:00:00Z",
                "reason": "ConfigurationSuccessful",
                "message": "all is well",
            }
        ],
        "failedResources": [
            {
                "kind": "L2VNI",
                "name": "blue",
                "namespace": "tenants",
                "reason": "DependencyFailed",
                "message": "no L3VNI",
            }
        ],
        "resources": [
            {"kind": "L3VNI", "namespace": "tenants", "name": "red", "observedGeneration": 3, "inForce": True}
        ],
        "vnis": [{"kind": "L3VNI", "namespace": "tenants", "name": "red", "vni": 100, "vrf": "red", "ok": True}],
    }
    assert NodeStatus.model_validate(status.to_data()) == status


@given(st.permutations([segment(f"n{number}", number) for number in range(1, 5)]))
def test_the_same_state_is_the_same_status(vnis: list[VniState]) -> None:
    assert node_status([], vnis=vnis) == node_status([], vnis=sorted(vnis, key=lambda vni: vni.name))


def test_failures_keep_their_order_and_are_named_once() -> None:
    second = failed_resource(Kind.L3VNI, "b", Reason.VALIDATION_FAILED, "why")
    first = failed_resource(Kind.L3VNI, "a", Reason.VALIDATION_FAILED, "why")
    assert node_status([], failed=[second, first, second]).failed_resources == (second, first)


def test_long_lists_are_cut_and_counted() -> None:
    status = node_status(
        [],
        failed=[failed_resource(Kind.L3VNI, str(n), Reason.VALIDATION_FAILED, "x") for n in range(MAX_FAILED + 1)],
        resources=[observed_resource(Kind.L3VNI, str(n), n, in_force=True) for n in range(MAX_RESOURCES + 2)],
        sessions=[session("Idle", peer=str(n)) for n in range(MAX_SESSIONS + 3)],
        vnis=[segment(str(n), n + 1) for n in range(MAX_VNIS + 4)],
    )
    assert status.omitted == 10
    assert len(status.failed_resources) == MAX_FAILED


def test_the_largest_status_fits_into_etcd() -> None:
    """Etcd takes 1.5 MiB a request; names as long as Kubernetes' tools make them, failures with the longest text."""
    name, namespace = "n" * 63, "s" * 63
    status = node_status(
        [],
        failed=[
            failed_resource(Kind.L3VNI, f"{name}{n}", Reason.VALIDATION_FAILED, "x" * 600, namespace=namespace)
            for n in range(MAX_FAILED)
        ],
        resources=[
            observed_resource(Kind.L3VNI, f"{name}{n}", n, in_force=True, namespace=namespace)
            for n in range(MAX_RESOURCES)
        ],
        sessions=[session("Idle", peer=f"2001:db8::{n}", vrf="v" * 15) for n in range(MAX_SESSIONS)],
        vnis=[segment(f"{name}{n}", n + 1, namespace=namespace, vrf="v" * 15) for n in range(MAX_VNIS)],
    )
    assert status.omitted is None
    assert len(json.dumps(status.to_data())) < 1.2 * 1024 * 1024
