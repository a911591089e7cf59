"""What the running FRR cannot do for a desired state. Pure.

Inputs are FRR's version and a state; outputs are the resources that this FRR does not support, each with the version
that it needs, and the state without them, which is applied. FRR itself accepts the configuration, but the network does
not work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from config.desired import DesiredL2VNI, DesiredL3VNI, DesiredState, ResourceFailure
from config.problems import Reason

#: The first FRR whose zebra reads a VXLAN device's IPv6 address (IFLA_VXLAN_LOCAL6; FRR pull request 19721). An older
#: one takes the endpoint for 0.0.0.0 and announces the router ID in its place.
IPV6_TUNNELS: Final = (10, 6)
IPV6_ADVICE: Final = "install FRR 10.6 or newer, or give the underlay an IPv4 tunnel endpoint"

VNI = DesiredL3VNI | DesiredL2VNI


def vnis_over_ipv6(desired: DesiredState) -> tuple[VNI, ...]:
    """Return the VNIs whose tunnel endpoint is an IPv6 address."""
    vnis: Iterable[VNI] = (*desired.l3vnis, *desired.l2vnis)
    return tuple(vni for vni in vnis if vni.vtep.version == 6)


def has_ipv6_tunnels(version: str) -> bool:
    """Return whether an FRR of this version can use them; an unknown version counts as a new one."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is None or (int(found[1]), int(found[2])) >= IPV6_TUNNELS


def supported(desired: DesiredState, version: str) -> tuple[DesiredState, tuple[ResourceFailure, ...]]:
    """Return the part of a state that an FRR of this version can carry out, and why not the rest."""
    refused = () if has_ipv6_tunnels(version) else vnis_over_ipv6(desired)
    if not refused:
        return desired, ()
    rest = replace(
        desired,
        l3vnis=tuple(vni for vni in desired.l3vnis if vni not in refused),
        l2vnis=tuple(vni for vni in desired.l2vnis if vni not in refused),
    )
    return rest, tuple(_failure(vni, version) for vni in refused)


def _failure(vni: VNI, version: str) -> ResourceFailure:
    message = f"FRR {version} cannot use the IPv6 tunnel endpoint {vni.vtep}: {IPV6_ADVICE}"
    return ResourceFailure(vni.resource, Reason.FRR_CONFIGURATION_FAILED, message, vni.origin)
