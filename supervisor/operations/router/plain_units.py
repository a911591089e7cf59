"""Quadlets as plain units that call podman: ``openperouter generate systemd``.

    openperouter-router.pod, openperouter-*.container ──> openperouter-router-pod.service, openperouter-*.service

The result is what podman's own generator makes of the same quadlets, with the same names, for a podman that has none; a
test compares it with that of podman 5.4. Only the keys that our quadlets have are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

_PODMAN: Final = "/usr/bin/podman"
_POD_ID: Final = "--pod-id-file=%t/%N.pod-id"
#: Sections of a quadlet that no unit has.
_OWN: Final = frozenset({"Pod", "Container", "Quadlet"})
#: Options with the value of a key, in the generator's order; what is not here has a place or a form of its own.
_BEFORE: Final = {"LogDriver": "--log-driver", "StopTimeout": "--stop-timeout", "Pull": "--pull", "Ulimit": "--ulimit"}

#: A key's values in a section, in the order of the lines.
Section = Mapping[str, list[str]]


def service_name(quadlet: str) -> str:
    """Return the unit that podman makes of a quadlet, of a file name or a path."""
    path = PurePosixPath(quadlet)
    return f"{path.stem}{'-pod' if path.suffix == '.pod' else ''}.service"


def services(quadlets: Mapping[str, str]) -> dict[str, str]:
    """Return the units' texts by their names, of quadlets by their file names: one pod, and its containers."""
    [pod] = [name for name in quadlets if name.endswith(".pod")]
    containers = [service_name(name) for name in quadlets if name != pod]
    return {
        service_name(name): _pod(text, containers) if name == pod else _container(text, service_name(pod))
        for name, text in quadlets.items()
    }


def _pod(text: str, containers: list[str]) -> str:
    keys = _section(text, "Pod")
    unit = ["RequiresMountsFor=%t/containers"]
    unit += [f"{key}={name}" for name in containers for key in ("Wants", "Before")]
    [name] = keys["PodName"]
    create = (
        *("pod", "create", "--infra-conmon-pidfile=%t/%N.pid", _POD_ID, "--exit-policy=stop", "--replace"),
        *("--network", *keys["Network"], "--infra-name", f"{name}-infra", "--name", name, *_words(keys, "PodmanArgs")),
    )
    service = [
        "SyslogIdentifier=%N",
        _command("ExecStart", ("pod", "start", _POD_ID)),
        _command("ExecStop", ("pod", "stop", _POD_ID, "--ignore", "--time=10")),
        _command("ExecStopPost", ("pod", "rm", _POD_ID, "--ignore", "--force")),
        _command("ExecStartPre", create),
        "Environment=PODMAN_SYSTEMD_UNIT=%n",
        "Type=forking",
        "PIDFile=%t/%N.pid",
    ]
    return _with(text, unit, service)


def _container(text: str, pod: str) -> str:
    keys = _section(text, "Container")
    mounted = [volume.partition(":")[0] for volume in keys["Volume"]]
    unit = [f"RequiresMountsFor={path}" for path in ("%t/containers", *mounted)]
    unit += [f"BindsTo={pod}", f"After={pod}"]
    remove = ("rm", "-v", "-f", "-i", "--cidfile=%t/%N.cid")
    service = [
        "Environment=PODMAN_SYSTEMD_UNIT=%n",
        "KillMode=mixed",
        _command("ExecStop", remove),
        _command("ExecStopPost", remove, prefix="-"),
        "Delegate=yes",
        "Type=notify",
        "NotifyAccess=all",
        "SyslogIdentifier=%N",
        _command("ExecStart", tuple(_run(keys, PurePosixPath(pod).stem))),
    ]
    return _with(text, unit, service)


def _run(keys: Section, pod: str) -> Iterator[str]:
    """Yield podman's arguments that run a container."""
    yield from ("run", "--name", *keys["ContainerName"], "--cidfile=%t/%N.cid", "--replace", "--rm")
    for key, option in _BEFORE.items():
        for value in keys.get(key, ()):
            yield from (option, value)
        if key == "LogDriver":
            yield "--cgroups=split"
    yield "--sdnotify=container" if keys.get("Notify") == ["true"] else "--sdnotify=conmon"
    yield "-d"
    if keys.get("NoNewPrivileges") == ["true"]:
        yield "--security-opt=no-new-privileges"
    for key, option in (("DropCapability", "--cap-drop"), ("AddCapability", "--cap-add")):
        for word in _words(keys, key):
            yield from (option, word.lower())
    if keys.get("ReadOnly") == ["true"]:
        yield "--read-only"
    for volume in keys["Volume"]:
        yield from ("-v", volume)
    yield from ("--pod-id-file", f"%t/{pod}.pod-id", *_words(keys, "PodmanArgs"), *keys["Image"], *_words(keys, "Exec"))


def _command(key: str, words: tuple[str, ...], prefix: str = "") -> str:
    """Return a directive with an option to the line, its value beside it."""
    lines = [f"{prefix}{_PODMAN}"]
    for word in words:
        if word.startswith("-"):
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return f"{key}=" + " \\\n    ".join(lines)


def _words(keys: Section, key: str) -> list[str]:
    return " ".join(keys.get(key, ())).split()


def _sections(text: str) -> dict[str, list[str]]:
    """Return a unit's lines by their sections, comments included; those before the first by the empty name."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    for line in text.splitlines():
        if line.startswith("["):
            name = line.strip("[]")
            found[name] = []
        elif line:
            found[name].append(line)
    return found


def _section(text: str, name: str) -> Section:
    keys: dict[str, list[str]] = {}
    for line in _sections(text)[name]:
        if not line.startswith("#"):
            key, _, value = line.partition("=")
            keys.setdefault(key, []).append(value)
    return keys


def _with(text: str, unit: list[str], service: list[str]) -> str:
    """Return a quadlet's text as a unit's: without podman's sections, with more lines of the others."""
    more = {"Unit": unit, "Service": service}
    parts = [
        "\n".join((f"[{name}]", *lines, *more.get(name, ())))
        for name, lines in _sections(text).items()
        if name and name not in _OWN
    ]
    return "\n\n".join(parts) + "\n"
