"""The one way that only a filter closes: VXLAN from the host's end of the passthrough. Pure.

The passthrough is in the default VRF, with the tunnel endpoints, because the host is to reach the fabric. Any program
that can send there could so put frames into any VNI, here or on another node: VXLAN does not authenticate. Everything
else is kept apart without a filter (:mod:`.sysctls`). The rules are in a table of our own in the router's namespace; no
other table is looked at.

A kernel or a machine without nftables has the passthrough nonetheless, and the status names it as not filtered.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from config.desired import ResourceFailure
from config.problems import Reason

from .observed import PASSTHROUGH_ROUTER, Observed
from .steps import ReplaceFilter, Step, attributed
from .wanted import KernelModel

#: Family and name of our table.
TABLE: Final = {"family": "inet", "name": "openperouter"}
_HOOKS: Final = ("input", "forward")

#: Objects in nft's own JSON (libnftables-json(5)), without handles.
Objects = list[dict[str, Any]]


def filter_objects(ports: Iterable[int]) -> Objects:
    """Return our table for these VXLAN ports, its chains and rules; nothing for no port."""
    wanted = tuple(ports)
    if not wanted:
        return []
    inside = {"family": TABLE["family"], "table": TABLE["name"]}
    kind = {"type": "filter", "prio": 0, "policy": "accept"}
    return [
        {"table": TABLE},
        *({"chain": {**inside, "name": hook, "hook": hook, **kind}} for hook in _HOOKS),
        *({"rule": {**inside, "chain": hook, "expr": _drop(port)}} for hook in _HOOKS for port in wanted),
    ]


def _drop(port: int) -> Objects:
    """Return a rule's expressions. UDP's port is in the first fragment: without that, no packet comes together."""
    device = {"meta": {"key": "iifname"}}
    to_port = {"payload": {"protocol": "udp", "field": "dport"}}
    return [
        {"match": {"op": "==", "left": device, "right": PASSTHROUGH_ROUTER}},
        {"match": {"op": "==", "left": to_port, "right": port}},
        {"drop": None},
    ]


def canonical(objects: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """Return objects, as nft lists them, in a form that compares: without handles and what is about nft itself."""
    plain = (
        {kind: {key: value for key, value in body.items() if key != "handle"}}
        for one in objects
        for kind, body in one.items()
        if kind != "metainfo"
    )
    return tuple(json.dumps(one, sort_keys=True) for one in plain)


def filter_steps(model: KernelModel, observed: Observed) -> Iterator[Step]:
    """Yield the replacement of our table if it differs, in one transaction; nothing while it cannot be read."""
    if observed.filter is not None and observed.filter != canonical(filter_objects(model.filtered_ports)):
        step = ReplaceFilter(model.filtered_ports, vital=False)
        yield from attributed([step], model.passthrough, "packet filter")


def unfiltered(model: KernelModel, observed: Observed) -> tuple[ResourceFailure, ...]:
    """Return what is in force without the filter that it should have."""
    if model.passthrough is None or not model.filtered_ports or not observed.filter_problem:
        return ()
    message = (
        f"in force, but VXLAN packets from the host are not filtered: {observed.filter_problem}; "
        "until then programs on the host can send into every VNI"
    )
    return (model.failure(model.passthrough, Reason.OVERLAY_ATTACHMENT_FAILED, message),)
