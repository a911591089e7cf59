"""Which EVPN routes a VNI imports, by route targets.

A target that FRR has derived, because none is configured, stands for each AS: bgpd compares its number alone, with
targets of the same encoding, so that nodes of several ASes import from one another (bgp_evpn.c,
``mask_ecom_global_admin``). What it shows as the VNI's target has the node's own AS. A derived target is encoded with
an AS of two bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from config.desired import DesiredL2VNI, DesiredL3VNI, DesiredState

#: The largest AS of two bytes.
_TWO_BYTES: Final = 0xFFFF


def derived_targets(state: DesiredState | None) -> frozenset[int]:
    """Return the VNIs whose import targets FRR derives. What raw snippets configure is unknown: with them, none."""
    if state is None or state.raw_frr:
        return frozenset()
    vnis: tuple[DesiredL3VNI | DesiredL2VNI, ...] = (*state.l3vnis, *state.l2vnis)
    return frozenset(vni.vni for vni in vnis if not vni.import_rts)


def imports(targets: Iterable[str], *, derived: bool) -> frozenset[str]:
    """Return what the routes that a VNI imports have among their :func:`keys`."""
    return frozenset(_any_as(target) or target for target in targets) if derived else frozenset(targets)


def keys(targets: Iterable[str]) -> Iterator[str]:
    """Yield what a route's targets match."""
    for target in targets:
        yield target
        if any_as := _any_as(target):
            yield any_as


def _any_as(target: str) -> str:
    """Return a target of any AS (``*:100``) for one with an AS of two bytes, else nothing."""
    administrator, _, number = target.rpartition(":")
    return f"*:{number}" if administrator.isdecimal() and int(administrator) <= _TWO_BYTES else ""
