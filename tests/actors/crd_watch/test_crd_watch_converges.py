"""A property of the whole actor: after any sequence of faults the published state is the server's.

Meanwhile what existed all the time is in every snapshot, and nothing goes back to an older version.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from actors.lib.kube.errors import ApiError, UnreachableError, error_for
from config.api import PLURALS, ApiSnapshot
from config.desired import Secret
from config.problems import Kind
from tests.actors.crd_watch.bench import SYSTEM, Bench, running
from tests.fakes.api_server import FakeApiServer, not_found, path_of

KINDS = (Kind.UNDERLAY, Kind.L3VNI)
NAMES = ("x", "y")
ANCHORED = {"neighbors": [{"passwordSecret": "bgp"}]}
ERRORS: dict[str, Callable[[], ApiError]] = {
    "forbidden": lambda: error_for(403, "Forbidden", "no"),
    "gone": lambda: error_for(410, "Expired", "too old"),
    "busy": lambda: error_for(429, "TooManyRequests", "later", 3),
    "broken": lambda: error_for(500, "InternalError", "etcd"),
    "missing": not_found,
    "lost": lambda: UnreachableError("connection reset"),
    "unknown": lambda: error_for(401, "Unauthorized", "who?"),
}

_KIND = st.sampled_from(KINDS)
_STEP = st.one_of(
    st.tuples(st.just("put"), _KIND, st.sampled_from(NAMES), st.sampled_from([None, "a", "b"])),
    st.tuples(st.just("delete"), _KIND, st.sampled_from(NAMES)),
    st.tuples(st.just("label"), st.sampled_from("ab")),
    st.tuples(st.just("secret"), st.sampled_from(["first", "second"])),
    st.tuples(st.just("trouble"), st.sampled_from(sorted(ERRORS)), st.sampled_from(["list", "watch", ""])),
    st.tuples(st.just("calm")),
    st.tuples(st.just("break"), st.booleans()),
    st.tuples(st.just("restart"), st.floats(0, 30), st.booleans()),
    st.tuples(st.just("renew"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.floats(0.01, 30)),
)


def selector(zone: str | None) -> dict[str, Any]:
    return {} if zone is None else {"nodeSelector": {"matchLabels": {"zone": zone}}}


async def do(bench: Bench, step: tuple[Any, ...]) -> None:
    server = bench.server
    match step:
        case ("trouble", what, verb):
            server.trouble = lambda asked, _: ERRORS[what]() if verb in ("", asked) else None
        case ("calm",):
            server.start()
        case ("break", cleanly):
            server.break_watches(None if cleanly else UnreachableError("in the middle of an event"))
        case ("restart", seconds, forget):
            server.stop()
            await trio.sleep(seconds)
            server.start(forget=forget)
        case ("renew", number):
            bench.say_access(server.credentials(f"renewed-{number}"))
        case ("wait", seconds):
            await trio.sleep(seconds)
        case _:
            change(server, step)


def change(server: FakeApiServer, step: tuple[Any, ...]) -> None:
    match step:
        case ("put", kind, name, zone):
            server.put_kind(kind, name, selector(zone))
        case ("delete", kind, name):
            if path_of(PLURALS[kind], name, "default") in server.objects:
                server.delete_kind(kind, name)
        case ("label", zone):
            server.put_node(zone=zone)
        case ("secret", text):
            server.put_secret("bgp", text)


async def live_through(steps: list[tuple[Any, ...]], check: Callable[[Bench], None]) -> None:
    with tempfile.TemporaryDirectory() as state_dir:
        async with running(Path(state_dir)) as bench:
            server = bench.server
            server.put_node(zone="a")
            server.put_secret("bgp", "first")
            server.put_kind(Kind.UNDERLAY, "anchor", ANCHORED, namespace=SYSTEM)
            bench.begin()
            await bench.live()
            for step in steps:
                await do(bench, step)
            server.start()
            # The longest backoff of any reflector or probe, with its jitter.
            await trio.sleep(100)
            check(bench)


def expected(server: FakeApiServer) -> dict[tuple[str, str], str]:
    [node] = server.find("/nodes/")
    zone = node["metadata"]["labels"]["zone"]
    return {
        (plural, raw["metadata"]["name"]): raw["metadata"]["resourceVersion"]
        for plural in PLURALS.values()
        for raw in server.find(f"/{plural}/")
        if raw["spec"].get("nodeSelector", selector(zone)["nodeSelector"]) == selector(zone)["nodeSelector"]
    }


def content(snapshot: ApiSnapshot) -> dict[tuple[str, str], str]:
    return {(PLURALS[one.kind], one.name): one.resource_version for one in snapshot.objects}


def check(bench: Bench) -> None:
    last = bench.published[-1]
    assert content(last) == expected(bench.server)
    assert (last.live, last.not_followed) == (True, ())
    assert bench.ctx.facts["state"] == "watching"
    assert last.secrets == {(SYSTEM, "bgp", "password"): Secret(_password(bench.server))}
    versions: dict[tuple[str, str], int] = {}
    for snapshot in bench.published:
        there = content(snapshot)
        assert ("underlays", "anchor") in there
        assert all(int(version) >= versions.get(name, 0) for name, version in there.items())
        versions |= {name: int(version) for name, version in there.items()}
        assert all(secret is not None for secret in snapshot.secrets.values())
    assert len(bench.server.requests) < 3000


def _password(server: FakeApiServer) -> str:
    [secret] = server.find("/secrets/")
    return PASSWORDS[secret["data"]["password"]]


PASSWORDS = {"Zmlyc3Q=": "first", "c2Vjb25k": "second"}


@settings(max_examples=150)
@given(st.lists(_STEP, max_size=25))
def test_whatever_happens_it_converges(steps: list[tuple[Any, ...]]) -> None:
    trio.run(live_through, steps, check, clock=MockClock(autojump_threshold=0))
