"""An underlay interface that a CNI plugin makes inside the router (CNI specification 1.0.0).

What is checked here is what every plugin needs. A plugin's own keys are known to the plugin alone, so they are kept as
they are written and its refusal names the interface.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from .base import Model
from .names import InterfaceName

#: The oldest version whose results have ``interfaces`` and ``ips`` as they are read here.
OLDEST_VERSION: Final = (1, 0, 0)
_VERSION: Final = re.compile(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})", re.ASCII)
_NETWORK: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*", re.ASCII)
#: A plugin's type is its file's name in the plugin directory, and must not lead out of it.
_PLUGIN: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*", re.ASCII)
#: More than any chain has; each plugin is a process.
_MAX_PLUGINS: Final = 16
#: Bytes of JSON: a configuration is written on the standard input of each of its plugins, and into the state directory.
_MAX_SIZE: Final = 64 * 1024
#: The IPAM plugin whose addresses are leases, and its key for the socket of the daemon that keeps them.
DHCP: Final = "dhcp"
DAEMON_SOCKET: Final = "daemonSocketPath"
_ANY_OBJECT: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def canonical(value: Any) -> str:
    """Return JSON data as text, the same for equal data however it was written. ValueError for what JSON lacks."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ValueError("must be plain JSON: objects, lists, texts, numbers, true, false") from None


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    text = canonical(value)
    if len(text) > _MAX_SIZE:
        raise ValueError(f"has {len(text)} bytes of JSON; at most {_MAX_SIZE} are accepted")
    plain: dict[str, Any] = json.loads(text)
    return plain


def _conflist(value: dict[str, Any]) -> dict[str, Any]:
    """Accept a network configuration list."""
    written = _plain(value)
    _check_version(written.get("cniVersion"))
    name = written.get("name")
    if not isinstance(name, str) or not _NETWORK.fullmatch(name):
        raise ValueError("name: must be a letter or digit followed by letters, digits, '_', '.' and '-'")
    plugins = written.get("plugins")
    if not isinstance(plugins, list) or not plugins:
        raise ValueError("plugins: must be a list of at least one plugin")
    if len(plugins) > _MAX_PLUGINS:
        raise ValueError(f"plugins: at most {_MAX_PLUGINS}")
    for index, plugin in enumerate(plugins):
        _check_plugin(plugin, f"plugins[{index}]")
    if not isinstance(written.get("disableCheck", False), bool):
        raise ValueError("disableCheck: must be true or false")  # noqa: TRY004 - pydantic's way
    return written


def _check_version(version: Any) -> None:
    found = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if found is None or tuple(map(int, found.groups())) < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise ValueError(f'cniVersion: must be "{oldest}" or later')


def _check_plugin(plugin: Any, where: str) -> None:
    if not isinstance(plugin, dict):
        raise ValueError(f"{where}: must be an object")  # noqa: TRY004 - pydantic's way
    kind, ipam = plugin.get("type"), plugin.get("ipam", {})
    if not isinstance(kind, str) or not _PLUGIN.fullmatch(kind):
        raise ValueError(f"{where}.type: must be the name of a plugin, which is a file in the plugin directory")
    capabilities = plugin.get("capabilities", {})
    if not isinstance(capabilities, dict) or not all(isinstance(one, bool) for one in capabilities.values()):
        raise ValueError(f"{where}.capabilities: must map names of capabilities to true or false")
    if not isinstance(ipam, dict):
        raise ValueError(f"{where}.ipam: must be an object")  # noqa: TRY004 - pydantic's way
    method = ipam.get("type")
    if method is not None and (not isinstance(method, str) or not _PLUGIN.fullmatch(method)):
        raise ValueError(f"{where}.ipam.type: must be the name of a plugin, which is a file in the plugin directory")
    if method == DHCP and DAEMON_SOCKET in ipam:
        raise ValueError(f"{where}.ipam.{DAEMON_SOCKET}: leave it out: the router runs a DHCP daemon of its own")


class CniDevice(Model):
    """An interface that CNI plugins make inside the router."""

    type: Literal["RawConfig"] = Field(description="Where the plugins' configuration is: RawConfig, in rawConfig.")
    raw_config: Annotated[dict[str, Any], AfterValidator(_conflist), WithJsonSchema(_ANY_OBJECT)] = Field(
        description="A CNI network configuration list (conflist) of version 1.0.0 or later: cniVersion, name, plugins."
    )
    interface_name: InterfaceName = Field(default="net1", description="Name of the interface inside the router.")
    runtime_config: Annotated[dict[str, Any], AfterValidator(_plain), WithJsonSchema(_ANY_OBJECT)] | None = Field(
        default=None,
        description="Values of capabilities (ips, mac ...): each plugin gets those that its capabilities declare.",
    )
