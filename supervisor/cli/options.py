"""What several verbs share: options, messages on standard error, documents, and reading the desired state."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, get_args

from ..operations.exit_codes import CONFIG, NO_INPUT, CommandError
from ..operations.paths import DEFAULT_SETTINGS, require_readable, require_readable_settings
from .terminal import ColourChoice, duration, is_quiet

if TYPE_CHECKING:
    from config.desired import DesiredState

    from ..operations.inspection.current_status import CurrentStatus

T = TypeVar("T")

#: What ``--output`` takes for every verb that has it.
OUTPUTS: Final = ("text", "json", "yaml")


class StoreFile(argparse.Action):
    """Stores a path; the attribute makes the shell's completion, which shtab generates, offer files for it."""

    complete: ClassVar = "file"

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        _option: str | None = None,
    ) -> None:
        """Store the converted value."""
        setattr(namespace, self.dest, values)


def add_settings(parser: argparse.ArgumentParser, *, default: Path | str = argparse.SUPPRESS) -> None:
    """Add ``--settings``; on a verb it overrides the one before the verb."""
    parser.add_argument(
        "--settings",
        type=Path,
        action=StoreFile,
        metavar="FILE",
        default=default,
        help=f"the settings file, with conf.d beside it (default: {DEFAULT_SETTINGS})",
    )


def add_colour(parser: argparse.ArgumentParser) -> None:
    """Add ``--color`` to the whole command line."""
    parser.add_argument(
        "--color",
        choices=get_args(ColourChoice),
        default="auto",
        help="colours: on a terminal, unless NO_COLOR is set (auto, the default), always or never",
    )


def add_verb(
    verbs: Any, name: str, run: Callable[[argparse.Namespace], int], *, summary: str, description: str, **options: Any
) -> argparse.ArgumentParser:
    """Add a verb that takes ``--settings`` to the command line; return its parser for further options."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=summary, description=description, **options)
    add_settings(parser)
    parser.set_defaults(function=run)
    return parser


def add_output(
    parser: argparse.ArgumentParser, about: str, more: tuple[str, ...] = ()
) -> argparse._MutuallyExclusiveGroup:
    """Add ``--output``, and ``--json`` for its most frequent value; return the group of options that exclude them.

    ``about`` says what ``json`` and ``yaml`` are, which are the same document; ``more`` are further values.
    """
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--output", choices=(*OUTPUTS, *more), default="text", help=f"text for people (default); {about}"
    )
    group.add_argument("--json", action="store_const", dest="output", const="json", help="the same as --output json")
    return group


def add_quiet(options: argparse.ArgumentParser | argparse._MutuallyExclusiveGroup, about: str) -> None:
    """Add ``--quiet``; ``about`` says what is still printed."""
    options.add_argument("-q", "--quiet", action="store_true", help=about)


def print_document(document: object, output: str, *, stream: bool = False) -> None:
    """Print a document as ``json`` or as ``yaml``; of several in a ``stream``, one a line or each below ``---``."""
    text = json.dumps(document, indent=None if stream else 2, ensure_ascii=False, default=str)
    if output == "yaml":
        from ..operations.documents import to_yaml

        # The same members and values as in JSON, whatever the document is made of.
        text = ("---\n" if stream else "") + to_yaml(json.loads(text)).rstrip("\n")
    # A file's name, for instance, need not be UTF-8.
    print(text.encode("utf-8", "replace").decode("utf-8"), flush=stream)


def run_and_show(work: Callable[[], Awaitable[T]], show: Callable[[T], object]) -> T:
    """Run ``work``, show its result at once, and return it.

    The process may end seconds later: a session with a daemon of FRR's that has not answered yet stays open
    (:mod:`actors.lib.frr.daemon_socket`).
    """
    import trio

    async def main() -> T:
        result = await work()
        show(result)
        sys.stdout.flush()
        return result

    return trio.run(main)


def add_vrf(parser: argparse.ArgumentParser) -> None:
    """Add ``--vrf`` to a verb that acts inside the router."""
    parser.add_argument(
        "--vrf", metavar="NAME", help="in a VRF: its name, or a VNI's number or name (default: the underlay's side)"
    )


def complain(message: str) -> None:
    """Print one message to standard error, in the form that every tool uses."""
    print(f"openperouter: {message}", file=sys.stderr)


def note(message: str) -> None:
    """Print to standard error what is worth knowing but no error, unless ``--quiet`` is given."""
    if not is_quiet():
        complain(message)


def note_last(seen: CurrentStatus) -> None:
    """Say that what follows is the last status of a daemon that gives none now."""
    age = duration(time.time() - seen.status.updated_at)
    note(f"{seen.why}; what follows is its last status, {age} old. Forwarding continues without the daemon.")
    sys.stderr.flush()


def require_settings(settings_file: Path) -> None:
    """Raise :class:`CommandError` for a settings file that was named and does not exist; the default may be missing."""
    if settings_file == DEFAULT_SETTINGS:
        return
    try:
        settings_file.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise CommandError(f"{settings_file}: no such file", NO_INPUT) from None


def read_desired(settings_file: Path, *, all_problems: bool = False) -> DesiredState:
    """Return the desired state that files and saved API objects result in; print what the API contributed.

    Problems are printed as well, without ``all_problems`` only if there is no usable underlay: :class:`CommandError`.
    """
    from config.problems import errors

    from ..operations.node_configuration import read_all

    require_readable_settings(settings_file)
    read = read_all(settings_file, remembered=True)
    require_readable([read.settings.node_config_file, read.settings.configs_dir])
    if read.api is not None and read.api.snapshot is not None:
        objects = len(read.api.snapshot.objects)
        age = duration(time.time() - read.api.snapshot.synced_at)
        note(f"with {objects} saved API object{'' if objects == 1 else 's'}, {age} old")
    elif read.api_unusable:
        note(f"without API objects: {read.api_unusable}")
    wrong = errors(read.problems)
    for problem in read.problems if all_problems or read.desired is None else ():
        (complain if problem in wrong else note)(str(problem))
    if read.desired is None:
        raise CommandError(f"no usable configuration: {wrong[0]}", CONFIG)
    return read.desired
