"""The files with which systemd runs FRR in podman's containers: ``openperouter generate quadlet`` or ``systemd``.

    image, node configuration ──> a pod, two containers, two drop-ins, a settings file ──> written, compared or removed

The pod and the containers are quadlets, or plain units made of them (:mod:`.plain_units`).

The pod joins the network namespace that openperouter-netns.service makes. Its containers share the PID namespace: FRR,
started by FRR's own scripts, and the reloader, the only one that runs vtysh. The directories have the same paths on the
host and in the containers, and the host's user and group names are mounted, so that FRR's user has the same number.
Images are never pulled: a node starts without a network.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from supervisor.process.atomic_file import sync_directory, write_atomic
from supervisor.version import VERSION

from ..exit_codes import USAGE, CommandError
from .plain_units import service_name, services

#: Quadlets, or plain units.
Kind = Literal["quadlet", "systemd"]
DEFAULT_IMAGE: Final = f"localhost/openperouter-router:{VERSION}"
QUADLETS: Final = "etc/containers/systemd"
POD: Final = f"{QUADLETS}/openperouter-router.pod"
FRR: Final = f"{QUADLETS}/openperouter-frr.container"
RELOADER: Final = f"{QUADLETS}/openperouter-reloader.container"
PLAIN: Final = "etc/systemd/system"
#: The file by which an installed kind is known, and which keeps the native FRR from starting.
POD_OF: Final[Mapping[Kind, str]] = {"quadlet": POD, "systemd": f"{PLAIN}/{service_name(POD)}"}
NATIVE_DROP_IN: Final = "etc/systemd/system/frr@perouter.service.d/openperouter-podman.conf"
DAEMON_DROP_IN: Final = "etc/systemd/system/openperouter.service.d/openperouter-podman.conf"
SETTINGS: Final = "etc/openperouter/conf.d/60-podman.yaml"
#: What starts the containers again and waits for them, and lets the daemon read the setting.
SERVICES: Final = "openperouter-router-pod openperouter-frr openperouter-reloader openperouter"
#: They hold no secret, and systemd warns of unit files that are executable or not readable by all.
_UNIT_MODE: Final = 0o644
_SETTINGS_MODE: Final = 0o640
#: A registry's host and path, then a tag or a digest: what podman takes, without what a unit file would interpret.
_REFERENCE: Final = re.compile(r"[a-z0-9][A-Za-z0-9._:/-]*(?:@sha256:[0-9a-f]{64})?")
_HEADER: Final = '# Written by "openperouter generate {}", which replaces this file; changes belong into drop-ins.\n'

#: What FRR's daemons keep (it does not start without SYS_ADMIN), and what watchfrr needs to start and end them: those
#: of the drop-in of frr@perouter.service.
_FRR_CAPABILITIES: Final = "NET_ADMIN NET_RAW NET_BIND_SERVICE SYS_ADMIN SETUID SETGID CHOWN FOWNER DAC_OVERRIDE KILL"
#: FRR's sockets are another user's and group's, whose number a unit cannot name; a daemon that hangs is ended.
_RELOADER_CAPABILITIES: Final = "DAC_OVERRIDE KILL"

_POD: Final = """\
[Unit]
Description=Pod of the router: FRR and its reloader in containers
Documentation=man:openperouter(8)
# Wants, so that nothing that happens to that unit stops the pod. It runs at each start and creates a missing namespace.
Wants=openperouter-netns.service
After=openperouter-netns.service local-fs.target
# The router provides the network that others wait for.
Before=openperouter.service network-online.target kubelet.service
# Always restart, however often it failed, but not at a boot without the package, which makes the namespace.
ConditionPathExists=|/run/netns/perouter
ConditionPathExists=|/usr/lib/systemd/system/openperouter-netns.service
StartLimitIntervalSec=0

[Quadlet]
# Else podman waits for network-online.target, which waits for the router.
DefaultDependencies=false

[Pod]
PodName=openperouter-router
Network=ns:/run/netns/perouter
# The reloader says what runs by the same numbers as FRR's PID files. The pod stays while its containers are restarted.
PodmanArgs=--share=+pid --exit-policy=continue

[Service]
# In which the reloader has its socket and its lock, and podman writes frr.pid.
RuntimeDirectory=openperouter-router
RuntimeDirectoryMode=0750
RuntimeDirectoryPreserve=yes
# Its daemons would have the same sockets and routes.
ExecStartPre=/usr/bin/systemctl stop frr@perouter.service
Restart=on-failure
RestartSec=1s
TimeoutStartSec=5min
# More than the containers' own.
TimeoutStopSec=90s

[Install]
WantedBy=multi-user.target
"""

_UNIT: Final = """\
[Unit]
Description={description}
Documentation=man:openperouter(8)
{after}Before=openperouter.service network-online.target kubelet.service
ConditionPathExists=|/run/netns/perouter
ConditionPathExists=|/usr/lib/systemd/system/openperouter-netns.service
StartLimitIntervalSec=0

[Quadlet]
DefaultDependencies=false

[Container]
ContainerName={name}
Image={image}
Pull=never
Pod=openperouter-router.pod
{options}\
Volume=/run/frr:/run/frr
Volume=/run/openperouter-router:/run/openperouter-router
# FRR's user and groups have other numbers on each machine, and the files' owners are the host's.
Volume=/etc/passwd:/etc/passwd:ro
Volume=/etc/group:/etc/group:ro
ReadOnly=true
NoNewPrivileges=true
DropCapability=all
AddCapability={capabilities}
LogDriver=journald
StopTimeout={stop_seconds}

[Service]
Restart=always
RestartSec=1s
TimeoutStartSec=5min
TimeoutStopSec={timeout_seconds}s
"""

_FRR_OPTIONS: Final = """\
# The host's PID of the container's first process, for those outside of the pod.
PodmanArgs=--pidfile=/run/openperouter-router/frr.pid --log-opt=tag=frr
# One descriptor per session, and up to 65535 dynamic neighbours.
Ulimit=nofile=100000:100000
Volume=/etc/frr/perouter:/etc/frr/perouter:ro
Volume=/var/lib/frr:/var/lib/frr
# The daemons log with syslog, as they do without a container.
Volume=/run/systemd/journal/dev-log:/dev/log
"""

_RELOADER_AFTER: Final = """\
# In a restart of the pod the sessions are down while FRR is: this stops before it and starts after it.
After=openperouter-frr.service
"""

_RELOADER_OPTIONS: Final = """\
Exec=/usr/bin/openperouter reloader
# Started means: it has its socket.
Notify=true
PodmanArgs=--log-opt=tag=openperouter-reloader
Volume=/etc/frr/perouter:/etc/frr/perouter:ro
"""

_NATIVE: Final = """\
[Unit]
# FRR runs in the pod of this file instead.
ConditionPathExists=!/{pod}
"""

_DAEMON: Final = """\
[Unit]
# Wants, not Requires: the daemon waits for what is missing.
Wants=openperouter-router-pod.service openperouter-frr.service openperouter-reloader.service
After=openperouter-router-pod.service openperouter-frr.service openperouter-reloader.service

[Service]
# In the sandbox, and the pod's as well: the locks in it are for both.
RuntimeDirectory=openperouter-router
"""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What differs between machines."""

    image: str = DEFAULT_IMAGE
    node_config: Path | None = None


def checked(image: str, node_config: Path | None) -> Parameters:
    """Return usable parameters. Raises :class:`CommandError` for an image or a path that a unit cannot have."""
    if not _REFERENCE.fullmatch(image):
        raise CommandError(f"--image {image}: expected a reference such as {DEFAULT_IMAGE}", USAGE)
    path = str(node_config or "/")
    if not path.startswith("/") or not path.isprintable() or ".." in Path(path).parts:
        raise CommandError(f"--node-config {path}: expected an absolute path without '..'", USAGE)
    return Parameters(image, node_config)


def texts(parameters: Parameters, kind: Kind = "quadlet") -> dict[str, str]:
    """Return the files' texts by their paths below ``/``."""
    frr = _UNIT.format(
        description="FRR of the router, in a container",
        name="openperouter-frr",
        image=parameters.image,
        after="",
        options=_FRR_OPTIONS,
        capabilities=_FRR_CAPABILITIES,
        stop_seconds=45,
        timeout_seconds=70,
    )
    reloader = _UNIT.format(
        description="Reloader of FRR's configuration, in a container",
        name="openperouter-reloader",
        image=parameters.image,
        after=_RELOADER_AFTER,
        options=_RELOADER_OPTIONS,
        capabilities=_RELOADER_CAPABILITIES,
        # It ends what it is doing first: supervisor.operations.router.reloader has the limit.
        stop_seconds=70,
        timeout_seconds=90,
    )
    units = {POD: _POD, FRR: frr, RELOADER: reloader}
    if kind == "systemd":
        units = {f"{PLAIN}/{name}": text for name, text in services(units).items()}
    native = _NATIVE.format(pod=POD_OF[kind])
    files = {**units, NATIVE_DROP_IN: native, DAEMON_DROP_IN: _DAEMON, SETTINGS: _settings(parameters)}
    return {name: _HEADER.format(kind) + text for name, text in files.items()}


def _settings(parameters: Parameters) -> str:
    text = "runtime: podman\n"
    if parameters.node_config is not None:
        # Single quotes: YAML interprets nothing in them but themselves.
        quoted = str(parameters.node_config).replace("'", "''")
        text += f"nodeConfigFile: '{quoted}'\n"
    return text


def paths(kind: Kind = "quadlet") -> tuple[str, ...]:
    """Return the paths of all files that the generator writes."""
    return tuple(texts(Parameters(), kind))


def refuse_both(kind: Kind, root: Path) -> None:
    """Raise :class:`CommandError` if the other kind is installed below ``root``: its units have the same names."""
    for other, pod in POD_OF.items():
        if other != kind and (root / pod).exists():
            fix = f"openperouter generate {other} --remove"
            raise CommandError(f"{root / pod} is of 'generate {other}', with units of the same names: {fix}", USAGE)


def differences(wanted: Mapping[str, str], root: Path) -> list[str]:
    """Return a unified diff from what is installed below ``root`` to what is wanted; empty when they are equal."""
    lines: list[str] = []
    for name, text in sorted(wanted.items()):
        path = root / name
        present = _read(path)
        if present != text:
            old = (present or "").splitlines(keepends=True)
            label = str(path) if present is not None else f"{path} (missing)"
            lines += (line.rstrip("\n") for line in difflib.unified_diff(old, text.splitlines(True), label, str(path)))
    return lines


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return None


def write(wanted: Mapping[str, str], root: Path) -> list[str]:
    """Write what differs, each file whole or not at all; return a line for each."""
    lines = []
    for name, text in wanted.items():
        path = root / name
        if path.is_symlink() or _read(path) != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text, mode=_SETTINGS_MODE if name == SETTINGS else _UNIT_MODE)
            lines.append(f"written: {path}")
    return lines


def remove(kind: Kind, root: Path) -> list[str]:
    """Remove the generator's files, for FRR without containers again; return a line for each that was there.

    Raises :class:`CommandError` for a file that this generator did not write.
    """
    present = {name: text for name in paths(kind) if (text := _read(root / name)) is not None}
    for name, text in present.items():
        if not text.startswith(_HEADER.format(kind).partition(",")[0]):
            raise CommandError(f"{root / name} was not written by this command: nothing is removed", USAGE)
    for name in present:
        (root / name).unlink()
        sync_directory((root / name).parent)
    return [f"removed: {root / name}" for name in present]
