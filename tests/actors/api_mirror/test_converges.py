"""Whatever happens on the way, in the end the API shows the files, and then there is silence."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from actors.api_mirror.planning import mirrors, plan, renamed
from actors.lib.kube.errors import UnreachableError, error_for
from actors.lib.kube.mirror_signature import proof
from config.api import SOURCE_LABEL
from config.settings import Settings

from .bench import Bench
from .examples import NODE, blue, broken, files, red, unknown

USERS = {"name": "mine", "namespace": "ns", "labels": {SOURCE_LABEL: "static"}}
ERRORS = [error_for(code, "", "no") for code in (401, 403, 404, 409, 422, 429, 500)] + [UnreachableError("no")]
READINGS = [
    (), (red(),), (red(vni=5),), (red(pool="198.51.100.0/24"),), (broken(red()), blue()), (red(), blue()),
    (unknown("/c/openpe_a.yaml"), blue()),
]  # fmt: skip
EDITS: list[Any] = [
    lambda one: one["spec"].update(vni=7),
    lambda one: one["spec"].update(nodeSelector={"matchLabels": {"kubernetes.io/hostname": "other"}}),
    lambda one: one["metadata"].pop("labels", None),
    lambda one: one["metadata"].pop("annotations", None),
    lambda one: one["metadata"].pop("ownerReferences", None),
]
STEPS = st.one_of(
    st.tuples(st.just("files"), st.sampled_from(READINGS)),
    st.tuples(st.just("edit"), st.sampled_from(EDITS)),
    st.tuples(st.just("remove"), st.none()),
    st.tuples(st.just("fault"), st.sampled_from([None, *ERRORS])),
    st.tuples(st.just("watching"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([1, 20, 400])),
)


@settings(max_examples=150)
@given(st.lists(STEPS, max_size=12), st.sampled_from(READINGS))
def test_it_converges_and_falls_silent(steps: list[tuple[str, Any]], last: tuple[Any, ...]) -> None:
    with tempfile.TemporaryDirectory() as state:
        trio.run(scenario, Path(state), steps, last, clock=MockClock())


async def scenario(state: Path, steps: list[tuple[str, Any]], last: tuple[Any, ...]) -> None:
    bench = Bench(Settings(state_dir=state, namespace="ns"))
    bench.server.put_manifest({"kind": "L3VNI", "metadata": USERS, "spec": {"vrf": "mine", "vni": 9}})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.start)
        for name, argument in steps:
            await take(bench, name, argument)
        await take(bench, "fault", None)
        await take(bench, "watching", True)
        await bench.files(*last)
        for _ in range(12):
            await bench.later(400)
        check(bench, last)
        sent = len(bench.server.requests)
        await bench.later(3600)
        assert len(bench.server.requests) == sent
        nursery.cancel_scope.cancel()


async def take(bench: Bench, name: str, argument: Any) -> None:
    others = [one for one in bench.names() if one != "mine"]
    match name:
        case "files":
            await bench.files(*argument)
        case "edit" if others:
            bench.server.edit(others[0], argument)
        case "remove" if others:
            bench.server.remove(others[0])
        case "fault":
            bench.server.trouble = lambda verb, path: argument
        case "watching":
            bench.watching = argument
            bench.watch()
        case "wait":
            await bench.later(argument)
    await bench.settle()


def check(bench: Bench, last: tuple[Any, ...]) -> None:
    static = files(*last)
    snapshot = bench.snapshot()
    names = renamed(static, snapshot, ())
    wanted = mirrors(static, NODE, lambda resource: proof(bench.key, resource), names)
    assert plan(static, wanted, snapshot).changes == ()
    assert set(wanted) <= {one.id for one in snapshot.mirrored}
    assert [one["spec"]["vni"] for one in bench.server.objects.values() if one["metadata"]["name"] == "mine"] == [9]
