"""Write ``docs/configuration.md`` from the models, so that the reference cannot differ from what is accepted.

``python3 packaging/docs/configuration_reference.py`` prints it; ``--write`` replaces the file; a test compares both.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from config.models import L2Vni, L3Passthrough, L3Vni, RawFrrConfig, Underlay  # noqa: E402
from config.node import NodeConfig  # noqa: E402
from config.settings import Settings  # noqa: E402

TARGET: Final = ROOT / "docs" / "configuration.md"

# ruff: noqa: E501 - the document below is prose in tables
INTRODUCTION: Final = """\
# Configuration reference

Generated from the models by `packaging/docs/configuration_reference.py`; do not edit.

Three kinds of files are read, all YAML. Unknown keys are errors that name the closest known key; a key that differs only in upper
and lower case is accepted with a warning. Every message names file, line, column and field. `openperouter validate` checks
everything without touching anything and exits with 78 when there is an error.

| file | what | read |
|---|---|---|
| `/etc/openperouter/openperouter.yaml`, then `/etc/openperouter/conf.d/*.yaml` in lexical order, the last value of a key winning | settings of the daemon | at start; a reload says which ones changed and need a restart |
| `/etc/openperouter/node-config.yaml` | who this node is | at start, on change, on reload |
| `/etc/openperouter/configs/openpe_*.yaml` in lexical order | the router | at start, on change, on reload |

A router file has these top-level keys, each optional: `underlays`, `l3vnis`, `l2vnis` and `rawfrrconfigs` (lists), and `bgppassthrough` (one
object). Entries of `l3vnis` and `l2vnis` may carry a `name` beside the fields below; other entries refer to them by it.

A file that cannot be read or parsed keeps its last good content in force, and so do a password file and the directory: a
directory that is not there at all may be one whose file system is not mounted, so its files stay in force, over restarts too, until
`systemctl reload openperouter` (or `openperouter reload`) confirms that they are gone. A file that is removed goes out of force at once. An entry that breaks a rule is left out, together with what depends
on it; everything else is applied. While no underlay is usable nothing changes at all.
"""

SECTIONS: Final[tuple[tuple[str, type[BaseModel]], ...]] = (
    ("Settings (`openperouter.yaml`)", Settings),
    ("Node configuration (`node-config.yaml`)", NodeConfig),
    ("`underlays[]`", Underlay),
    ("`l3vnis[]`", L3Vni),
    ("`l2vnis[]`", L2Vni),
    ("`bgppassthrough`", L3Passthrough),
    ("`rawfrrconfigs[]`", RawFrrConfig),
)


class Entry(NamedTuple):
    """What a user needs to know of one key; ``default`` is Markdown, like the other texts."""

    path: str
    type: str
    default: str
    constraints: str
    description: str


def reference() -> str:
    """Return the whole document."""
    return "\n".join([INTRODUCTION, *(section(title, model) for title, model in SECTIONS)])


def section(title: str, model: type[BaseModel]) -> str:
    """Return one model's heading and table."""
    head = [f"## {title}", "", (model.__doc__ or "").strip().split("\n\n")[0].replace("``", "`"), ""]
    table = ["| field | type | default | constraints | meaning |", "|---|---|---|---|---|", *map(row, entries(model))]
    return "\n".join([*head, *table, ""])


def row(entry: Entry) -> str:
    """Return one line of a model's table."""
    cells = (f"`{entry.path}`", entry.type, entry.default, entry.constraints, entry.description)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def entries(model: type[BaseModel], prefix: str = "") -> Iterator[Entry]:
    """Yield an entry for each field, then those of the models inside it. The manual pages are made of them too."""
    for name, info in model.model_fields.items():
        inner, repeated = nested(info.annotation)
        path = f"{prefix}{info.alias or name}{'[]' if repeated else ''}"
        kind = word(plain(info.annotation))
        yield Entry(path, kind, default_text(info), constraints(info), info.description or "")
        if inner is not None:
            yield from entries(inner, f"{path}.")


def nested(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the model inside an annotation, if there is one, and whether it is an element of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    repeated = get_origin(annotation) in (tuple, list)
    for argument in get_args(annotation):
        model, deeper = nested(argument)
        if model is not None:
            return model, repeated or deeper
    return None, repeated


def plain(annotation: Any) -> Any:
    """Strip ``Annotated`` and ``None``."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return plain(get_args(annotation)[0])
    if origin in (Union, UnionType):
        rest = [one for one in get_args(annotation) if one is not type(None)]
        return plain(rest[0])
    return annotation


WORDS: Final = {int: "integer", float: "number", str: "string", bool: "boolean", Path: "path"}


def word(kind: Any) -> str:
    """Return a user's word for a type without ``Annotated`` and ``None``."""
    origin = get_origin(kind)
    if origin is Literal:
        return "one of " + ", ".join(f"`{value}`" for value in get_args(kind))
    if origin in (tuple, list):
        return f"list of {word(plain(get_args(kind)[0]))}"
    if origin is dict:
        return "mapping"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "object"
    return WORDS.get(kind, "string")


def default_text(info: FieldInfo) -> str:
    """Return the default, ``required``, or nothing for an absent field."""
    if info.is_required():
        return "**required**"
    if info.default_factory is not None or info.default in (None, ()):
        return ""
    return f"`{info.default}`"


def constraints(info: FieldInfo) -> str:
    """Return the ranges and lengths that the schema knows, of the field or of its type."""
    found = [*info.metadata, *inner_metadata(info.annotation)]
    texts = (limit(one) for one in found)
    return ", ".join(dict.fromkeys(text for text in texts if text))


def inner_metadata(annotation: Any) -> Iterator[Any]:
    """Yield the metadata of ``Annotated`` types inside an annotation, flattened."""
    if get_origin(annotation) is Annotated:
        for one in annotation.__metadata__:
            yield from (one.metadata if isinstance(one, FieldInfo) else [one])
    for argument in get_args(annotation):
        yield from inner_metadata(argument)


LIMITS: Final = (
    ("ge", "at least {}"),
    ("gt", "more than {}"),
    ("le", "at most {}"),
    ("lt", "less than {}"),
    ("min_length", "length at least {}"),
    ("max_length", "length at most {}"),
    ("pattern", "matches `{}`"),
)


def limit(one: Any) -> str:
    """Return one constraint in words, or nothing for what is no constraint."""
    texts = (text.format(getattr(one, name)) for name, text in LIMITS if getattr(one, name, None) is not None)
    return ", ".join(texts)


def main() -> int:
    """Print the reference, or write it."""
    if sys.argv[1:] == ["--write"]:
        TARGET.write_text(reference())
    else:
        sys.stdout.write(reference())
    return 0


if __name__ == "__main__":
    sys.exit(main())
