"""What all verbs share: the settings option, where the daemon's files are, and how to complain."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import ClassVar, Final

from ..operations.exit_codes import CONFIG

DEFAULT_SETTINGS: Final = Path("/etc/openperouter/openperouter.yaml")
#: That of ``config.settings``, which takes too long to import for a path that hardly anybody changes.
DEFAULT_RUN_DIR: Final = Path("/run/openperouter")
CONTROL_SOCKET: Final = "control.sock"
STATE_FILE: Final = "state.json"
#: Errs on the side of reading the settings properly, but not for the commented example that every installation has.
_SETS_RUN_DIR: Final = re.compile(rb"^[^#\n]*run_?dir", re.IGNORECASE | re.MULTILINE)


class CommandError(Exception):
    """A command cannot do what it was asked; the text is for the user."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def complain(message: str) -> None:
    """Print one message to standard error, in the form that every tool has."""
    print(f"openperouter: {message}", file=sys.stderr)


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
        """Store what :mod:`argparse` has made of the words."""
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


def conf_d(settings_file: Path) -> Path:
    """Return the directory of settings fragments."""
    return settings_file.parent / "conf.d"


def run_dir(settings_file: Path) -> Path:
    """Return the daemon's runtime directory without reading the settings where they cannot say anything about it.

    Raises :class:`CommandError` when they do and are not usable.
    """
    fragments = sorted(conf_d(settings_file).glob("*.yaml")) if conf_d(settings_file).is_dir() else []
    for path in (settings_file, *fragments):
        if path.is_file() and _SETS_RUN_DIR.search(path.read_bytes()):
            return _read_run_dir(settings_file)
    return DEFAULT_RUN_DIR


def _read_run_dir(settings_file: Path) -> Path:
    from config.problems import errors
    from config.settings import load_settings

    settings, problems = load_settings(settings_file, conf_d(settings_file))
    if errors(problems):
        raise CommandError(f"the settings are not usable: {errors(problems)[0]}", CONFIG)
    return settings.run_dir
