"""Where the metrics' file is, and who may read it.

It names tenants and peers, like the state file, so it is not for every user of the node: besides root only the group of
its directory can read it, or node_exporter's where the directory is root's, as Debian's package has it.
"""

from __future__ import annotations

import grp
import os
from pathlib import Path
from typing import Final

from config.settings import Settings

#: The directory that Debian's node_exporter reads (its README.textfile).
COLLECTOR: Final = Path("/var/lib/prometheus/node-exporter")
COLLECTOR_GROUP: Final = "prometheus"
MODE: Final = 0o640
DIRECTORY_MODE: Final = 0o750
_NAME: Final = "openperouter.prom"
#: In ``runDir``. A directory with nothing else in it can be mounted into a pod without the control socket.
_OWN_DIRECTORY: Final = "metrics"


def textfile(settings: Settings, collector: Path = COLLECTOR) -> Path:
    """Return the file: the one of the settings, else node_exporter's if it can be written, else one in ``runDir``.

    Only the installed daemon uses node_exporter's directory by itself: an instance with a ``runDir`` of its own would
    replace its metrics.
    """
    choices = candidates(settings, collector)
    return next(
        (path for path in choices[:-1] if settings.metrics_file or os.access(path.parent, os.W_OK)), choices[-1]
    )


def candidates(settings: Settings, collector: Path = COLLECTOR) -> tuple[Path, ...]:
    """Return the files that a daemon with these settings may have written, the preferred one first."""
    if settings.metrics_file is not None:
        return (settings.metrics_file,)
    installed = settings.run_dir == Settings.model_fields["run_dir"].default
    return (*((collector / _NAME,) if installed else ()), settings.run_dir / _OWN_DIRECTORY / _NAME)


def reader(path: Path) -> int:
    """Return the group that may read a file. Raises ``OSError`` if its directory is missing."""
    group = path.parent.stat().st_gid
    if group == 0:
        try:
            group = grp.getgrnam(COLLECTOR_GROUP).gr_gid
        except KeyError:
            group = os.getgid()
    return group if os.getuid() == 0 else os.getgid()
