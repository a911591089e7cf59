"""Getting into the router: which VRF a name means, and what stands in the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from config.problems import Kind, ResourceId
from config.settings import Settings
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.router import inside
from supervisor.operations.router.inside import argv_inside, router_namespace, vrf_named
from tests.supervisor.cli.examples import READY


@pytest.mark.parametrize("name", ["red", "100", "110", "blue", "ns/blue"])
def test_a_vrf_is_found_by_its_name_and_by_its_vnis(name: str) -> None:
    assert vrf_named(READY, name) == "red"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rde", "there is no VRF or VNI rde in force: did you mean red?"),
        ("zzz", "there is no VRF or VNI zzz in force: known are red, 100, 110, ns/blue, blue"),
    ],
)
def test_an_unknown_name_lists_the_known_ones(name: str, message: str) -> None:
    with pytest.raises(CommandError) as failure:
        vrf_named(READY, name)
    assert str(failure.value) == message
    assert failure.value.exit_code == 64


def test_an_object_that_is_called_like_another_s_vrf_does_not_take_its_place() -> None:
    """Users of a namespace name their objects as they like; the operator means the VRF."""
    red = READY.vnis[0]
    hostile = replace(red, vni=666, vrf="evil", resource=ResourceId(Kind.L3VNI, "tenant", "red"))
    numbered = replace(hostile, vni=667, resource=ResourceId(Kind.L3VNI, "tenant", "100"))
    status = replace(READY, vnis=(hostile, numbered, *READY.vnis))
    assert vrf_named(status, "red") == "red"
    assert vrf_named(status, "100") == "red"
    assert vrf_named(status, "666") == vrf_named(status, "tenant/red") == "evil"


def test_a_name_that_several_vrfs_may_be_meant_by_is_refused() -> None:
    one = replace(READY.vnis[0], vrf="a", vni=1, resource=ResourceId(Kind.L3VNI, "x", "same"))
    other = replace(one, vrf="b", vni=2, resource=ResourceId(Kind.L3VNI, "y", "same"))
    with pytest.raises(CommandError, match="same may be L3VNI x/same or L3VNI y/same: name one of them as it is here"):
        vrf_named(replace(READY, vnis=(one, other)), "same")
    assert vrf_named(replace(READY, vnis=(one, other)), "y/same") == "b"


def test_a_segment_without_a_routing_domain_has_no_vrf() -> None:
    vnis = (replace(READY.vnis[1], vrf=""),)
    with pytest.raises(CommandError, match="is in no VRF"):
        vrf_named(replace(READY, vnis=vnis), "110")


def test_a_node_without_vnis_knows_no_name() -> None:
    with pytest.raises(CommandError, match="known are none"):
        vrf_named(replace(READY, vnis=()), "red")


def test_a_missing_namespace_is_named_with_its_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "NAMESPACES", tmp_path)
    with pytest.raises(CommandError, match="perouter does not exist; systemctl start openperouter-netns") as failure:
        router_namespace(Settings())
    assert failure.value.exit_code == 69


def test_only_root_may_enter_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "NAMESPACES", tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (tmp_path / "perouter").touch()
    with pytest.raises(PermissionError):
        router_namespace(Settings())


def test_the_command_line_enters_the_namespace_and_then_the_vrf() -> None:
    namespace = Path("/run/netns/perouter")
    assert argv_inside(namespace, "", ["ss", "-t"]) == ["ip", "netns", "exec", "perouter", "ss", "-t"]
    assert argv_inside(namespace, "red", ["ss"])[3:] == ["perouter", "ip", "vrf", "exec", "red", "ss"]
