"""``openperouter migrate``: router files in the spellings of today's schema."""

from __future__ import annotations

import argparse
import difflib
import stat
import sys
from pathlib import Path
from typing import Any

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError

from ...options import StoreFile, add_quiet, add_verb, complain
from ...terminal import is_quiet


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "migrate",
        run,
        summary="rewrite files from the spellings of earlier versions of OpenPERouter",
        description="Rewrite router files in place from the spellings of OpenPERouter 0.1 and 0.2.0, which are read "
        "with a warning, to today's. Everything else in a file stays as it is, with its comments, mode and "
        "owner. A file that cannot be rewritten safely is left alone. Prints what it changes. Exits with 0 when all "
        "files are in today's spellings now, and with 78 when one could not be rewritten.",
    )
    parser.add_argument("files", nargs="+", type=Path, action=StoreFile, metavar="FILE", help="files to rewrite")
    parser.add_argument("--check", action="store_true", help="only print the changes; exits with 2 when there are any")
    add_quiet(parser, "print errors only, and no changes")


def run(arguments: argparse.Namespace) -> int:
    """Rewrite the files one by one, each whole or not at all."""
    codes = [_migrate(path, only_check=arguments.check) for path in arguments.files]
    return exit_codes.CONFIG if exit_codes.CONFIG in codes else max(codes)


def _migrate(path: Path, *, only_check: bool) -> int:
    from config.syntax.files import UnreadableFileError, read_bounded
    from config.syntax.yaml_reader import MAX_BYTES, InvalidYamlError
    from supervisor.operations.bundle import Redactor
    from supervisor.operations.migration import MigrationError, migrated
    from supervisor.process.atomic_file import write_atomic

    try:
        content, _ = read_bounded(path, MAX_BYTES)
        new = migrated(content, str(path))
    except FileNotFoundError:
        raise CommandError(f"{path}: no such file", exit_codes.NO_INPUT) from None
    except (UnreadableFileError, InvalidYamlError, MigrationError) as error:
        if isinstance(error, UnreadableFileError) and error.denied:
            raise
        complain(str(error))
        return exit_codes.CONFIG
    old = content.decode("utf-8-sig")
    if new == old:
        return exit_codes.OK
    if not is_quiet():
        before, after = (text.splitlines(keepends=True) for text in (old, new))
        difference = "".join(difflib.unified_diff(before, after, str(path), str(path), n=1))
        # A password may be on one line with what is changed.
        sys.stdout.write(Redactor([]).clean(difference))
    if only_check:
        return exit_codes.PENDING
    # A symbolic link stays one: its target is the file.
    target = path.resolve()
    status = target.stat()
    write_atomic(target, new, mode=stat.S_IMODE(status.st_mode), owner=(status.st_uid, status.st_gid))
    return exit_codes.OK
