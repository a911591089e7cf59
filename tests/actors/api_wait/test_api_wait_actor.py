"""Credentials and servers that come, go, change and expire: what is published, when, and after how many requests."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors.api_wait.actor import run
from actors.api_wait.connection import EXPIRED_SECONDS, PROBING, READING, RELOAD_SECONDS
from actors.lib.kube.errors import ThrottledError
from config.api import ApiAccess, ApiReach
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader
from tests.actors.api_wait.fakes import EPOCH, SECRET, Reading, Servers, wall
from tests.actors.lib.kube.kubeconfigs import CA, base64_of, credential, kubeconfig, program
from tests.actors.message_catalog import explained

#: Within this many seconds every change has to be followed: two polls, and a third that finds nothing new.
SOON = 3.5


class Node:
    """A node's directory of credentials, and the actor that polls it."""

    def __init__(self, root: Path) -> None:
        self.settings = Settings(credentials_dir=root / "bridge", run_dir=root / "run")
        self.settings.credentials_dir.mkdir()
        self.kubeconfig = self.settings.credentials_dir / "kubeconfig"
        self.read = Reading()
        #: Let the actor read real kubeconfigs, as in the daemon.
        self.reads_itself = False
        self.servers = Servers()
        self.out: Latest[ApiAccess] = Latest("access")
        self.context = ActorContext.__new__(ActorContext)

    def write(self, text: str) -> None:
        """Replace the kubeconfig."""
        fresh = self.kubeconfig.with_name("fresh")
        fresh.write_text(text)
        fresh.rename(self.kubeconfig)

    @asynccontextmanager
    async def alive(self) -> AsyncIterator[LatestReader[ApiAccess]]:
        """One life of the actor; the channel stays."""
        self.context = ActorContext("api_wait")
        async with trio.open_nursery() as nursery:

            async def live() -> None:
                await run(
                    self.context,
                    settings=self.settings,
                    out=self.out,
                    connect=self.servers.connect,
                    read=None if self.reads_itself else self.read,
                    wall=wall,
                    chance=lambda: 0.5,
                )

            nursery.start_soon(live)
            yield self.out.reader()
            nursery.cancel_scope.cancel()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "openperouter")
    return caplog


async def soon(accesses: LatestReader[ApiAccess]) -> ApiAccess:
    with trio.fail_after(SOON):
        return await accesses.receive()


def server_of(access: ApiAccess) -> str:
    assert access.credentials is not None
    return access.credentials.server


def token_of(access: ApiAccess) -> str:
    assert access.credentials is not None
    assert access.credentials.token is not None
    return access.credentials.token.reveal()


async def test_without_credentials_it_says_what_it_waits_for_and_does_nothing(
    autojump_clock: MockClock, node: Node, said: pytest.LogCaptureFixture
) -> None:
    async with node.alive() as accesses:
        access = await soon(accesses)
        assert (access.reach, access.credentials) == (ApiReach.UNCONFIGURED, None)
        assert access.detail == f"waiting for {node.kubeconfig}"
        assert access.since == pytest.approx(EPOCH, abs=1)
        await trio.sleep(3600)
        assert not accesses.pending
        assert node.context.facts["reach"] == "unconfigured"
        assert node.context.mode == "idle"
    assert node.read.reads == []
    assert explained(said.records) == ["API_NO_CREDENTIALS"]


async def test_the_setting_names_another_kubeconfig(autojump_clock: MockClock, node: Node) -> None:
    path = node.kubeconfig.with_name("other")
    node.settings = node.settings.model_copy(update={"kubeconfig": path})
    async with node.alive() as accesses:
        assert (await soon(accesses)).detail == f"waiting for {path}"


@pytest.mark.skipif(os.geteuid() != 0, reason="a program that others can write does not run")
@pytest.mark.parametrize("may_run", [False, True])
async def test_the_daemon_runs_a_program_of_a_kubeconfig_with_the_setting_only(node: Node, *, may_run: bool) -> None:
    ran, directory = node.settings.run_dir.with_name("ran"), node.settings.credentials_dir
    node.settings = node.settings.model_copy(update={"kubeconfig_programs": may_run})
    node.reads_itself = True
    user = program(directory, f"touch {ran}\n{credential(token=SECRET)}")
    node.write(kubeconfig(user, {"server": "https://one", "certificate-authority-data": base64_of(CA)}))
    with trio.fail_after(30):
        async with node.alive() as accesses:
            access = await accesses.receive()
    assert (access.reach is ApiReach.REACHABLE) is may_run, access.detail
    assert ("kubeconfigPrograms" in access.detail) is not may_run
    assert ran.exists() is may_run


async def test_credentials_that_appear_are_used_within_seconds(autojump_clock: MockClock, node: Node) -> None:
    async with node.alive() as accesses:
        await soon(accesses)
        node.write(f"one {SECRET}")
        access = await soon(accesses)
        assert (access.reach, access.detail) == (ApiReach.REACHABLE, "")
        assert (server_of(access), token_of(access)) == ("https://one", SECRET)
        assert access.since == pytest.approx(wall(), abs=SOON)
        await trio.testing.wait_all_tasks_blocked()
        assert node.context.facts["server"] == "https://one"


async def test_a_server_that_answers_is_left_alone(autojump_clock: MockClock, node: Node) -> None:
    node.write(f"one {SECRET}")
    async with node.alive() as accesses:
        await soon(accesses)
        await trio.sleep(2 * 3600)
    assert len(node.servers.asked) == 1
    assert len(node.read.reads) == 1


async def test_the_same_written_again_and_again_changes_nothing(autojump_clock: MockClock, node: Node) -> None:
    """As upstream's credentials proxy does, every ten seconds."""
    node.write(f"one {SECRET}")
    async with node.alive() as accesses:
        await soon(accesses)
        for _ in range(30):
            node.write(f"one {SECRET}")
            await trio.sleep(10)
        assert not accesses.pending
    assert len(node.servers.asked) == 1
    assert len(node.read.reads) == 1


async def test_a_rotated_token_is_followed_and_the_reach_lasts_on(autojump_clock: MockClock, node: Node) -> None:
    token = node.settings.credentials_dir / "token"
    token.write_text(SECRET)
    node.write(f"one x names={token}")
    async with node.alive() as accesses:
        before = await soon(accesses)
        await trio.sleep(600)
        node.servers.tokens = {"fresh"}
        token.write_text("fresh")
        after = await soon(accesses)
    assert (token_of(before), token_of(after)) == (SECRET, "fresh")
    assert (after.reach, after.since) == (ApiReach.REACHABLE, before.since)


async def test_a_swapped_symbolic_link_is_followed(autojump_clock: MockClock, node: Node) -> None:
    versions = [node.settings.credentials_dir / name for name in ("v1", "v2")]
    for version, server in zip(versions, ("one", "two"), strict=True):
        version.mkdir()
        (version / "kubeconfig").write_text(f"{server} {SECRET}")
    data = node.settings.credentials_dir / "..data"
    data.symlink_to("v1")
    node.kubeconfig.symlink_to("..data/kubeconfig")
    node.servers.up = {"https://one", "https://two"}
    async with node.alive() as accesses:
        assert server_of(await soon(accesses)) == "https://one"
        (swap := data.with_name("swap")).symlink_to("v2")
        swap.rename(data)
        assert server_of(await soon(accesses)) == "https://two"


async def test_an_unreachable_server_is_probed_indefinitely_with_growing_backoff(
    autojump_clock: MockClock, node: Node, said: pytest.LogCaptureFixture
) -> None:
    node.servers.up = set()
    node.write(f"one {SECRET}")
    async with node.alive() as accesses:
        access = await soon(accesses)
        assert (access.reach, access.credentials) == (ApiReach.UNREACHABLE, None)
        assert "https://one" in access.detail
        assert str(node.kubeconfig) in access.detail
        assert "Connection refused" in access.detail
        await trio.sleep(3600)
        assert not accesses.pending
        pauses = [after - before for before, after in zip(node.servers.moments, node.servers.moments[1:], strict=False)]
        assert pauses[:4] == pytest.approx([1, 2, 4, 8])
        assert max(pauses) == pytest.approx(PROBING.longest)
        assert sum(pauses) >= 3600 - PROBING.longest
        node.servers.up = {"https://one"}
        with trio.fail_after(PROBING.longest + 1):
            assert (await accesses.receive()).reach is ApiReach.REACHABLE
    assert len(node.read.reads) == 1
    assert [record.levelname for record in said.records] == ["WARNING", "INFO"]
    assert explained(said.records) == ["API_UNREACHABLE", "API_REACHABLE"]


async def test_a_changed_file_cuts_a_pause_short(autojump_clock: MockClock, node: Node) -> None:
    node.servers.up = set()
    node.write(f"one {SECRET}")
    async with node.alive() as accesses:
        await soon(accesses)
        await trio.sleep(120)
        node.servers.up = {"https://two"}
        node.write(f"two {SECRET}")
        assert server_of(await soon(accesses)) == "https://two"


async def test_refused_credentials_are_distinguished_from_an_unreachable_server_and_fixed_by_new_ones(
    autojump_clock: MockClock, node: Node, said: pytest.LogCaptureFixture
) -> None:
    node.write("one stale")
    async with node.alive() as accesses:
        access = await soon(accesses)
        assert (access.reach, access.credentials) == (ApiReach.REFUSED, None)
        assert access.detail == f"https://one refuses the credentials in {node.kubeconfig}: GET /readyz: Unauthorized"
        await trio.sleep(300)
        node.write(f"one {SECRET}")
        assert (await soon(accesses)).reach is ApiReach.REACHABLE
    assert explained(said.records) == ["API_REFUSED", "API_REACHABLE"]


async def test_retry_after_is_respected(autojump_clock: MockClock, node: Node) -> None:
    node.servers.error = ThrottledError("too many requests", code=429, retry_after=100)
    node.write(f"one {SECRET}")
    async with node.alive() as accesses:
        await soon(accesses)
        await trio.sleep(99)
        assert len(node.servers.asked) == 1
        await trio.sleep(2)
        assert len(node.servers.asked) == 2


async def test_credentials_that_worked_stay_while_newer_ones_fail(autojump_clock: MockClock, node: Node) -> None:
    node.write(f"one {SECRET}")
    async with node.alive() as accesses:
        await soon(accesses)
        node.write(f"two {SECRET}")
        access = await soon(accesses)
        assert (access.reach, server_of(access)) == (ApiReach.UNREACHABLE, "https://one")
        assert "https://two" in access.detail
        node.servers.up = {"https://two"}
        with trio.fail_after(SOON):
            access = await accesses.receive()
        assert (access.reach, server_of(access)) == (ApiReach.REACHABLE, "https://two")


async def test_what_worked_stays_when_its_file_disappears_but_not_over_a_restart(
    autojump_clock: MockClock, node: Node, said: pytest.LogCaptureFixture
) -> None:
    node.write(f"one {SECRET}")
    async with node.alive() as accesses:
        before = await soon(accesses)
        node.kubeconfig.unlink()
        access = await soon(accesses)
        assert (access.reach, access.credentials, access.since) == (before.reach, before.credentials, before.since)
        assert access.detail == f"{node.kubeconfig} was removed; the credentials read before stay in force"
        await trio.sleep(3600)
        assert not accesses.pending
        assert len(node.servers.asked) == 1
        node.write(f"one {SECRET}")
        assert (await soon(accesses)).detail == ""
    assert [record.levelname for record in said.records] == ["INFO", "WARNING", "INFO"]
    assert explained(said.records) == ["API_REACHABLE", "API_CREDENTIALS_UNUSABLE", "API_CREDENTIALS_READABLE"]
    node.kubeconfig.unlink()
    node.out = Latest("access")
    async with node.alive() as accesses:
        assert (await soon(accesses)).reach is ApiReach.UNCONFIGURED


async def test_what_never_worked_goes_with_its_file(autojump_clock: MockClock, node: Node) -> None:
    node.servers.up = set()
    node.write(f"one {SECRET}")
    async with node.alive() as accesses:
        await soon(accesses)
        node.kubeconfig.unlink()
        assert (await soon(accesses)).reach is ApiReach.UNCONFIGURED
        asked = len(node.servers.asked)
        await trio.sleep(600)
        assert len(node.servers.asked) == asked


async def test_a_file_that_disappears_before_its_server_answered_gives_way_to_what_worked(
    autojump_clock: MockClock, node: Node
) -> None:
    node.write(f"one {SECRET}")
    async with node.alive() as accesses:
        await soon(accesses)
        node.write(f"two {SECRET}")
        assert (await soon(accesses)).reach is ApiReach.UNREACHABLE
        node.kubeconfig.unlink()
        access = await soon(accesses)
        assert (access.reach, server_of(access)) == (ApiReach.REACHABLE, "https://one")
        assert "was removed" in access.detail


async def test_a_broken_kubeconfig_is_an_operators_to_fix(
    autojump_clock: MockClock, node: Node, said: pytest.LogCaptureFixture
) -> None:
    node.write("broken 3:5:nonsense")
    async with node.alive() as accesses:
        access = await soon(accesses)
        assert (access.reach, access.detail) == (ApiReach.UNREACHABLE, f"{node.kubeconfig}: 3:5:nonsense")
        await trio.sleep(RELOAD_SECONDS - 10)
        assert len(node.read.reads) == 1
        node.write(f"one {SECRET}")
        assert (await soon(accesses)).reach is ApiReach.REACHABLE
    assert explained(said.records)[0] == "API_CREDENTIALS_UNUSABLE"


async def test_a_kubeconfig_that_breaks_leaves_what_worked(autojump_clock: MockClock, node: Node) -> None:
    node.write(f"one {SECRET}")
    async with node.alive() as accesses:
        before = await soon(accesses)
        node.write("broken half-written")
        access = await soon(accesses)
        assert (access.reach, access.credentials) == (ApiReach.REACHABLE, before.credentials)
        assert "half-written; the credentials read before stay in force" in access.detail
        await trio.sleep(10)
    assert len(node.servers.asked) == 1


async def test_a_reading_whose_failure_may_pass_is_repeated_with_growing_backoff(
    autojump_clock: MockClock, node: Node
) -> None:
    node.write("broken passing")
    async with node.alive() as accesses:
        await soon(accesses)
        await trio.sleep(600)
        pauses = [after - before for before, after in zip(node.read.reads, node.read.reads[1:], strict=False)]
        assert pauses[:3] == pytest.approx([1, 2, 4])
        assert max(pauses) == pytest.approx(READING.longest)
        assert not accesses.pending


async def test_credentials_that_expire_are_read_again_and_only_new_ones_are_published(
    autojump_clock: MockClock, node: Node
) -> None:
    node.write(f"one {SECRET} program=cloud lasts=100")
    async with node.alive() as accesses:
        before = await soon(accesses)
        await trio.sleep(1050)
        assert len(node.read.reads) == 11
        assert not accesses.pending
        node.kubeconfig.unlink()
        # Not even with another end: a client would be opened again for it.
        assert (await soon(accesses)).credentials == before.credentials
    assert len(node.servers.asked) == 1


async def test_a_file_that_vanishes_while_it_is_read_is_missing_and_not_broken(
    autojump_clock: MockClock, node: Node
) -> None:
    node.write("vanishing x")
    async with node.alive() as accesses:
        assert (await soon(accesses)).reach is ApiReach.UNCONFIGURED
        node.write(f"one {SECRET}")
        assert (await soon(accesses)).reach is ApiReach.REACHABLE


async def test_expired_credentials_that_the_server_refuses_are_reported_with_their_expiry(
    autojump_clock: MockClock, node: Node
) -> None:
    node.write(f"one {SECRET} ends={EPOCH + 100}")
    async with node.alive() as accesses:
        await soon(accesses)
        await trio.sleep(50)
        node.servers.tokens = set()
        with trio.fail_after(60):
            access = await accesses.receive()
        assert access.reach is ApiReach.REFUSED
        assert "which expired 2027-01-15T08:01:40Z" in access.detail
        assert token_of(access) == SECRET


async def test_a_wrong_clock_makes_no_busy_loop(autojump_clock: MockClock, node: Node) -> None:
    """The server takes what has ended by our clock."""
    node.write(f"one {SECRET} ends={EPOCH - 100}")
    async with node.alive() as accesses:
        await soon(accesses)
        await trio.sleep(20 * EXPIRED_SECONDS + 1)
        assert not accesses.pending
    assert len(node.servers.asked) == 21
    assert len(node.read.reads) == 1


async def test_a_plugin_that_gives_expired_credentials_makes_no_busy_loop(
    autojump_clock: MockClock, node: Node
) -> None:
    node.write(f"one {SECRET} program=cloud ends={EPOCH - 100}")
    async with node.alive() as accesses:
        await soon(accesses)
        await trio.sleep(20 * EXPIRED_SECONDS + 1)
        assert not accesses.pending
    assert len(node.read.reads) == 21


async def test_the_expiry_shows_although_the_server_grants_a_minute_more(autojump_clock: MockClock, node: Node) -> None:
    node.write(f"one {SECRET} ends={EPOCH + 100}")
    async with node.alive() as accesses:
        await soon(accesses)
        await trio.sleep(160)
        assert not accesses.pending
        node.servers.tokens = set()
        with trio.fail_after(20):
            assert (await accesses.receive()).reach is ApiReach.REFUSED


async def test_a_plugin_that_states_no_expiry_runs_every_five_minutes(autojump_clock: MockClock, node: Node) -> None:
    node.write(f"one {SECRET} program=cloud")
    async with node.alive() as accesses:
        await soon(accesses)
        await trio.sleep(10 * RELOAD_SECONDS + 1)
        assert not accesses.pending
    assert len(node.read.reads) == 11
    assert len(node.servers.asked) == 1


async def test_a_plugin_runs_again_when_the_server_refuses(autojump_clock: MockClock, node: Node) -> None:
    node.write("one stale program=cloud")
    async with node.alive() as accesses:
        assert (await soon(accesses)).reach is ApiReach.REFUSED
        node.read.made_by_program = SECRET
        assert (await soon(accesses)).reach is ApiReach.REACHABLE
    assert len(node.read.reads) == 2


async def test_credentials_of_a_plugin_are_kept_while_the_server_is_unreachable(
    autojump_clock: MockClock, node: Node
) -> None:
    node.servers.up = set()
    node.write(f"one {SECRET} program=cloud ends={EPOCH + 10000}")
    async with node.alive() as accesses:
        await soon(accesses)
        await trio.sleep(600)
    assert len(node.read.reads) == 1


async def test_files_that_belong_together_are_waited_for(autojump_clock: MockClock, node: Node) -> None:
    token = node.settings.credentials_dir / "token"
    token.write_text(SECRET)
    node.write(f"one x names={token}")
    node.servers.up = {"https://one", "https://two"}
    async with node.alive() as accesses:
        await soon(accesses)
        node.servers.tokens = {"fresh"}
        node.write(f"two x names={token}")
        await trio.sleep(0.9)
        token.write_text("fresh")
        access = await soon(accesses)
        assert (access.reach, server_of(access), token_of(access)) == (ApiReach.REACHABLE, "https://two", "fresh")


async def test_newer_files_cut_a_reading_short_that_hangs(autojump_clock: MockClock, node: Node) -> None:
    node.read.seconds = 55
    node.write("one stale")
    async with node.alive() as accesses:
        await trio.sleep(1)
        node.read.seconds = 0
        node.write(f"one {SECRET}")
        with trio.fail_after(5 + SOON):
            assert (await accesses.receive()).reach is ApiReach.REACHABLE


async def test_newer_files_cut_a_server_short_that_does_not_answer(autojump_clock: MockClock, node: Node) -> None:
    node.servers.seconds = 1000
    node.write(f"one {SECRET}")
    async with node.alive() as accesses:
        await trio.sleep(6)
        node.servers.seconds = 0
        node.write(f"one {SECRET} ")
        assert (await soon(accesses)).reach is ApiReach.REACHABLE


async def test_a_slow_reading_is_not_cut_short_by_files_that_hold_still(autojump_clock: MockClock, node: Node) -> None:
    node.read.seconds = 20
    node.write(f"one {SECRET}")
    async with node.alive() as accesses:
        with trio.fail_after(25):
            assert (await accesses.receive()).reach is ApiReach.REACHABLE
    assert len(node.read.reads) == 1


async def test_a_server_that_does_not_answer_is_given_up_in_time(autojump_clock: MockClock, node: Node) -> None:
    node.servers.seconds = 1000
    node.write(f"one {SECRET}")
    async with node.alive() as accesses:
        with trio.fail_after(25):
            access = await accesses.receive()
    assert access.reach is ApiReach.UNREACHABLE
    assert "no answer within 20 s" in access.detail


async def test_an_actor_that_was_restarted_keeps_what_worked(autojump_clock: MockClock, node: Node) -> None:
    node.write(f"one {SECRET}")
    async with node.alive() as accesses:
        before = await soon(accesses)
    node.kubeconfig.unlink()
    async with node.alive():
        await trio.sleep(SOON)
        access = node.out.peek()
    assert access is not None
    assert (access.reach, access.credentials, access.since) == (ApiReach.REACHABLE, before.credentials, before.since)
    assert "was removed" in access.detail


async def test_secrets_stay_secret(autojump_clock: MockClock, node: Node, said: pytest.LogCaptureFixture) -> None:
    said.set_level(logging.DEBUG)
    node.write(f"one {SECRET}")
    async with node.alive() as accesses:
        shown = [repr(await soon(accesses))]
        node.write(f"two {SECRET}")
        shown += [repr(await soon(accesses)), repr(node.context.facts)]
        node.servers.error = ThrottledError(f"you said 'Authorization: Bearer {SECRET}'", code=429)
        node.write(f"three {SECRET}")
        shown += [repr(await soon(accesses)), repr(node.context.facts)]
        assert "Authorization" in shown[-1]
    assert SECRET not in "".join(shown) + said.text
