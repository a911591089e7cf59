"""What CNI plugins are given and what they answer (CNI specification 1.0.0, sections 2 to 5). Pure.

A plugin gets parameters in its environment and its configuration as JSON on standard input, and answers with JSON on
standard output: a result, or an error with a code when its exit status is not 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from ipaddress import ip_interface
from pathlib import Path
from typing import Any, Final

from config.desired import CniAttachment, IPInterface
from config.models.cni import DAEMON_SOCKET, DHCP, canonical
from config.syntax.printable import one_line

#: Longest text of a plugin's answer that is quoted, in characters.
QUOTED: Final = 300
#: Codes that say that the plugin could not do its work, rather than what it found: incompatible version, invalid
#: environment, I/O, decoding, invalid configuration, try again later (section "Error").
_UNABLE: Final = frozenset({1, 4, 5, 6, 7, 11})
#: The IPAM plugins that reserve nothing for good: addresses are in the configuration, or leases, which end.
_STATELESS_IPAM: Final = frozenset({None, "static", DHCP})
#: Keys of a plugin's configuration that are for the runtime alone.
_RUNTIME_KEYS: Final = frozenset({"capabilities"})


class PluginError(Exception):
    """A plugin did not do what was asked; the message names it. ``unable``: it could not examine the interface."""

    def __init__(self, plugin: str, why: str, *, unable: bool) -> None:
        super().__init__(f"CNI plugin {plugin}: {why}")
        self.unable = unable


def environment(command: str, name: str, *, container: str, netns: Path, directory: Path) -> dict[str, str]:
    """Return a plugin's whole environment for one command (ADD, CHECK or DEL) on one interface."""
    return {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": container,
        "CNI_NETNS": str(netns),
        "CNI_IFNAME": name,
        "CNI_PATH": str(directory),
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }


def plugins_of(attachment: CniAttachment) -> tuple[str, ...]:
    """Return the plugins' types in the order in which ADD and CHECK call them."""
    return tuple(plugin["type"] for plugin in json.loads(attachment.conflist)["plugins"])


def programs(attachment: CniAttachment) -> frozenset[str]:
    """Return the names of the programs that the configuration needs: its plugins, and theirs for addresses."""
    plugins = json.loads(attachment.conflist)["plugins"]
    ipam = {plugin["ipam"]["type"] for plugin in plugins if plugin.get("ipam", {}).get("type")}
    return frozenset((*plugins_of(attachment), *ipam))


def checks(attachment: CniAttachment) -> bool:
    """Return whether the configuration allows CHECK."""
    return not json.loads(attachment.conflist).get("disableCheck", False)


def reserves(attachment: CniAttachment) -> bool:
    """Return whether a plugin may have reserved something outside of the interface that stays reserved."""
    plugins = json.loads(attachment.conflist)["plugins"]
    return any(plugin.get("ipam", {}).get("type") not in _STATELESS_IPAM for plugin in plugins)


def leasing(attachment: CniAttachment) -> tuple[int, ...]:
    """Return the indices of the plugins whose addresses are leases of a DHCP server."""
    plugins = json.loads(attachment.conflist)["plugins"]
    return tuple(index for index, plugin in enumerate(plugins) if plugin.get("ipam", {}).get("type") == DHCP)


def addresses_of(result: str) -> frozenset[IPInterface]:
    """Return the addresses of a result, none where it is not as the specification has it."""
    try:
        return frozenset(ip_interface(one["address"]) for one in json.loads(result).get("ips", ()))
    except (ValueError, TypeError, KeyError, AttributeError):
        return frozenset()


def plugin_input(attachment: CniAttachment, index: int, previous: str, daemon: Path | None = None) -> str:
    """Return one plugin's configuration: ``previous`` is the result so far as JSON, empty for none.

    Of the values of capabilities it gets those that it declares. ``daemon`` is the DHCP daemon's socket.
    """
    conflist: Mapping[str, Any] = json.loads(attachment.conflist)
    written: Mapping[str, Any] = conflist["plugins"][index]
    runtime: Mapping[str, Any] = json.loads(attachment.runtime)
    given = {key: runtime[key] for key, wanted in written.get("capabilities", {}).items() if wanted and key in runtime}
    content = {key: value for key, value in written.items() if key not in _RUNTIME_KEYS}
    content |= {"name": conflist["name"], "cniVersion": conflist["cniVersion"]}
    if given:
        content["runtimeConfig"] = given
    if daemon is not None and index in leasing(attachment):
        content["ipam"] = {**content["ipam"], DAEMON_SOCKET: str(daemon)}
    if previous:
        content["prevResult"] = json.loads(previous)
    return canonical(content)


def result_of(plugin: str, output: str) -> str:
    """Return a successful ADD's result. Raises :class:`PluginError` when it is malformed."""
    problem = PluginError(plugin, f"its result is not a JSON object: {one_line(output, QUOTED)}", unable=True)
    try:
        found = json.loads(output)
        text = canonical(found)
    except (ValueError, RecursionError):
        raise problem from None
    if not isinstance(found, dict):
        raise problem
    return text


def refusal(plugin: str, status: int, output: str, errors: str) -> PluginError:
    """Return why a plugin ended with an exit status other than 0."""
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("code"), int):
        how = f"exit status {status}" if status >= 0 else f"killed by signal {-status}"
        return PluginError(plugin, f"{how}: {one_line(errors or output, QUOTED)}", unable=True)
    words = [str(answer[key]) for key in ("msg", "details") if answer.get(key)]
    return PluginError(plugin, one_line(": ".join(words), QUOTED), unable=answer["code"] in _UNABLE)
