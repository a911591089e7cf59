"""All about one session or VNI, by every name that it has, and what is said of a name that nothing has."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from config.desired import DesiredState
from config.outcomes import SessionHealth
from config.problems import Kind
from config.status import Status
from supervisor.operations.exit_codes import USAGE, CommandError
from supervisor.operations.inspection.details import (
    HostEnd,
    session_document,
    sessions_named,
    vni_document,
    vnis_named,
)
from tests.supervisor.operations.inspection.example_node import DESIRED, FILE, STATUS


@pytest.mark.parametrize(
    ("name", "peers"),
    [
        ("eth1", [("default", "eth1")]),
        ("172.31.0.0/24", [("default", "172.31.0.0/24")]),
        ("172.27.10.2", [("red", "172.27.10.2"), ("default", "172.27.10.2")]),
        ("red", [("red", "172.27.10.2"), ("red", "2001:db9:1::2")]),
        ("100", [("red", "172.27.10.2"), ("red", "2001:db9:1::2")]),
        ("passthrough", [("default", "172.27.10.2")]),
    ],
)
def test_sessions_are_found_by_peer_and_by_whose_they_are(name: str, peers: list[tuple[str, str]]) -> None:
    found = sessions_named(STATUS, DESIRED, name)
    assert [(one.session.vrf, one.session.peer) for one in found] == peers


@pytest.mark.parametrize(
    ("name", "resources"),
    [
        ("100", ["L3VNI red"]),
        ("red", ["L3VNI red", "L2VNI red"]),
        ("tenant/lone", ["L2VNI tenant/lone"]),
        ("lone", ["L2VNI tenant/lone"]),
        ("green", ["L3VNI green"]),
    ],
)
def test_vnis_are_found_by_number_and_name(name: str, resources: list[str]) -> None:
    assert [str(one.resource) for one in vnis_named(STATUS, DESIRED, name)] == resources


@pytest.mark.parametrize(
    ("name", "resources"),
    [("110", ["L2VNI red"]), ("red", ["L2VNI red"]), ("lone", ["L2VNI tenant/lone"])],
)
def test_of_one_kind_are_those_of_that_kind(name: str, resources: list[str]) -> None:
    found = vnis_named(STATUS, DESIRED, name, frozenset({Kind.L2VNI}))
    assert [str(one.resource) for one in found] == resources


@pytest.mark.parametrize("name", ["100", "green"])
def test_an_l3vni_is_no_l2vni_whether_or_not_it_is_in_force(name: str) -> None:
    with pytest.raises(CommandError, match=f"there is no L2VNI {name}") as error:
        vnis_named(STATUS, DESIRED, name, frozenset({Kind.L2VNI}))
    assert error.value.exit_code == USAGE


def test_the_ends_of_a_session_with_the_host_are_those_of_its_own_address() -> None:
    four, six = sessions_named(STATUS, DESIRED, "red")
    assert four.host_end == HostEnd("host-e-100", "", "172.27.10.2/24", "172.27.10.1/24", 64514)
    assert six.host_end == HostEnd("host-e-100", "", "2001:db9:1::2/64", "2001:db9:1::1/64", 64514)
    (through,) = sessions_named(STATUS, DESIRED, "passthrough")
    assert through.host_end == HostEnd("pt-host", "", "172.27.10.2/24", "172.27.10.1/24", 64514)
    assert (through.owner, through.origin) == ("L3Passthrough passthrough", f"{FILE}:40:3")


@pytest.mark.parametrize("desired", [None, replace(DESIRED, l3vnis=(), l2vnis=(), passthrough=None)])
def test_addresses_that_the_configuration_does_not_have_are_not_guessed(desired: DesiredState | None) -> None:
    assert sessions_named(STATUS, desired, "red")[0].host_end == HostEnd("host-e-100")
    assert vnis_named(STATUS, desired, "110")[0].host_end == HostEnd("host-e-110")
    assert vnis_named(STATUS, desired, "110")[0].vtep == ""


def test_a_dynamic_session_is_the_underlays_and_one_of_a_raw_snippet_nobodys() -> None:
    assert sessions_named(STATUS, DESIRED, "172.31.0.9")[0].owner == "Underlay underlay"
    assert sessions_named(STATUS, DESIRED, "10.9.9.9")[0].owner == ""
    named = replace(STATUS, sessions=(SessionHealth("vlan7", "default", 0, "Idle"),))
    assert sessions_named(named, DESIRED, "vlan7")[0].owner == ""


def test_each_problem_is_listed_once() -> None:
    (lone,) = vnis_named(STATUS, DESIRED, "120")
    assert lone.problems == ("host bridge br0 is missing",)
    (green,) = vnis_named(STATUS, DESIRED, "green")
    assert green.vni is None
    assert green.problems == (f"{FILE}:30:9: error: L3VNI green: vni: is taken (it is left out)",)
    (unanswered,) = sessions_named(STATUS, DESIRED, "eth2")
    assert unanswered.problems == ("the peer sends no BFD packets",)


def test_documents_have_all_of_the_statuss_own_and_more() -> None:
    stored = json.loads(STATUS.to_json())
    for vni, whole in zip(stored["vnis"], STATUS.vnis, strict=True):
        document = vni_document(vnis_named(STATUS, DESIRED, str(whole.vni))[0], STATUS)
        assert vni.items() <= document.items()
        assert document["in_force"] is True
    (green,) = vnis_named(STATUS, DESIRED, "green")
    assert vni_document(green, STATUS).items() >= {"kind": "L3VNI", "name": "green", "in_force": False}.items()
    (first,) = sessions_named(STATUS, DESIRED, "eth1")
    document = session_document(first, STATUS)
    assert {key: document[key] for key in stored["sessions"][0]} == stored["sessions"][0]
    assert document["owner"] == "Underlay underlay"
    json.dumps(document)


def test_a_status_that_was_read_from_json_gives_the_same_documents() -> None:
    stored = Status.from_json(STATUS.to_json())
    for name in ("100", "red", "lone", "green"):
        documents = [vni_document(one, STATUS) for one in vnis_named(STATUS, DESIRED, name)]
        assert [vni_document(one, stored) for one in vnis_named(stored, DESIRED, name)] == documents


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("eth3", "there is no session eth3: did you mean eth2?"),
        ("172.27.10.3", "there is no session 172.27.10.3: did you mean 172.27.10.2?"),
        (
            "x",
            "there is no session x; known are eth1, eth2, 172.31.0.0/24, 172.31.0.9, 10.9.9.9, 172.27.10.2, red, 100 "
            "and 2 more (see openperouter status -v)",
        ),
    ],
)
def test_a_name_that_no_session_has_gets_a_suggestion(name: str, message: str) -> None:
    with pytest.raises(CommandError) as caught:
        sessions_named(STATUS, DESIRED, name)
    assert (str(caught.value), caught.value.exit_code) == (message, USAGE)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gren", "there is no VNI gren: did you mean green?"),
        ("7", "there is no VNI 7; known are red, tenant/lone, lone, green"),
    ],
)
def test_a_name_that_no_vni_has_gets_a_suggestion(name: str, message: str) -> None:
    with pytest.raises(CommandError) as caught:
        vnis_named(STATUS, DESIRED, name)
    assert (str(caught.value), caught.value.exit_code) == (message, USAGE)


def test_a_node_without_vnis_says_so() -> None:
    with pytest.raises(CommandError, match="there is no VNI 100; known are none"):
        vnis_named(Status(), None, "100")
