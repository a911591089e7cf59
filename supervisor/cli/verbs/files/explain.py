"""``openperouter explain``: one key of the configuration, with its type, default, limits and an example."""

from __future__ import annotations

import argparse
import difflib
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError

from ...options import add_verb
from ...terminal import Painter, wants_colour

if TYPE_CHECKING:
    from config.reference import ReferenceEntry

WIDTH: Final = 100


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "explain",
        run,
        summary="explain a key of the configuration",
        description="Show a key's meaning, type, default and limits, and where it is written: "
        "'openperouter explain l3vnis.hostSession.hostASN'. The end of a path suffices if it is unique. Without a key, "
        "list those of the outermost level. Exits with 64 when there is no such key, with the closest ones.",
    )
    parser.add_argument(
        "key", nargs="?", default="", metavar="KEY", help="a dotted path, or its end; case does not matter"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what is known about one key."""
    paint = Painter(colour=wants_colour()).paint
    known = list(_entries())
    if not arguments.key:
        for file, entry in known:
            if "." not in entry.path:
                print(f"{paint(_plain(entry.path), 'bold')} ({file}): {entry.description}")
        return exit_codes.OK
    found = _find(arguments.key, known)
    if len(found) > 1:
        print(f"{arguments.key} is in several places:")
        print("\n".join(f"  {_plain(entry.path)}: {entry.description}" for _, entry in found))
        return exit_codes.OK
    [(file, entry)] = found
    print("\n".join(_lines(file, entry, [other for _, other in known], Painter(colour=wants_colour()))))
    return exit_codes.OK


def _entries() -> Iterator[tuple[str, ReferenceEntry]]:
    """Yield every key with the file that it is in, router files first."""
    from config.node import NodeConfig
    from config.reference import entries
    from config.settings import Settings
    from config.sources.naming import RouterFile

    for file, model in (
        ("openpe_*.yaml", RouterFile),
        ("node-config.yaml", NodeConfig),
        ("openperouter.yaml", Settings),
    ):
        yield from ((file, entry) for entry in entries(model))


def _find(key: str, known: Sequence[tuple[str, ReferenceEntry]]) -> list[tuple[str, ReferenceEntry]]:
    """Return the keys that a user may mean; raise :class:`CommandError` with the closest ones if there are none."""
    wanted = _plain(key).lower().strip(".")
    paths = [(_plain(entry.path).lower(), (file, entry)) for file, entry in known]
    found = [one for path, one in paths if path == wanted]
    # "l3vni" may mean the list of that name, too.
    found = found or [one for path, one in paths if path.endswith(f".{wanted}") or path == f"{wanted}s"]
    if found:
        return found
    close = difflib.get_close_matches(wanted, [path for path, _ in paths], 3)
    ends = {path.rpartition(".")[2]: path for path, _ in reversed(paths)}
    close += [ends[end] for end in difflib.get_close_matches(wanted.rpartition(".")[2], ends, 3)]
    spelled = {path: _plain(entry.path) for path, (_, entry) in paths}
    names = list(dict.fromkeys(spelled[path] for path in close))[:3]
    hint = f"did you mean {' or '.join(names)}?" if names else "openperouter explain lists the outermost keys"
    raise CommandError(f"there is no key {key}: {hint}", exit_codes.USAGE)


def _lines(file: str, entry: ReferenceEntry, known: Sequence[ReferenceEntry], painter: Painter) -> Iterator[str]:
    from config.reference import example_of, nested, since
    from supervisor.operations.documents import to_yaml

    required = "required" in entry.default
    yield painter.paint(_plain(entry.path), "bold") + painter.paint(f"  in {file}", "dim")
    yield from textwrap.wrap(entry.description, WIDTH, initial_indent="  ", subsequent_indent="  ")
    yield f"  type:    {entry.type.replace('`', '')}{', required' if required else ''}"
    if entry.default and not required:
        yield f"  default: {entry.default.strip('`')}"
    if entry.constraints:
        yield f"  limits:  {entry.constraints.replace('`', '')}"
    yield f"  since:   {since(entry.path)}"
    inside = [one for one in known if one.path.rpartition(".")[0] == entry.path]
    if inside:
        yield "  keys:"
        width = max(len(_plain(one.path.rpartition(".")[2])) for one in inside)
        for one in inside:
            yield f"    {_plain(one.path.rpartition('.')[2]):{width}}  {one.description}"
    elif (value := example_of(entry.path, entry.schema)) is not None:
        yield "  example:"
        yield textwrap.indent(to_yaml(nested(entry.path, value)).rstrip(), "    ")


def _plain(path: str) -> str:
    return path.replace("[]", "")
