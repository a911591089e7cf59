"""What the loop of passes does between FRR's outcomes and the kernel's notifications."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from actors.netlink import actor
from actors.netlink.wire.namespace import NamespaceMissing
from actors.netlink.wire.socket import KernelRefusal
from config.outcomes import FrrOutcome, KernelOutcome
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader
from tests.actors.netlink.builders import l3vni, state

FIRST, SECOND = state(l3vnis=(l3vni(),)), state(generation=2, l3vnis=(l3vni("blue", 200),))


class LateReader(LatestReader[FrrOutcome]):
    """A reader whose task gets its turn after all others, once ``gate`` is set."""

    def __init__(self, cell: Latest[FrrOutcome]) -> None:
        super().__init__(cell)
        self.gate = trio.Event()
        self.gate.set()

    async def receive(self) -> FrrOutcome:
        await self.wait_pending()
        await self.gate.wait()
        return await super().receive()


@pytest.mark.parametrize(
    ("fault", "is_current", "leaves"),
    [
        (KernelRefusal(0, "10 dumps in a row were interrupted"), True, False),
        (KernelRefusal(0, "10 dumps in a row were interrupted"), False, True),
        (NamespaceMissing("netns perouter missing"), True, True),
    ],
)
async def test_leases_outlive_a_fault_of_a_namespace_that_stays(
    monkeypatch: pytest.MonkeyPatch, fault: Exception, *, is_current: bool, leaves: bool
) -> None:
    async def follow(loop: actor._ControlLoop) -> None:
        await trio.lowlevel.checkpoint()
        raise fault

    released: list[bool] = []
    monkeypatch.setattr(actor._ControlLoop, "_follow_router", follow)
    kernel = cast("Any", SimpleNamespace(router_is_current=lambda: is_current))
    dhcp = cast("Any", SimpleNamespace(release=lambda: released.append(True)))
    nothing, out = cast("Any", None), Latest[KernelOutcome]("kernel")
    loop = actor._ControlLoop(ActorContext("netlink"), kernel, nothing, nothing, trio.Lock(), out, 60.0, nothing, dhcp)
    await loop._pass(FrrOutcome(FIRST, applied=True))
    outcome = out.peek()
    assert outcome is not None
    assert outcome.error == str(fault)
    assert released == [True] * leaves


async def test_a_change_that_comes_while_frr_fails_is_repaired_without_an_audit(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []

    async def one_pass(loop: actor._ControlLoop, outcome: FrrOutcome) -> None:
        await trio.lowlevel.checkpoint()
        passes.append(outcome.desired.generation)
        loop.done_generation = outcome.desired.generation

    monkeypatch.setattr(actor._ControlLoop, "_pass", one_pass)
    frr, out, changing = Latest[FrrOutcome]("frr"), Latest[KernelOutcome]("kernel"), trio.Lock()
    reader, nothing = LateReader(frr), cast("Any", None)
    loop = actor._ControlLoop(ActorContext("netlink"), nothing, nothing, reader, changing, out, 60.0, nothing, nothing)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(loop.receive)
        nursery.start_soon(loop.run)
        frr.set(FrrOutcome(FIRST, applied=True))
        await trio.sleep(1)
        assert passes == [1]
        reader.gate = trio.Event()
        async with changing:
            loop.changed()
            await trio.sleep(1)
            frr.set(FrrOutcome(SECOND, applied=False, error="refused"))
        await trio.sleep(1)
        assert passes == [1]
        reader.gate.set()
        await trio.sleep(1)
        assert passes == [1, 1]
        await trio.sleep(60)
        assert passes == [1, 1]
        nursery.cancel_scope.cancel()
