"""``openperouter try --edit``: an editor on a copy of the router files, then its problems, its plan, and a trial.

The copy is in a directory of its own, which only root can read. It is kept unless its content is in force for good, so
that no work in it is lost.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError

from ...options import complain
from ...terminal import say
from . import plan

if TYPE_CHECKING:
    from config.settings import Settings

#: Tries a directory or files; returns the exit code.
Trying = Callable[[Sequence[Path]], int]


def edit_and_try(
    settings: Settings, settings_file: Path, names: Sequence[Path], trying: Trying, *, detach: bool = False
) -> int:
    """Edit all router files, or those with ``names``, until they are valid, and try them; return the exit code.

    On a terminal it asks before it tries. With ``detach``, ``trying`` returns while the trial is undecided. Raises
    :class:`CommandError`.
    """
    staging = Path(tempfile.mkdtemp(prefix="openperouter-edit-"))
    try:
        paths = _copy(settings.configs_dir, [_name(one, settings.configs_dir) for one in names], staging)
        code = _until_tried(settings, settings_file, paths, trying)
        # A trial that is undecided may still be reverted.
        if code is None or (code == exit_codes.OK and not detach):
            shutil.rmtree(staging)
    finally:
        if staging.exists() and any(staging.iterdir()):
            complain(f"what was edited is in {staging}; openperouter try {staging if not names else paths[0]} tries it")
        elif staging.exists():
            staging.rmdir()
    return exit_codes.OK if code is None else code


def _until_tried(settings: Settings, settings_file: Path, paths: Sequence[Path], trying: Trying) -> int | None:
    """Return the exit code; None if nothing was changed."""
    from supervisor.operations.candidate import gather

    while True:
        _edit(paths)
        candidate = gather(settings, paths)
        if not (candidate.changed or candidate.removed):
            say("nothing was changed")
            return None
        code = plan.show_candidate(candidate, settings, settings_file)
        if not sys.stdin.isatty():
            return code if code == exit_codes.CONFIG else trying(paths)
        if code == exit_codes.CONFIG:
            answer = _answer("Edit again? [Y/n] ", "y")
            if answer != "y":
                return code
        else:
            answer = _answer("Try this? [y/N, e to edit again] ", "n")
            if answer == "y":
                return trying(paths)
            if answer != "e":
                say("not tried; nothing has changed")
                return exit_codes.DEGRADED


def _answer(question: str, default: str) -> str:
    try:
        return (input(question).strip().lower() or default)[0]
    except EOFError:
        return "n"


def _name(path: Path, configs_dir: Path) -> str:
    """Return a router file's name; raise :class:`CommandError` for a file that is elsewhere."""
    from config.sources.static_files import is_router_file

    if path.parent not in (Path(), configs_dir) or not is_router_file(path.name):
        what = f"{path}: --edit takes names of router files in {configs_dir}, such as openpe_red.yaml, or none for all"
        raise CommandError(what, exit_codes.USAGE)
    return path.name


def _copy(configs_dir: Path, names: Sequence[str], staging: Path) -> list[Path]:
    """Copy files, or all of them; return the paths to try. A file that does not exist is begun as an empty one."""
    from config.sources.static_files import is_router_file
    from config.syntax.files import list_directory

    chosen = list(names) or [name for name in list_directory(configs_dir) if is_router_file(name)]
    if not chosen:
        what = f"{configs_dir} has no router file; give the name of a new one, or use openperouter init"
        raise CommandError(what, exit_codes.USAGE)
    for name in chosen:
        if (configs_dir / name).exists():
            shutil.copy(configs_dir / name, staging / name)
        else:
            (staging / name).touch(mode=0o600)
    return [staging / name for name in names] or [staging]


def _edit(paths: Sequence[Path]) -> None:
    """Run the user's editor on files, or on all files of a directory; raise :class:`CommandError` if it fails."""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "editor")
    files = sorted(paths[0].iterdir()) if paths[0].is_dir() else paths
    try:
        done = subprocess.run([*command, *map(str, files)], check=False)
    except OSError as error:
        what = f"the editor {command[0]} cannot be started: {error.strerror}; set EDITOR"
        raise CommandError(what, exit_codes.UNAVAILABLE) from None
    if done.returncode != 0:
        what = f"the editor {command[0]} ended with exit code {done.returncode}; nothing has changed"
        raise CommandError(what, exit_codes.DEGRADED)
