"""What must hold, as pure functions over observations: each returns what is wrong, one line a violation.

The numbers are those of the invariants: 1 data plane monotonous, 2 convergence and then silence, 3 any prefix of a plan
leads to the same state, 4 isolation, 5 truthful status, 6 bounded, 7 nothing of others damaged. Number 3 follows from 2
and the kills; the bystander is 1 and 4 at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from actors.netlink.planning.observed import LinkKind, Namespace
from actors.netlink.planning.steps import CreateLink, DeleteLinks
from tests.fakes.frr import commands

Device = tuple[Namespace, str]
#: Devices of the tenant ``red`` and of its segment.
BYSTANDER: Final = frozenset(
    {
        *(
            (Namespace.ROUTER, name)
            for name in ("red", "br-pe-100", "vni100", "pe-e-100", "br-pe-110", "vni110", "pe-e-110")
        ),
        *((Namespace.HOST, name) for name in ("host-e-100", "host-e-110", "br-hs-110")),
    }
)
#: Log lines of one episode; a quiet minute has none, and a fault is reported when it begins and when it ends.
MOST_LOG_LINES: Final = 400
#: Requests to the API server a minute.
MOST_REQUESTS: Final = 300
#: How often the same is tried within :data:`RETRY_SECONDS` while it fails.
MOST_RETRIES: Final = 30
RETRY_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Router:
    """What the router is at one moment: the kernel without indices, FRR's lines, what the daemon wants and says."""

    kernel: Mapping[str, Any]
    frr: frozenset[str]
    desired: Any
    status: Mapping[str, Any]
    foreign: Mapping[Device, Any] = field(default_factory=dict)


@lru_cache(maxsize=256)
def frr_lines(text: str) -> frozenset[str]:
    """Return a configuration's lines, each with its contexts, but not the host's name, which FRR knows anyway."""
    lines = (" / ".join((*one.contexts, one.text)) for one in commands(text))
    return frozenset(line for line in lines if not line.startswith("hostname "))


@lru_cache(maxsize=256)
def of_bystander(lines: frozenset[str]) -> frozenset[str]:
    """Return the lines that belong to the tenant ``red`` alone."""
    own = (
        line for line in lines if line.partition(" / ")[0].endswith((" vrf red", "vrf red")) and "172.29" not in line
    )
    return frozenset(own)


def differences(found: Router, wanted: Router) -> Iterator[str]:
    """Yield how a router with a history differs from a new one with the same configuration."""
    if found.desired != wanted.desired:
        yield f"2: another desired state: {found.desired} instead of {wanted.desired}"
    yield from _differing("2: kernel", found.kernel, wanted.kernel)
    for line in sorted(found.frr ^ wanted.frr):
        yield f"2: FRR {'also has' if line in found.frr else 'lacks'} {line!r}"
    yield from _differing("5: status", found.status, wanted.status)
    yield from _differing("7: foreign", found.foreign, wanted.foreign)


def _differing(what: str, found: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> Iterator[str]:
    if found == wanted:
        return
    for key in sorted(found.keys() | wanted.keys(), key=str):
        if found.get(key) != wanted.get(key):
            yield f"{what}: {key} is {found.get(key)}, in a new router {wanted.get(key)}"


def before_frr(step: CreateLink | DeleteLinks, frr: Iterable[str], vrfs: Set[str]) -> Iterator[str]:
    """Yield that the kernel is ahead of FRR: a VXLAN device without bgpd's EVPN, a VRF deleted that FRR still uses."""
    is_vxlan = isinstance(step, CreateLink) and step.wanted.kind is LinkKind.VXLAN
    if is_vxlan and not any(line.endswith("advertise-all-vni") for line in frr):
        yield f"before FRR: {step}, and bgpd has no EVPN instance"
    if isinstance(step, DeleteLinks):
        for name in vrfs & set(step.names):
            if any(line.startswith(f"vrf {name} / vni ") for line in frr):
                yield f"before FRR: {step}, and FRR still has a VNI in VRF {name}"


def touched(devices: Iterable[Device], what: object) -> Iterator[str]:
    """Yield that a kernel write touches the bystander."""
    if hit := sorted(name for _, name in BYSTANDER.intersection(devices)):
        yield f"1, 4: the untouched tenant's {', '.join(hit)}: {what}"


def lost(before: frozenset[str], now: frozenset[str], what: str) -> Iterator[str]:
    """Yield that lines of the bystander are not there any more."""
    if missing := sorted(before - now):
        yield f"1, 4: the untouched tenant lost {missing[0]!r} and {len(missing) - 1} more lines of FRR: {what}"


def broken(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield that the bystander does not work: whatever else is wrong with a configuration, it is right."""
    for name in status["failures"]:
        if name.split("/")[-1].split()[-1] in ("red", "redseg"):
            yield f"4, 5: the untouched tenant's {name} does not work"


def misplaced(nic: str, links: Mapping[Device, object], *, plugged: bool) -> Iterator[str]:
    """Yield that a NIC is not in exactly one namespace although it is in the machine."""
    places = [namespace for namespace in Namespace if (namespace, nic) in links]
    if plugged and len(places) != 1:
        yield f"1: {nic} is in {' and '.join(places) or 'no namespace'}"


def torn(names: Iterable[str]) -> Iterator[str]:
    """Yield that a file which others read was written in place: killed in the middle, it is left torn."""
    yield from (f"3: {name} is torn: it was not written aside and renamed" for name in names if name[0] != ".")


def hurried(failed: Mapping[str, Sequence[float]], *, endless: bool) -> Iterator[str]:
    """Yield what was tried again too often. ``failed`` has the times at which each attempt failed, in order."""
    if endless:
        yield "6: work was followed by more work without a pause, and without an end"
    for what, times in failed.items():
        if any(late - early < RETRY_SECONDS for early, late in zip(times, times[MOST_RETRIES:], strict=False)):
            yield f"6: tried more than {MOST_RETRIES} times within {RETRY_SECONDS:g} s: {what}"


def bounded(log_lines: int, requests: int, minutes: float) -> Iterator[str]:
    """Yield what there is too much of."""
    if log_lines > MOST_LOG_LINES:
        yield f"6: {log_lines} log lines in {minutes:.0f} minutes"
    if requests > MOST_REQUESTS * (minutes + 1):
        yield f"6: {requests} API requests in {minutes:.0f} minutes"
