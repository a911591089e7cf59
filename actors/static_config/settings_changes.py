"""What the settings' files say now that the running daemon does not do: settings are read at start only.

A reload that said nothing of them would be taken for one that has put them in force.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from config.problems import Origin, Problem, Reason, Severity, errors
from config.settings import Settings, load_settings

_IN_FORCE: Final = "the daemon goes on with the settings that it was started with"


def settings_problems(settings_file: Path, running: Settings) -> tuple[Problem, ...]:
    """Return a warning that names the settings that need a restart, or the errors that such a restart would end with.

    ``settings_file`` has its ``conf.d`` beside it. Never raises.
    """
    now, problems = load_settings(settings_file, settings_file.parent / "conf.d")
    if errors(problems):
        in_force = f"{_IN_FORCE}; it could not be started with these"
        return tuple(replace(problem, in_force=in_force) for problem in errors(problems))
    names = list(changed(running, now))
    if not names:
        return ()
    message = f"restart needed for: {', '.join(names)}"
    place = Origin(path=str(settings_file))
    return (Problem(message, place, severity=Severity.WARNING, reason=Reason.FILE_INVALID, in_force=_IN_FORCE),)


def changed(running: Settings, now: Settings) -> Iterator[str]:
    """Yield the keys, as in files, of settings with another value."""
    for name, info in Settings.model_fields.items():
        if getattr(running, name) != getattr(now, name):
            yield info.alias or name
