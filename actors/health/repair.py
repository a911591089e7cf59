"""Repairs a VNI that does not work although FRR and the kernel are configured as desired.

:class:`Repairs` follows the faults from poll to poll. A fault that changing routes can cause counts only after it has
lasted for a while, so that a converging fabric raises no alarm. An L3VNI whose fault lies in FRR is bounced: FRR
removes that VNI and adds it again, while its devices, its host session and every other VNI stay as they are. This is
tried a few times with growing pauses, for a few VNIs at a time, and then not again until the configuration changes, FRR
restarts, or the VNI has worked for an hour. The netlink actor repairs the kernel; FRR may need a bounce afterwards,
since FRR 10.3 can miss that a device of the VNI was removed and created again.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from config.desired import DesiredState
from config.outcomes import Bounce
from config.problems import ResourceId

from .routes import VniFault

#: A fault that has lasted this many seconds is not transient: zebra takes in some 10 000 routes in that time.
LASTING_SECONDS: Final = 10.0
#: Pauses after each bounce, in seconds; their number is that of the attempts.
PAUSES: Final = (30.0, 120.0, 600.0)
#: After this many seconds without a fault, a VNI's attempts start from the first again.
FORGET_SECONDS: Final = 3600.0
#: How many VNIs are bounced at the same time: FRR needs seconds to remove and add hundreds.
AT_ONCE: Final = 50
#: The end of a message after the last attempt.
GIVEN_UP: Final = f" ({len(PAUSES)} times removed from FRR and added again, which did not help)"


@dataclass(frozen=True, slots=True)
class _Case:
    """One VNI's fault, uninterrupted ``since`` and last ``seen``; ``request`` stands until FRR has carried it out."""

    text: str
    since: float
    seen: float
    attempts: int = 0
    due: float = 0.0
    request: Bounce | None = None


class Repairs:
    """The faults of one generation. Times are those of trio's clock, in seconds."""

    def __init__(self) -> None:
        self._generation = 0
        self._cases: dict[ResourceId, _Case] = {}

    def forget(self) -> None:
        """Start over, with the first attempt for each VNI."""
        self._cases = {}

    def lasting(
        self, state: DesiredState, faults: Mapping[ResourceId, VniFault], now: float
    ) -> dict[ResourceId, VniFault]:
        """Update from one poll's faults; return those that count, with the state of their repair in their text."""
        if state.generation != self._generation:
            self._generation = state.generation
            self.forget()
        old = self._cases
        healed = {
            key: replace(case, text="", request=None)
            for key, case in old.items()
            if key not in faults and now - case.seen < FORGET_SECONDS
        }
        self._cases = healed | {key: _followed(old.get(key), fault.text, now) for key, fault in faults.items()}
        return {
            key: replace(fault, text=fault.text + GIVEN_UP) if _given_up(fault, self._cases[key], now) else fault
            for key, fault in faults.items()
            if not fault.passing or now - self._cases[key].since >= LASTING_SECONDS
        }

    def requests(
        self, state: DesiredState, repairable: AbstractSet[ResourceId], carried_out: frozenset[Bounce], now: float
    ) -> frozenset[Bounce]:
        """Return the bounces to ask for. ``repairable`` have a fault now that a bounce may help with."""
        for key, case in self._cases.items():
            if case.request in carried_out:
                self._cases[key] = replace(case, request=None)
        for vni in state.l3vnis:
            if vni.resource not in repairable or len(self._standing()) >= AT_ONCE:
                continue
            case = self._cases[vni.resource]
            lasts, left = now - case.since >= LASTING_SECONDS, case.attempts < len(PAUSES)
            if lasts and left and now >= case.due and case.request is None:
                # The numbers continue where those of another generation, or of this actor's last incarnation, ended.
                number = 1 + max((one.attempt for one in carried_out if one.vni == vni.vni), default=0)
                self._cases[vni.resource] = replace(
                    case,
                    attempts=case.attempts + 1,
                    due=now + PAUSES[case.attempts],
                    request=Bounce(vni.vni, number),
                )
        return self._standing()

    def _standing(self) -> frozenset[Bounce]:
        return frozenset(case.request for case in self._cases.values() if case.request is not None)


def _followed(case: _Case | None, text: str, now: float) -> _Case:
    if case is None:
        return _Case(text, now, now)
    return replace(case, text=text, since=case.since if case.text == text else now, seen=now)


def _given_up(fault: VniFault, case: _Case, now: float) -> bool:
    return fault.in_frr and case.attempts == len(PAUSES) and now >= case.due
