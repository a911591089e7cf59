"""The routers of other nodes that may have this node's addresses, from their status objects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from config.api import INDEX_LABEL, NODE_STATUS_PLURAL, OtherRouter
from config.desired import RouterAddresses
from config.outcomes import NodeIdentity, StaticSnapshot
from tests.actors.crd_watch.bench import SYSTEM, Bench, running
from tests.fakes.api_server import path_of

#: Of each object of the server in memory.
CREATED = "2026-11-21T00:00:00Z"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running(tmp_path) as bench:
        bench.server.put_node()
        yield bench


def router(index: int, router_id: str, *, in_force: bool = True) -> dict[str, object]:
    """Return the status of a node's status object, and its label."""
    addresses = {"nodeIndex": index, "routerID": router_id, "tunnelEndpoints": ["100.65.0.5"]}
    return {"status": {"router": {**addresses, "inForce": in_force}}, "labels": {INDEX_LABEL: str(index)}}


def put_router(bench: Bench, name: str, *args: Any, **fields: Any) -> None:
    shown = router(*args, **fields)
    path = f"{path_of(NODE_STATUS_PLURAL, namespace=SYSTEM)}/{name}"
    bench.server.store(path, {"metadata": {"labels": shown["labels"]}, "status": shown["status"]})


async def test_the_routers_with_about_the_same_index_are_known(autojump_clock: MockClock, bench: Bench) -> None:
    for name, index in (("a", 0), ("b", 1), ("c", 2), ("node", 0)):
        put_router(bench, name, index, f"10.0.0.{index}")
    put_router(bench, "strange", 1, "")
    bench.server.objects[f"{path_of(NODE_STATUS_PLURAL, namespace=SYSTEM)}/strange"]["status"]["router"] = {"x": 1}
    bench.begin()
    snapshot = await bench.live()
    assert snapshot.others_of == 0
    assert snapshot.others == (
        OtherRouter("a", CREATED, RouterAddresses(0, "10.0.0.0", ("100.65.0.5",)), in_force=True),
        OtherRouter("b", CREATED, RouterAddresses(1, "10.0.0.1", ("100.65.0.5",)), in_force=True),
    )
    put_router(bench, "a", 7, "10.0.0.7")
    put_router(bench, "c", 1, "10.0.0.1", in_force=False)
    snapshot = await bench.until(lambda seen: {one.node for one in seen.others} == {"b", "c"})
    assert [one.in_force for one in snapshot.others] == [True, False]
    # Reports that say nothing new about the addresses cost nothing.
    published = len(bench.published)
    path = f"{path_of(NODE_STATUS_PLURAL, namespace=SYSTEM)}/b"
    bench.server.store(path, {**bench.server.objects[path], "status": {**bench.server.objects[path]["status"], "x": 1}})
    await trio.sleep(10)
    assert len(bench.published) == published


async def test_another_index_asks_for_other_routers(autojump_clock: MockClock, bench: Bench) -> None:
    for name, index in (("a", 0), ("far", 7)):
        put_router(bench, name, index, f"10.0.0.{index}")
    bench.begin()
    assert [one.node for one in (await bench.live()).others] == ["a"]
    bench.static.set(StaticSnapshot(NodeIdentity("node", 7), ()))
    snapshot = await bench.until(lambda seen: seen.others_of == 7)
    assert [one.node for one in snapshot.others] == ["far"]
    assert all(seen.live for seen in bench.published)
