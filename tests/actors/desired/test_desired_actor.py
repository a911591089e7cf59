"""Publishing what is decided, and remembering on disk what was accepted."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.desired.actor import run
from actors.desired.snapshot_store import REFRESH_SECONDS
from config.api import ApiObject, ApiSnapshot, NotFollowed, WatchFailure
from config.desired import DesiredState, Secret
from config.outcomes import NodeIdentity, StaticSnapshot
from config.problems import Kind, Severity
from config.resolve.host_networks import HostNetwork
from config.settings import Settings
from config.store.api_snapshot_file import SavedSnapshot, from_json, to_json
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest

from .examples import OWN, api_l3vni, api_underlay, cluster, files, l3vni, underlay

PASSWORD = "correct-horse"
#: Seconds; a write takes milliseconds on a quiet machine.
PATIENCE = 60.0


@dataclass
class Bench:
    """The actor with its channels and its disk; each call of :meth:`life` is one process."""

    directory: Path
    static: Latest[StaticSnapshot] = field(default_factory=lambda: Latest("static"))
    api: Latest[ApiSnapshot] = field(default_factory=lambda: Latest("api"))
    forget: Latest[int] = field(default_factory=lambda: Latest("forget_api"))
    out: Latest[DesiredState] = field(default_factory=lambda: Latest("desired"))
    #: What the running router has in the kernel.
    in_kernel: set[str] = field(default_factory=set)
    ctx: ActorContext | None = None
    networks: tuple[HostNetwork, ...] = ()
    readings: int = 0
    #: Settings beside those of the directories.
    options: dict[str, Any] = field(default_factory=dict)

    def read_networks(self) -> tuple[HostNetwork, ...]:
        self.readings += 1
        return self.networks

    @property
    def file(self) -> Path:
        return self.directory / "api-snapshot.json"

    @property
    def spare(self) -> Path:
        return self.directory.parent / "run" / "api-snapshot.json"

    async def life(self) -> None:
        self.ctx = ActorContext("desired")
        await run(
            self.ctx,
            settings=Settings(state_dir=self.directory, run_dir=self.spare.parent, **self.options),
            snapshots=self.static.reader(),
            api=self.api.reader(),
            forget_api=self.forget.reader(),
            out=self.out,
            removes=self.removes,
            networks=self.read_networks,
            clock=lambda: 5000.0 + trio.current_time(),
        )

    def waits(self) -> bool:
        """Whether the actor says that it waits."""
        return self.ctx is not None and "waiting_for" in self.ctx.facts

    async def removes(self, state: DesiredState) -> bool:
        """Return whether the kernel would lose something."""
        return not self.in_kernel <= {vni.vrf for vni in state.l3vnis}

    async def settles(self, done: Callable[[], object]) -> None:
        """Wait until something holds and then until nothing moves: disks are worked on in threads."""
        with trio.fail_after(60):
            while not done():
                await trio.lowlevel.checkpoint()
        await wait_all_tasks_blocked()

    def published(self) -> DesiredState:
        state = self.out.peek()
        assert state is not None
        return state

    def vrfs(self) -> list[str]:
        return [vni.vrf for vni in self.published().l3vnis]

    def remembered(self) -> SavedSnapshot:
        return from_json(self.file.read_text())

    def remembers(self) -> list[str]:
        snapshot = self.remembered().snapshot
        return [one.name for one in snapshot.objects] if snapshot else []

    def moment(self) -> float:
        """Until when the memory is known to have been true."""
        snapshot = self.remembered().snapshot if self.file.exists() else None
        return snapshot.synced_at if snapshot else 0.0

    async def remembers_moment(self, done: Callable[[float], bool]) -> None:
        # In real time: the virtual clock runs on while a thread writes, however long that takes on a busy machine.
        deadline = time.monotonic() + PATIENCE
        while not done(self.moment()):
            assert time.monotonic() < deadline
            await trio.sleep(1)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    for name in ("state", "run"):
        (tmp_path / name).mkdir()
    return Bench(tmp_path / "state")


def reborn(bench: Bench) -> Bench:
    """The node after a restart: what was in channels is gone, and the router works on as it was."""
    return Bench(bench.directory, in_kernel=set(bench.vrfs()))


async def run_until(bench: Bench, done: Callable[[], object]) -> None:
    """Let one life run until something holds."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.life)
        await bench.settles(done)
        nursery.cancel_scope.cancel()


async def test_a_restarted_actor_continues_from_the_state_in_force(bench: Bench, nursery: trio.Nursery) -> None:
    bench.static.set(files(underlay()))
    await run_until(bench, bench.file.exists)
    nursery.start_soon(bench.life)
    await bench.settles(lambda: True)
    assert bench.out.version == 1
    bench.static.set(files(underlay(asn=64515)))
    await bench.settles(lambda: bench.out.version == 2)
    assert bench.published().generation == 2
    fabric = bench.published().underlay
    assert fabric is not None
    assert fabric.asn == 64515


async def test_the_files_do_not_wait_for_the_api(bench: Bench) -> None:
    bench.static.set(files(underlay(), l3vni("red", 1)))
    await run_until(bench, lambda: bench.out.version)
    assert bench.vrfs() == ["red"]


async def test_nothing_is_published_before_the_files_are_read(bench: Bench, nursery: trio.Nursery) -> None:
    bench.api.set(cluster(api_underlay()))
    nursery.start_soon(bench.life)
    await wait_all_tasks_blocked()
    assert bench.out.version == 0


async def test_a_restart_while_the_api_is_unreachable_has_the_networks_of_its_objects(bench: Bench) -> None:
    bench.static.set(files(underlay()))
    bench.api.set(cluster(api_l3vni("blue", 2)))
    await run_until(bench, bench.file.exists)
    second = reborn(bench)
    second.static.set(files(underlay(), l3vni("red", 1)))
    await run_until(second, lambda: second.out.version)
    assert second.out.version == 1
    assert second.vrfs() == ["red", "blue"]
    assert second.published().remembered is not None


async def test_what_the_server_says_replaces_what_is_remembered(bench: Bench, nursery: trio.Nursery) -> None:
    bench.static.set(files(underlay()))
    bench.api.set(cluster(api_l3vni("blue", 2)))
    await run_until(bench, bench.file.exists)
    second = reborn(bench)
    second.static.set(files(underlay()))
    nursery.start_soon(second.life)
    await second.settles(lambda: second.out.version == 1)
    assert second.vrfs() == ["blue"]
    second.api.set(cluster(api_l3vni("green", 3)))
    await second.settles(lambda: second.remembers() == ["green"])
    assert second.vrfs() == ["green"]


async def test_the_labels_that_chose_are_remembered_over_lives_without_a_server(bench: Bench) -> None:
    bench.static.set(files(underlay()))
    bench.api.set(replace(cluster(api_l3vni("blue", 2)), chosen_by={"zone": "a"}))
    await run_until(bench, bench.file.exists)
    second = reborn(bench)
    second.static.set(files(underlay(), l3vni("red", 1)))
    await run_until(second, lambda: second.out.version and len(second.remembered().standing) == 3)
    snapshot = second.remembered().snapshot
    assert snapshot is not None
    assert snapshot.chosen_by == {"zone": "a"}


def remembering(bench: Bench, *names: str) -> bool:
    return bench.file.exists() and bench.remembers() == list(names)


def unlisted(*plurals: str, why: WatchFailure = WatchFailure.MISSING) -> tuple[NotFollowed, ...]:
    return tuple(NotFollowed(plural, why, 1100.0, listed=False) for plural in plurals)


@pytest.mark.parametrize("why", [WatchFailure.MISSING, WatchFailure.REFUSED])
async def test_a_kind_that_a_server_does_not_list_after_a_restart_stays_until_it_does(
    bench: Bench, nursery: trio.Nursery, why: WatchFailure
) -> None:
    bench.static.set(files(underlay()))
    bench.api.set(cluster(api_l3vni("blue", 2), ApiObject(Kind.L2VNI, "tenant", "segment", spec={"vni": 3})))
    await run_until(bench, partial(remembering, bench, "blue", "segment"))
    true_at = bench.moment()
    # Two lives, since what is kept has to be kept on disk as well.
    for name, vni in (("green", 4), ("pink", 5)):
        bench = reborn(bench)
        bench.static.set(files(underlay()))
        silent = replace(cluster(api_l3vni(name, vni), synced_at=1e12), not_followed=unlisted("l2vnis", why=why))
        bench.api.set(silent)
        await run_until(bench, partial(remembering, bench, name, "segment"))
        assert (bench.vrfs(), [one.vni for one in bench.published().l2vnis]) == ([name], [3])
        [warning] = bench.published().problems
        assert warning.severity is Severity.WARNING
        assert str(why) in warning.message
        # It is no younger than what is oldest in it.
        assert bench.moment() == true_at
    nursery.start_soon(bench.life)
    bench.api.set(cluster(api_l3vni("pink", 5), synced_at=4000.0))
    await bench.settles(lambda: bench.remembers() == ["pink"])
    assert bench.published().l2vnis == ()
    assert bench.published().problems == ()


async def test_an_underlay_that_is_kept_has_its_password(bench: Bench) -> None:
    neighbors = [{"asn": 64512, "address": "192.0.2.1", "passwordSecret": "fabric"}]
    bench.static.set(files())
    secrets = MappingProxyType({(OWN, "fabric", "password"): Secret(PASSWORD)})
    bench.api.set(replace(cluster(api_underlay(neighbors=neighbors)), secrets=secrets))
    await run_until(bench, bench.file.exists)
    second = reborn(bench)
    second.static.set(files())
    second.api.set(replace(cluster(api_l3vni("blue", 2)), not_followed=unlisted("underlays")))
    await run_until(second, lambda: second.remembers() == ["fabric", "blue"])
    fabric = second.published().underlay
    assert fabric is not None
    assert fabric.neighbors[0].password == Secret(PASSWORD)
    assert second.vrfs() == ["blue"]


@pytest.mark.parametrize("why", [WatchFailure.REFUSED, WatchFailure.FAILING])
async def test_a_password_that_a_server_does_not_give_after_a_restart_stays_until_it_does(
    bench: Bench, nursery: trio.Nursery, why: WatchFailure
) -> None:
    session = {"asn": 64514, "hostASN": 65001, "localCIDR": {"ipv4": "10.0.0.0/24"}, "passwordSecret": "host"}
    place, blue = (OWN, "host", "password"), api_l3vni("blue", 2, OWN, hostSession=session)
    bench.static.set(files(underlay()))
    bench.api.set(replace(cluster(blue), secrets=MappingProxyType({place: Secret(PASSWORD)})))
    await run_until(bench, partial(remembering, bench, "blue"))
    # Two lives, since what is kept has to be kept on disk as well.
    for name, vni in (("green", 4), ("pink", 5)):
        bench = reborn(bench)
        bench.static.set(files(underlay()))
        bench.api.set(replace(cluster(blue, api_l3vni(name, vni)), not_followed=unlisted("secrets", why=why)))
        await run_until(bench, partial(remembering, bench, "blue", name))
        assert bench.vrfs() == ["blue", name]
        saved = bench.remembered().snapshot
        assert saved is not None
        assert saved.secrets[place] == Secret(PASSWORD)
    nursery.start_soon(bench.life)
    # Read, and not there: that is known.
    bench.api.set(replace(cluster(blue, api_l3vni("pink", 5)), secrets=MappingProxyType({place: None})))
    await bench.settles(lambda: bench.vrfs() == ["pink"])
    assert [problem.name for problem in bench.published().problems] == [f"{OWN}/blue"]


async def test_what_is_not_followed_does_not_grow_younger_in_memory(
    bench: Bench, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    def not_following(*plurals: str) -> ApiSnapshot:
        silent = tuple(NotFollowed(plural, WatchFailure.REFUSED, 1100.0) for plural in plurals)
        return replace(cluster(api_l3vni("blue", 2), synced_at=4000.0), not_followed=silent)

    bench.static.set(files(underlay()))
    bench.api.set(not_following("l3vnis"))
    nursery.start_soon(bench.life)
    await bench.remembers_moment(lambda moment: moment == 4000.0)
    await trio.sleep(5 * REFRESH_SECONDS)
    assert bench.moment() == 4000.0
    # Of reports nothing is remembered.
    bench.api.set(not_following("routernodeconfigurationstatuses"))
    await bench.remembers_moment(lambda moment: moment > 5000.0)


async def test_a_snapshot_without_a_usable_underlay_is_not_remembered(bench: Bench, nursery: trio.Nursery) -> None:
    bench.static.set(files())
    bench.api.set(cluster(api_underlay(), api_l3vni("blue", 2)))
    nursery.start_soon(bench.life)
    await bench.settles(bench.file.exists)
    before = bench.file.read_text()
    bench.api.set(cluster(api_underlay(asn=0, generation=2)))
    await bench.settles(lambda: bench.out.version == 2)
    assert bench.file.read_text() == before
    assert bench.vrfs() == ["blue"]


async def test_the_saved_snapshot_is_for_root_alone_and_in_no_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    neighbors = [{"asn": 64512, "address": "192.0.2.1", "passwordSecret": "fabric"}]
    bench.static.set(files())
    secrets = MappingProxyType({(OWN, "fabric", "password"): Secret(PASSWORD)})
    bench.api.set(replace(cluster(api_underlay(neighbors=neighbors)), secrets=secrets))
    await run_until(bench, bench.file.exists)
    assert stat.S_IMODE(bench.file.stat().st_mode) == 0o600
    assert PASSWORD in bench.file.read_text()
    second = reborn(bench)
    second.static.set(files())
    await run_until(second, lambda: second.out.version)
    fabric = second.published().underlay
    assert fabric is not None
    assert fabric.neighbors[0].password == Secret(PASSWORD)
    assert PASSWORD not in caplog.text


UNUSABLE = pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        (to_json(SavedSnapshot("node-a")).replace("node-a", "node-b"), "checksum does not match"),
        (to_json(SavedSnapshot("node-b", cluster(api_l3vni("blue", 2)))), "it belongs to another node, node-b"),
        (to_json(SavedSnapshot("node-a")).replace('"version": 1', '"version": 2'), "not a version 1"),
    ],
    ids=["damaged", "changed", "another node's", "another version's"],
)


@UNUSABLE
async def test_without_a_router_an_unusable_snapshot_is_logged_once_and_counts_as_none(
    bench: Bench, caplog: pytest.LogCaptureFixture, text: str, reason: str
) -> None:
    bench.file.write_text(text)
    bench.static.set(files(underlay(), l3vni("red", 1)))
    await run_until(bench, lambda: bench.out.version and bench.file.read_text() != text)
    assert bench.vrfs() == ["red"]
    assert caplog.text.count(reason) == 1
    assert bench.remembered().node_name == "node-a"


@UNUSABLE
async def test_a_working_router_stays_as_it_is_until_the_api_answers(
    bench: Bench, caplog: pytest.LogCaptureFixture, nursery: trio.Nursery, text: str, reason: str
) -> None:
    bench.in_kernel = {"red", "blue"}
    bench.file.write_text(text)
    bench.static.set(files(underlay(), l3vni("red", 1)))
    nursery.start_soon(bench.life)
    await bench.settles(bench.waits)
    bench.static.set(files(underlay(), l3vni("red", 1), l3vni("green", 3)))
    await wait_all_tasks_blocked()
    assert bench.out.version == 0
    assert bench.file.read_text() == text
    assert caplog.text.count("would remove networks that are in force") == 1
    bench.api.set(cluster(api_l3vni("blue", 2)))
    await bench.settles(lambda: bench.file.read_text() != text)
    assert set(bench.vrfs()) == {"red", "green", "blue"}
    assert not bench.waits()
    # From here on what the API says counts, as always.
    bench.api.set(cluster())
    await bench.settles(lambda: set(bench.vrfs()) == {"red", "green"})


async def test_a_working_router_of_which_nothing_was_ever_saved_stays_as_it_is(
    bench: Bench, nursery: trio.Nursery
) -> None:
    bench.in_kernel = {"red", "blue"}
    bench.static.set(files())
    nursery.start_soon(bench.life)
    await bench.settles(bench.waits)
    assert bench.out.version == 0
    assert not bench.file.exists()
    # Files that have everything that is in force remove nothing.
    bench.static.set(files(underlay(), l3vni("red", 1), l3vni("blue", 2)))
    await bench.settles(lambda: bench.out.version == 1)
    # And once something is in force here, the files decide.
    bench.static.set(files(underlay()))
    await bench.settles(lambda: bench.vrfs() == [])


async def test_kinds_that_the_server_does_not_list_are_waited_for_as_well(bench: Bench, nursery: trio.Nursery) -> None:
    bench.in_kernel = {"blue"}
    bench.static.set(files(underlay()))
    bench.api.set(replace(cluster(), not_followed=unlisted("l3vnis")))
    nursery.start_soon(bench.life)
    await bench.settles(bench.waits)
    assert bench.out.version == 0
    bench.api.set(cluster())
    await bench.settles(lambda: bench.out.version == 1)


async def test_what_was_saved_without_an_api_is_all_there_was(bench: Bench) -> None:
    bench.static.set(files(underlay(), l3vni("red", 1)))
    await run_until(bench, bench.file.exists)
    second = reborn(bench)
    second.static.set(files(underlay()))
    await run_until(second, lambda: second.out.version)
    assert second.vrfs() == []


async def test_an_operator_can_let_the_files_alone_decide(bench: Bench, nursery: trio.Nursery) -> None:
    bench.in_kernel = {"blue"}
    bench.static.set(files(underlay()))
    nursery.start_soon(bench.life)
    await bench.settles(bench.waits)
    # A plain reload is none of that.
    bench.static.set(files(underlay(), reload_id=1))
    await wait_all_tasks_blocked()
    assert bench.out.version == 0
    bench.forget.set(2)
    bench.static.set(files(underlay(), reload_id=2))
    await bench.settles(bench.file.exists)
    assert bench.vrfs() == []


async def test_an_operator_can_forget_an_api_that_does_not_answer_and_no_other(
    bench: Bench, nursery: trio.Nursery
) -> None:
    bench.static.set(files(underlay()))
    bench.api.set(cluster(api_l3vni("blue", 2)))
    bench.forget.set(1)
    await run_until(bench, bench.file.exists)
    bench.static.set(files(underlay(), reload_id=1))
    await run_until(bench, lambda: bench.published().reload_id == 1)
    assert bench.vrfs() == ["blue"]
    bench.api.set(cluster(api_l3vni("blue", 2), live=False))
    bench.forget.set(2)
    bench.static.set(files(underlay(), reload_id=2))
    await run_until(bench, lambda: bench.published().reload_id == 2 and bench.remembers() == [])
    assert bench.vrfs() == []
    # The request was answered: an actor that runs again does not repeat it.
    bench.api.set(cluster(api_l3vni("green", 3), live=False))
    await run_until(bench, lambda: bench.vrfs() == ["green"])


async def test_an_operator_can_forget_a_kind_that_the_server_no_longer_has(bench: Bench, nursery: trio.Nursery) -> None:
    bench.static.set(files(underlay()))
    bench.api.set(cluster(api_l3vni("blue", 2), ApiObject(Kind.L2VNI, "tenant", "segment", spec={"vni": 3})))
    await run_until(bench, partial(remembering, bench, "blue", "segment"))
    bench = reborn(bench)
    bench.static.set(files(underlay()))
    bench.api.set(replace(cluster(api_l3vni("blue", 2)), not_followed=unlisted("l2vnis")))
    nursery.start_soon(bench.life)
    await bench.settles(lambda: bench.out.version)
    assert [one.vni for one in bench.published().l2vnis] == [3]
    bench.forget.set(1)
    bench.static.set(files(underlay(), reload_id=1))
    await bench.settles(partial(remembering, bench, "blue"))
    assert (bench.vrfs(), bench.published().l2vnis) == (["blue"], ())


async def test_a_disk_that_refuses_costs_neither_the_router_nor_the_next_start(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.directory.rmdir()
    bench.static.set(files(underlay()))
    bench.api.set(cluster(api_l3vni("blue", 2)))
    await run_until(bench, bench.spare.exists)
    assert caplog.text.count("cannot save the API's objects on disk") == 1
    assert stat.S_IMODE(bench.spare.stat().st_mode) == 0o600
    second = reborn(bench)
    second.static.set(files(underlay()))
    await run_until(second, lambda: second.out.version == 1)
    assert second.vrfs() == ["blue"]
    bench.directory.mkdir()
    third = reborn(second)
    third.static.set(files(underlay()))
    await run_until(third, lambda: third.file.exists() and not third.spare.exists())
    assert third.vrfs() == third.remembers() == ["blue"]


async def test_without_any_disk_the_router_works_and_the_failure_is_logged_once(
    bench: Bench, caplog: pytest.LogCaptureFixture, nursery: trio.Nursery
) -> None:
    bench.directory.rmdir()
    bench.spare.parent.rmdir()
    bench.static.set(files(underlay()))
    nursery.start_soon(bench.life)
    await bench.settles(lambda: bench.out.version == 1)
    bench.api.set(cluster(api_l3vni("blue", 2)))
    await bench.settles(lambda: bench.out.version == 2)
    await bench.settles(lambda: "cannot save" in caplog.text)
    assert caplog.text.count("cannot save the API's objects") == 1
    bench.directory.mkdir()
    bench.api.set(cluster(api_l3vni("green", 2)))
    await bench.settles(bench.file.exists)


async def test_the_memory_grows_old_by_minutes_only_while_the_server_is_followed(
    bench: Bench, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    bench.static.set(files(underlay()))
    bench.api.set(cluster(api_l3vni("blue", 2), synced_at=4000.0))
    nursery.start_soon(bench.life)
    await bench.remembers_moment(lambda moment: moment >= 5000.0 + 3 * REFRESH_SECONDS)
    assert bench.out.version == 1
    # Later than the virtual clock can be: it runs on while a thread writes, by hours on a busy machine.
    final_moment = 1e9
    bench.api.set(cluster(api_l3vni("blue", 2), synced_at=final_moment, live=False))
    await bench.remembers_moment(lambda moment: moment == final_moment)
    await trio.sleep(5 * REFRESH_SECONDS)
    assert bench.moment() == final_moment


@pytest.mark.parametrize("meaning", [1, 2], ids=["nothing", "something"])
async def test_doing_nothing_writes_nothing(bench: Bench, meaning: int) -> None:
    bench.static.set(files(underlay()))
    bench.api.set(cluster(api_l3vni("blue", 1)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.life)
        await bench.settles(bench.file.exists)
        bench.file.unlink()
        bench.api.set(cluster(replace(api_l3vni("blue", meaning), resource_version="9"), synced_at=4999.0))
        bench.static.set(files(underlay()))
        if meaning != 1:
            await bench.settles(bench.file.exists)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()  # and wait for the thread that may be writing
    assert bench.file.exists() == (meaning != 1)


async def test_a_node_that_changes_its_name_does_not_use_its_old_snapshot(bench: Bench) -> None:
    bench.static.set(files(underlay()))
    bench.api.set(cluster(api_l3vni("blue", 2)))
    await run_until(bench, bench.file.exists)
    # Another machine, started from a copy of the disk: it has no router yet.
    second = replace(reborn(bench), in_kernel=set())
    second.static.set(replace(files(underlay()), node=NodeIdentity("node-z", 0)))
    await run_until(second, lambda: second.out.version)
    assert second.vrfs() == []


async def test_the_settings_say_what_counts(bench: Bench) -> None:
    bench.options = {"max_resources": {"l3vnis": 2}, "underlay_namespaces": ("tenant",)}
    bench.static.set(files(l3vni("red", 1)))
    theirs = replace(api_underlay(), namespace="tenant")
    bench.api.set(cluster(theirs, api_l3vni("a", 2), api_l3vni("b", 3)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.life)
        await bench.settles(lambda: bench.out.peek() and bench.published().underlay)
        assert sorted(bench.vrfs()) == ["a", "red"]
        [problem] = bench.published().problems
        assert "this node takes at most 2 l3vnis" in problem.message
        nursery.cancel_scope.cancel()


async def test_the_hosts_networks_are_read_for_a_new_range_and_a_reload_only(bench: Bench) -> None:
    """Not for each of the API's changes; and what is refused then is not in force."""
    network = HostNetwork(ip_network("100.99.3.0/24"), "the host's route 100.99.3.0/24")
    wide: dict[str, Any] = {"tunnelEndpoint": {"cidrs": ["100.99.0.0/16"]}}
    bench.static.set(files())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.life)
        await bench.settles(bench.out.peek)
        bench.api.set(cluster(api_underlay()))
        await bench.settles(lambda: bench.published().underlay)
        before = bench.readings
        bench.api.set(cluster(api_underlay(), api_l3vni("red", 1)))
        await bench.settles(lambda: bench.vrfs() == ["red"])
        assert bench.readings == before
        bench.networks = (network,)
        bench.api.set(cluster(api_underlay(generation=2, **wide), api_l3vni("red", 1)))
        await bench.settles(lambda: bench.published().problems)
        (problem,) = bench.published().problems
        assert problem.message == "100.99.0.0/16 contains the host's route 100.99.3.0/24"
        assert bench.vrfs() == ["red"]
        # The end of a route is not an event; a reload looks.
        bench.networks = ()
        bench.static.set(files(reload_id=1))
        await bench.settles(lambda: not bench.published().problems)
        underlay = bench.published().underlay
        assert underlay is not None
        assert underlay.vtep_pools == ("100.99.0.0/16",)
        nursery.cancel_scope.cancel()
