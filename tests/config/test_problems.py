"""How messages name a resource: as its user does, and never two resources alike."""

from __future__ import annotations

from pathlib import Path

from config.problems import Kind, Origin, Problem, ResourceId
from config.sources.static_files import read_directory
from config.store.last_good import LastGood

from .samples import RED_FILE, UNDERLAY_FILE, from_api, l3vni, solve, underlay


def test_a_resource_from_a_file_has_the_name_that_the_file_gives_it(tmp_path: Path) -> None:
    (tmp_path / "openpe_a.yaml").write_text(UNDERLAY_FILE + RED_FILE + "l2vnis:\n  - {vni: 210}\n")
    fabric, red, segment = read_directory(tmp_path, "node", LastGood()).resources
    assert [str(one.id) for one in (fabric, red, segment)] == ["Underlay underlay-0", "L3VNI red", "L2VNI vni-210"]
    assert red.id.name == "static-node-red"


def test_an_object_of_the_api_is_named_with_its_namespace() -> None:
    assert str(from_api(l3vni("red", 1), "tenant-a").id) == "L3VNI tenant-a/red"


def test_two_objects_of_one_name_are_two_in_identity_and_text() -> None:
    one, other = from_api(l3vni("net", 1), "tenant-a").id, from_api(l3vni("net", 1), "tenant-b").id
    assert one != other
    assert str(one) != str(other)


def test_the_label_is_no_part_of_the_identity() -> None:
    assert ResourceId(Kind.L3VNI, "ns", "static-node-red", "red") == ResourceId(Kind.L3VNI, "ns", "static-node-red")


def test_a_second_use_of_a_name_has_a_label_of_its_own(tmp_path: Path) -> None:
    for name, vni in (("one", 1), ("two", 2)):
        (tmp_path / f"openpe_{name}.yaml").write_text(f"l3vnis:\n  - {{name: red, vrf: {name}, vni: {vni}}}\n")
    found = read_directory(tmp_path, "node", LastGood())
    assert [str(one.id) for one in found.resources] == ["L3VNI red", "L3VNI red-two"]
    (problem,) = found.problems
    assert problem.message == "duplicate name; this one is named red-two, references to red mean the first"


def test_messages_about_another_resource_name_it_as_its_user_does(tmp_path: Path) -> None:
    (tmp_path / "openpe_a.yaml").write_text(RED_FILE)
    (red,) = read_directory(tmp_path, "node", LastGood()).resources
    resolution = solve(underlay(), red, from_api(l3vni("green", 100)))
    used = f"VNI 100 is also used by L3VNI red ({tmp_path}/openpe_a.yaml:3:10); change one of them"
    assert {str(one.resource): one.message for one in resolution.problems} == {
        "L3VNI tenant/green": used,
        "L3VNI red": f"L3VNI tenant/green conflicts with this one and is ignored: {used}",
    }


def test_a_problem_is_one_line_with_place_resource_and_field() -> None:
    red = ResourceId(Kind.L3VNI, "ns", "static-node-red", "red")
    problem = Problem("must be at least 1", Origin("a.yaml", 3, 5), "l3vnis[0].vni", resource=red, in_force="kept")
    assert str(problem) == "a.yaml:3:5: error: L3VNI red: l3vnis[0].vni: must be at least 1 (kept)"
    assert str(Problem("is empty", Origin("a.yaml"))) == "a.yaml: error: is empty"
