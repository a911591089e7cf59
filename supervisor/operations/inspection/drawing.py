"""The topology as a drawing (SVG), for ``show topology --svg`` and the page of ``openperouter web``. Pure.

    Place (the root) -> at most MOST_PLACES of it, what is down first -> boxes in columns -> SVG

The node is above everything else, which has a column for each level of the tree and a row for each leaf; a place is in
the middle of its children. Names come from
resources that any tenant may write: the document is built as a tree of XML elements, so that no text can become
markup, and it has no script, no link and nothing to load.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final
from xml.etree import ElementTree as ET

from config.syntax.printable import printable

from .topology import Place

#: What a drawing shows of a node with hundreds of VNIs; more could not be found in it.
MOST_PLACES: Final = 200
#: Characters in a box; the whole text is in its tooltip.
MOST_CHARACTERS: Final = 48
#: Lengths in pixels. In a monospaced font all characters but East Asian ones have the same width.
_CHARACTER: Final = 7.3
_ROW: Final = 32
_BOX: Final = 24
_PADDING: Final = 8
_GAP: Final = 36
_INDENT: Final = 24
_MARGIN: Final = 8
_FONT: Final = {"font-family": "monospace", "font-size": "12"}
_DOWN: Final = {"fill": "#fdecea", "stroke": "#b3261e"}
_GOOD: Final = {"fill": "#f4f7f5", "stroke": "#5c7268"}


@dataclass(slots=True)
class _Box:
    """A place with its column and its row, which is between two rows for one with an even number of children."""

    place: Place
    column: int
    row: float
    parent: _Box | None


def to_svg(root: Place) -> str:
    """Return the drawing as an SVG document without an XML declaration, which fits into an HTML page too."""
    boxes = list(_boxes(_limited(root, MOST_PLACES)))
    lefts = _lefts(boxes)
    width = max(lefts[box.column] + _width(box) for box in boxes) + _MARGIN
    height = (max(box.row for box in boxes) + 1) * _ROW + 2 * _MARGIN - (_ROW - _BOX)
    size = {"width": f"{width:.0f}", "height": f"{height:.0f}", "viewBox": f"0 0 {width:.0f} {height:.0f}"}
    drawing = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", **size, **_FONT})
    ET.SubElement(drawing, "title").text = "Topology"
    ET.SubElement(drawing, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    for box in boxes:
        if box.parent is not None:
            ET.SubElement(drawing, "path", _line(box, box.parent, lefts))
    for box in boxes:
        _draw(drawing, box, lefts[box.column])
    return ET.tostring(drawing, encoding="unicode")


def _lefts(boxes: list[_Box]) -> list[float]:
    """Return where each column begins: the node's children a little to the right of it, others beside their parents."""
    lefts: list[float] = [_MARGIN, _MARGIN + _INDENT]
    for column in range(2, max(box.column for box in boxes) + 1):
        widest = max(_width(box) for box in boxes if box.column == column - 1)
        lefts.append(lefts[-1] + widest + _GAP)
    return lefts


def _limited(root: Place, most: int) -> Place:
    """Return the tree with at most about ``most`` places: first what is down, with the way to it."""
    total = _count(root)
    if total <= most:
        return root
    kept = _kept(root, most)
    down = sum(place.down for place in _all(root)) - sum(place.down for place in _all(kept))
    rest = f"and {total - _count(kept)} more, {f'{down} of them down' if down else 'none of them down'}"
    return replace(kept, children=(*kept.children, Place(rest, down=down > 0)))


def _kept(place: Place, most: int) -> Place:
    """Return a place with as many of its descendants, in their order, as fit: those with something down before others.

    A child is shown with all that is below it, or as far as there is room for that.
    """
    room, chosen = most - 1, dict[int, Place]()
    order = sorted(enumerate(place.children), key=lambda item: not any(one.down for one in _all(item[1])))
    for position, child in order:
        if room <= 0:
            break
        chosen[position] = _kept(child, room)
        room -= _count(chosen[position])
    return replace(place, children=tuple(chosen[position] for position in sorted(chosen)))


def _all(place: Place) -> Iterator[Place]:
    yield place
    for child in place.children:
        yield from _all(child)


def _count(place: Place) -> int:
    return sum(1 for _ in _all(place))


def _boxes(root: Place) -> list[_Box]:
    """Return all boxes, each before its children."""
    found = [_Box(root, 0, 0, None)]
    leaves = 1

    def add(place: Place, column: int, parent: _Box) -> _Box:
        nonlocal leaves
        box = _Box(place, column, leaves, parent)
        found.append(box)
        children = [add(child, column + 1, box) for child in place.children]
        if children:
            box.row = (children[0].row + children[-1].row) / 2
        else:
            leaves += 1
        return box

    for child in root.children:
        add(child, 1, found[0])
    return found


def _shown(box: _Box) -> str:
    most = MOST_CHARACTERS if box.parent else 2 * MOST_CHARACTERS
    text = printable(str(box.place))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _width(box: _Box) -> float:
    return len(_shown(box)) * _CHARACTER + 2 * _PADDING


def _middle(box: _Box) -> float:
    return _MARGIN + box.row * _ROW + _BOX / 2


def _line(box: _Box, parent: _Box, lefts: list[float]) -> dict[str, str]:
    """Return the line from below the node, or from the right of another parent, to the left of a child."""
    end = lefts[box.column]
    if parent.parent is None:
        start = f"M{lefts[0] + _INDENT / 2:.1f} {_middle(parent) + _BOX / 2:.1f}"
    else:
        start = f"M{lefts[parent.column] + _width(parent):.1f} {_middle(parent):.1f} H{end - _GAP / 2:.1f}"
    path = f"{start} V{_middle(box):.1f} H{end:.1f}"
    return {"d": path, "fill": "none", "stroke": _DOWN["stroke"] if box.place.down else "#9aa8a1"}


def _draw(drawing: ET.Element, box: _Box, left: float) -> None:
    group = ET.SubElement(drawing, "g")
    ET.SubElement(group, "title").text = printable(str(box.place))
    colours = _DOWN if box.place.down else _GOOD
    corner = {"x": f"{left:.1f}", "y": f"{_middle(box) - _BOX / 2:.1f}", "rx": "4"}
    ET.SubElement(group, "rect", {**corner, "width": f"{_width(box):.1f}", "height": str(_BOX), **colours})
    baseline = {"x": f"{left + _PADDING:.1f}", "y": f"{_middle(box) + 4:.1f}"}
    text = ET.SubElement(group, "text", {**baseline, "fill": "#8c1d18" if box.place.down else "#16211c"})
    text.text = _shown(box)
