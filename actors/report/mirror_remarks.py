"""What the status says of the files' copies in the API: those of somebody else, and those that have another name.

A copy that this node did not write counts as any other object, or a label would be enough to hide one. So what an
earlier installation under this node's name has left is in force like what somebody made: nobody but an admin can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from config.api import PLURALS, STATIC_NODE_LABEL, ApiObject, ApiSnapshot
from config.outcomes import StaticSnapshot
from config.sources.mirror_objects import label_value, plain_name

_NAMES: Final = 3


def mirror_remarks(api: ApiSnapshot | None, files: StaticSnapshot | None) -> Iterator[str]:
    """Yield what somebody should know of the copies that the API had when it was last seen."""
    if api is None or files is None:
        return
    label, known = label_value(files.node.name), {resource.id for resource in files.resources}
    foreign = [one for one in api.objects if one.labels.get(STATIC_NODE_LABEL) == label and one.id not in known]
    if foreign:
        yield (
            f"labelled as copies of this node's files, but not written by it, so they count as any other object: "
            f"{_names(foreign)}. What an earlier installation left is removed by: {_command(foreign, label)} "
            "(this node's own copies come back)"
        )
    for one in api.mirrored:
        plain = plain_name(one.name, files.node.name)
        if plain != one.name:
            yield f"{one.kind} {plain} of this node's files is shown in the API as {one.name}: the name was taken"


def _command(objects: Sequence[ApiObject], label: str) -> str:
    namespaces = {one.namespace for one in objects}
    where = f"-n {namespaces.pop()}" if len(namespaces) == 1 else "-A"
    return f"kubectl delete {','.join(PLURALS.values())} {where} -l {STATIC_NODE_LABEL}={label}"


def _names(objects: Sequence[ApiObject]) -> str:
    names = sorted(f"{one.kind} {one.namespace}/{one.name}" for one in objects)
    more = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {more} more" if more > 0 else "")
