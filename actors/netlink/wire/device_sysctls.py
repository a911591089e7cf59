"""The sysctls that planning needs of one namespace: the given ones, and those of some devices as far as they matter."""

from __future__ import annotations

from collections.abc import Iterable

from ..planning.sysctls import GATEWAY, LAYER_2_MARK, LAYER_2_ONLY, Sysctls, sysctl_key
from .namespace import NamespaceHandle


def read_sysctls(
    handle: NamespaceHandle, keys: Iterable[str] = (), devices: Iterable[str] = (), bridges: Iterable[str] = ()
) -> Sysctls:
    """Return these sysctls, and of ``devices`` and ``bridges``, which may have gateways, what planning needs.

    A device without the mark of layer 2 has nothing to compare: one file a device is all that most of them cost.
    """
    name, mark = LAYER_2_MARK
    known, every = tuple(bridges), (*devices, *bridges)
    found = dict(handle.read_sysctls((*keys, *(sysctl_key(device, name) for device in every))))
    marked = [device for device in every if found[sysctl_key(device, name)] == mark]
    more = [sysctl_key(device, key) for device in ("default", *marked) for key, _ in LAYER_2_ONLY]
    more += [sysctl_key(device, key) for device in ("default", *known) for key, _ in GATEWAY]
    return {**found, **handle.read_sysctls(more)}
