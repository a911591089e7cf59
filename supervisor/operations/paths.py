"""Where the daemon's files are, and its settings, which are slow to import and read only when they are needed."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .exit_codes import CONFIG, CommandError

if TYPE_CHECKING:
    from config.settings import Settings

DEFAULT_SETTINGS: Final = Path("/etc/openperouter/openperouter.yaml")
#: That of ``config.settings``, which takes too long to import for a path that is hardly ever changed.
DEFAULT_RUN_DIR: Final = Path("/run/openperouter")
CONTROL_SOCKET: Final = "control.sock"
STATE_FILE: Final = "state.json"
#: Exists if systemd is the init system (sd_booted(3)); in a container it is not.
SYSTEMD_BOOTED: Final = Path("/run/systemd/system")
#: As podman names them after the files that 'openperouter generate quadlet' writes.
POD_UNITS: Final = ("openperouter-router-pod.service", "openperouter-frr.service", "openperouter-reloader.service")
#: Finds more than the key, but not the commented example in every installation's settings.
_SETS_RUN_DIR: Final = re.compile(rb"^[^#\n]*run_?dir", re.IGNORECASE | re.MULTILINE)


def conf_d(settings_file: Path) -> Path:
    """Return the directory of settings fragments."""
    return settings_file.parent / "conf.d"


def run_dir(settings_file: Path) -> Path:
    """Return the daemon's runtime directory; the settings are only parsed if they mention it.

    Raises :class:`CommandError` when they do and are not usable.
    """
    fragments = sorted(conf_d(settings_file).glob("*.yaml")) if conf_d(settings_file).is_dir() else []
    for path in (settings_file, *fragments):
        if path.is_file() and _SETS_RUN_DIR.search(path.read_bytes()):
            return load_usable_settings(settings_file).run_dir
    return DEFAULT_RUN_DIR


def frr_units(settings: Settings) -> tuple[str, ...]:
    """Return the units of the router's FRR: that of the distribution, or the pod's and then its containers'."""
    if settings.runtime == "podman":
        return POD_UNITS
    return (f"frr@{settings.frr_pathspace}.service",)


def require_readable(paths: Iterable[Path]) -> None:
    """Raise PermissionError for the first path that exists but that this user may not read."""
    for path in paths:
        try:
            path.stat()
        except PermissionError:
            raise
        except OSError:
            # Missing, or a link that leads to itself: what reads the file says so.
            continue
        if not os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def require_readable_settings(settings_file: Path) -> None:
    """Raise PermissionError for the settings file, or a part of ``conf.d``, that this user may not read."""
    fragments = conf_d(settings_file)
    require_readable([settings_file, fragments])
    require_readable(sorted(fragments.glob("*.yaml")))


def load_usable_settings(settings_file: Path) -> Settings:
    """Return the settings; raise :class:`CommandError` with the first problem when they are not usable.

    Raises PermissionError when this user may not read them.
    """
    require_readable_settings(settings_file)
    from config.problems import errors
    from config.settings import load_settings

    settings, problems = load_settings(settings_file, conf_d(settings_file))
    if errors(problems):
        raise CommandError(f"the settings are not usable: {errors(problems)[0]}", CONFIG)
    return settings
