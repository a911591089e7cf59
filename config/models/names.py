"""Names of devices and VRFs: their grammar, and the names that are not for users.

One Linux namespace has one flat set of device names, FRR calls VRFs by their device, and some words mean something else
to either. A name that passes here can clash only with another name that a user chose.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator

from .rules import Cel, Text

#: IFNAMSIZ less the terminating NUL.
MAX_NAME: Final = 15
_INTERFACE: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9._-]*", re.ASCII)
_VRF: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]*", re.ASCII)
#: BGP unnumbered accepts what the kernel does (dev_valid_name), less what could be taken for FRR syntax.
_NEIGHBOR: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._@+-]*", re.ASCII)
#: ``all`` and ``default`` are directories of the kernel's per-device settings; ``default`` is FRR's main VRF as well.
_RESERVED: Final = frozenset({"lo", "all", "default", "pt-host", "pt-ns", "pt-vrf"})
#: Devices that the router makes for itself: see the inventory of kernel objects (reference 4.1).
_GENERATED: Final = re.compile(r"(br-pe-|br-hs-|vni|host-e-|host-v-|pe-e-|host-s-|pe-s-)[0-9]+")
#: The same for the API server.
_NOT_RESERVED: Final = f"!(self in {sorted(_RESERVED)}) && !self.matches('^{_GENERATED.pattern}$')"


def is_reserved(name: str) -> bool:
    """Whether a device name belongs to the kernel, to FRR or to the devices that the router itself makes."""
    return name in _RESERVED or bool(_GENERATED.fullmatch(name))


def _check(name: str, grammar: re.Pattern[str], what: str, allowed: str) -> str:
    if not name:
        raise ValueError("must not be empty")
    if len(name) > MAX_NAME:
        raise ValueError(f"{what} has at most {MAX_NAME} characters in Linux; this one has {len(name)}")
    if not grammar.fullmatch(name):
        raise ValueError(f"{what} {allowed}")
    return name


def check_interface_name(name: str) -> str:
    """Accept the name of a network device that may be handed to the router."""
    _check(name, _INTERFACE, "an interface name", "must be a letter followed by letters, digits, '.', '_' and '-'")
    if is_reserved(name):
        raise ValueError(f"the interface name {name!r} is reserved")
    return name


def check_vrf_name(name: str) -> str:
    """Accept the name of a VRF, which is a device's name too."""
    _check(name, _VRF, "a VRF name", "must be a letter followed by letters, digits, '_' and '-'")
    if is_reserved(name):
        raise ValueError(f"the VRF name {name!r} is reserved")
    return name


def check_bridge_name(name: str) -> str:
    """Accept the name of a bridge of the user's own in the host.

    A name like ``br-hs-5`` is allowed unless the bridge of VNI 5 is managed (:mod:`config.resolve.overlays`).
    """
    _check(name, _VRF, "a bridge name", "must be a letter followed by letters, digits, '_' and '-'")
    if is_reserved(name) and not name.startswith("br-"):
        raise ValueError(f"the bridge name {name!r} is reserved")
    return name


def check_neighbor_interface(name: str) -> str:
    """Accept the device over which an unnumbered session runs."""
    return _check(name, _NEIGHBOR, "an interface name", "may only contain letters, digits, '.', '_', '@', '+' and '-'")


def _text(grammar: re.Pattern[str]) -> Text:
    return Text(pattern=f"^{grammar.pattern}$", min_length=1, max_length=MAX_NAME)


_UNRESERVED: Final = Cel(_NOT_RESERVED, "the name is reserved")

InterfaceName = Annotated[str, AfterValidator(check_interface_name), _text(_INTERFACE), _UNRESERVED]
VrfName = Annotated[str, AfterValidator(check_vrf_name), _text(_VRF), _UNRESERVED]
BridgeName = Annotated[
    str,
    AfterValidator(check_bridge_name),
    _text(_VRF),
    Cel(f"self.startsWith('br-') || ({_NOT_RESERVED})", "the name is reserved"),
]
NeighborInterface = Annotated[str, AfterValidator(check_neighbor_interface), _text(_NEIGHBOR)]
