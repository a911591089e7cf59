"""Which tunnel endpoint a VNI uses."""

from __future__ import annotations

from collections.abc import Sequence

from config.desired import IPAddress, IPInterface

from .findings import RefusedError

_VERSIONS = {"IPv4": 4, "IPv6": 6}


def tunnel_address(wanted: str | None, vteps: Sequence[IPInterface]) -> IPAddress:
    """Return the local address of a VNI's tunnel: of the wanted family, else IPv4 before IPv6.

    Raises :class:`RefusedError` when the underlay has none.
    """
    if not vteps:
        raise RefusedError("the underlay has no tunnelEndpoint, which every VNI needs")
    if wanted is None:
        return min(vteps, key=lambda vtep: vtep.version).ip
    for vtep in vteps:
        if vtep.version == _VERSIONS[wanted]:
            return vtep.ip
    raise RefusedError(f"the underlay's tunnelEndpoint has no {wanted} network", "underlayAddressFamily")
