"""What all verbs share: the settings option, and how to print an error."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ..operations.paths import DEFAULT_SETTINGS
from .terminal import duration

if TYPE_CHECKING:
    from ..operations.node_configuration import Configuration


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
        help=f"the daemon's settings, with conf.d beside it (default: {DEFAULT_SETTINGS})",
    )


def complain(message: str) -> None:
    """Print one message to standard error, in the form that every tool uses."""
    print(f"openperouter: {message}", file=sys.stderr)


def note_api(read: Configuration) -> None:
    """Print to standard error what the API contributed to a configuration."""
    if read.api is not None and read.api.snapshot is not None:
        objects = len(read.api.snapshot.objects)
        age = duration(time.time() - read.api.snapshot.synced_at)
        complain(f"with {objects} saved API object{'' if objects == 1 else 's'}, {age} old")
    elif read.api_unusable:
        complain(f"without API objects: {read.api_unusable}")
