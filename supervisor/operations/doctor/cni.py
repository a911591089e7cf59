"""Are the CNI plugins there that the underlay's interfaces need, and have they made these interfaces?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from actors.netlink.cni.protocol import programs
from config.settings import Settings

from .findings import Finding, error, ok
from .router import ConfigurationFiles, DaemonState, Network, is_running

PACKAGE = "containernetworking-plugins"


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plugin directory, and the names of the programs in it; empty when there is no such directory."""

    directory: Path
    names: frozenset[str]


def read_plugins(settings: Settings) -> Plugins:
    """Read the plugin directory."""
    directory = settings.cni_plugin_dir
    try:
        names = frozenset(path.name for path in directory.iterdir() if path.is_file() and os.access(path, os.X_OK))
    except (FileNotFoundError, NotADirectoryError):
        names = frozenset()
    return Plugins(directory, names)


def cni_plugins(configuration: ConfigurationFiles, cni: Plugins) -> Iterator[Finding]:
    """Is each plugin there that a configuration names?"""
    desired = configuration.desired
    if desired is None or desired.underlay is None or not desired.underlay.attachments:
        return
    wanted = {program for attachment in desired.underlay.attachments for program in programs(attachment)}
    missing = sorted(wanted - cni.names)
    if missing:
        yield error(
            "cni",
            f"{cni.directory} lacks the CNI plugins {', '.join(missing)}",
            f"apt-get install {PACKAGE}, or set cniPluginDir to the directory that has them",
        )
    else:
        yield ok("cni", f"{cni.directory} has {', '.join(sorted(wanted))}")


def cni_interfaces(
    configuration: ConfigurationFiles, network: Network, daemon: DaemonState | None = None
) -> Iterator[Finding]:
    """Are the interfaces in the router that plugins make?"""
    desired = configuration.desired
    for attachment in desired.underlay.attachments if desired is not None and desired.underlay is not None else ():
        name = attachment.name
        if network.router is not None and name in network.router.links:
            yield ok("cni", f"{name} is in the router")
        elif is_running(daemon):
            yield error("cni", f"{name} is not in the router although the daemon runs", "openperouter status says why")
        else:
            yield ok("cni", f"{name} is made when the daemon starts")


CHECKS = (cni_plugins, cni_interfaces)
