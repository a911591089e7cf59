"""The drawing: each place once, nothing overlaps, what is down is red, hostile names stay text, large nodes fit."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree as ET

from config.outcomes import VniHealth
from config.problems import Kind, ResourceId
from config.status import Status
from supervisor.operations.inspection.drawing import MOST_CHARACTERS, MOST_PLACES, to_svg
from supervisor.operations.inspection.topology import Place, lines, topology
from tests.supervisor.operations.inspection.example_node import DESIRED, STATUS

SVG = "{http://www.w3.org/2000/svg}"
TREE = topology(STATUS, DESIRED)


def parsed(document: str) -> ET.Element:
    return ET.fromstring(document)  # noqa: S314 - what this project wrote


def boxes(document: str) -> list[tuple[str, ET.Element]]:
    """Return each box with its tooltip, which is the whole text."""
    return [(group.findtext(f"{SVG}title", ""), group) for group in parsed(document).iter(f"{SVG}g")]


def area(group: ET.Element) -> tuple[float, float, float, float]:
    """Return left, top, right, bottom."""
    rect = group.find(f"{SVG}rect")
    assert rect is not None
    left, top, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
    return left, top, left + width, top + height


def test_it_has_each_place_and_a_line_to_each_but_the_first() -> None:
    document = to_svg(TREE)
    assert [title for title, _ in boxes(document)] == [str(place) for _, place in lines(TREE)]
    assert len(list(parsed(document).iter(f"{SVG}path"))) == len(boxes(document)) - 1


def test_no_box_is_on_another_or_outside() -> None:
    document = to_svg(TREE)
    areas = [area(group) for _, group in boxes(document)]
    for one, other in combinations(areas, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1], (one, other)
    _, _, width, height = map(float, parsed(document).attrib["viewBox"].split())
    assert all(left >= 0 and top >= 0 and right <= width and bottom <= height for left, top, right, bottom in areas)


def test_what_is_down_is_red_and_only_that() -> None:
    red = {title for title, group in boxes(to_svg(TREE)) if group.find(f"{SVG}rect[@stroke='#b3261e']") is not None}
    assert red == {str(place) for _, place in lines(TREE) if place.down}
    assert red


def test_a_long_text_is_cut_in_its_box_only() -> None:
    [_, (title, group)] = boxes(to_svg(Place("n1", children=(Place("x" * 500),))))
    assert title == "x" * 500
    assert group.findtext(f"{SVG}text") == "x" * (MOST_CHARACTERS - 1) + "…"


def test_names_stay_text() -> None:
    hostile = "</text></svg><script>alert(1)</script> \"' onload=x &amp; ]]> \x00\x1b\u202e"
    resource = ResourceId(Kind.L2VNI, "ns", hostile)
    status = replace(STATUS, node=hostile, vnis=(VniHealth(resource, 1, "L2", hostile, ok=False, detail=hostile),))
    document = to_svg(topology(status, None))
    allowed = {f"{SVG}{name}" for name in ("svg", "title", "rect", "path", "g", "text")}
    assert {element.tag for element in parsed(document).iter()} == allowed
    attributes = {name for element in parsed(document).iter() for name in element.attrib}
    assert not [name for name in attributes if name.startswith("on") or "href" in name or name == "style"]
    shown = hostile.replace("\x00\x1b\u202e", "???")
    assert boxes(document)[0][0].startswith(shown)


def test_a_node_with_very_many_vnis_shows_those_that_are_down() -> None:
    vnis = tuple(
        VniHealth(ResourceId(Kind.L2VNI, "ns", f"n{vni}"), vni, "L2", f"v{vni}", ok=vni not in {7, 480}, detail="no")
        for vni in range(1, 501)
    )
    titles = [title for title, _ in boxes(to_svg(topology(Status(node="n1", vnis=vnis), None)))]
    assert MOST_PLACES - 5 < len(titles) <= MOST_PLACES + 1
    assert [title for title in titles if "DOWN" in title] == [
        f"L2VNI ns/n{vni}, VNI {vni}: DOWN (no)" for vni in (480, 7)
    ]
    # Each network has four places: its VRF, its VNI, the host's end and the remote VTEPs.
    assert titles[-1] == f"and {1 + 4 * 500 - (len(titles) - 1)} more, none of them down"


def test_what_does_not_fit_counts_what_is_down() -> None:
    root = Place("n1", children=tuple(Place(f"s{number}", down=True) for number in range(MOST_PLACES + 9)))
    titles = [title for title, _ in boxes(to_svg(root))]
    assert titles[-1] == "and 10 more, 10 of them down: DOWN"
