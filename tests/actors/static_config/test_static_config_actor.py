"""From real files to snapshots, over edits, damage and restarts. Real time, since reading happens in a thread."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Interface, ip_network
from pathlib import Path

import pytest
import trio
import yaml

from actors.static_config import state_store
from actors.static_config.actor import run
from config.api import ApiObject, ApiSnapshot
from config.desired import IPInterface
from config.outcomes import StaticSnapshot
from config.precedence import Held
from config.problems import RUNNING_KEPT, Kind, errors
from config.resolve.host_networks import HostNetwork
from config.settings import Settings
from config.store.api_snapshot_file import SavedSnapshot, to_json
from config.store.last_good import read_texts
from supervisor.process.atomic_file import write_atomic
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader
from supervisor.runtime.faults import ConfigFault

GOOD = """\
underlays:
- asn: 64514
  interfaces: [{type: NetworkDevice, networkDevice: {interfaceName: eth1}}]
  neighbors: [{asn: 64512, address: 192.0.2.1}]
  tunnelEndpoint: {cidrs: [100.65.0.0/24]}
"""
RED = "l3vnis: [{name: red, vrf: red, vni: 100}]\n"
PATHS = {"nodeConfigFile": "node-config.yaml", "configsDir": "configs", "stateDir": "state", "runDir": "run"}
DEADLINE = 60.0


class Node:
    """A node's files and the actor that reads them."""

    def __init__(self, root: Path) -> None:
        self.settings = Settings(
            node_config_file=root / "node-config.yaml",
            configs_dir=root / "configs",
            state_dir=root / "state",
            run_dir=root / "run",
            settle_seconds=0.05,
        )
        self.settings_file = root / "openperouter.yaml"
        self.set(settleSeconds=0.05)
        self.settings.configs_dir.mkdir()
        self.settings.state_dir.mkdir()
        self.reload: Latest[int] = Latest("reload")
        self.out: Latest[StaticSnapshot] = Latest("static")
        self.addresses: Callable[[str], Sequence[IPInterface]] = lambda name: ()
        self.networks: tuple[HostNetwork, ...] = ()
        self.read_networks: Callable[[], tuple[HostNetwork, ...]] = lambda: self.networks
        self.identify("nodeIndex: {index: 3}\nnodeName: node-a\n")

    def identify(self, text: str) -> None:
        self.settings.node_config_file.write_text(text)

    def set(self, **values: object) -> None:
        """Write the settings that the daemon runs with, and over them ``values``."""
        paths = (f"{key}: {self.settings_file.parent / name}" for key, name in PATHS.items())
        self.settings_file.write_text("\n".join((*paths, *(f"{key}: {value}" for key, value in values.items()), "")))

    def write(self, name: str, text: str) -> Path:
        path = self.settings.configs_dir / f"openpe_{name}.yaml"
        path.write_text(text)
        return path

    def look_up(self, interface: str) -> Sequence[IPInterface]:
        """Ask for its addresses as they are at that moment."""
        return self.addresses(interface)

    async def live(self) -> None:
        await run(
            ActorContext("static_config"),
            settings=self.settings,
            settings_file=self.settings_file,
            reload=self.reload.reader(),
            out=self.out,
            addresses=self.look_up,
            networks=self.read_networks,
        )

    @asynccontextmanager
    async def alive(self, *, keep_channels: bool = False) -> AsyncIterator[LatestReader[StaticSnapshot]]:
        """One life of the actor, or only of an incarnation of it; gives a reader that has seen nothing of it."""
        if not keep_channels:
            self.out = Latest("static")
        with trio.fail_after(DEADLINE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.live)
                yield self.out.reader()
                nursery.cancel_scope.cancel()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def kinds(snapshot: StaticSnapshot) -> list[Kind]:
    return [resource.kind for resource in snapshot.resources]


async def test_files_become_a_snapshot_with_identity_and_origins(node: Node) -> None:
    path = node.write("a", GOOD)
    async with node.alive() as snapshots:
        snapshot = await snapshots.receive()
    assert (snapshot.node.name, snapshot.node.index) == ("node-a", 3)
    assert [str(resource.origin) for resource in snapshot.resources] == [f"{path}:2:3"]


async def test_a_new_an_edited_and_a_removed_file_are_noticed(node: Node) -> None:
    node.write("a", GOOD)
    async with node.alive() as snapshots:
        await snapshots.receive()
        red = node.write("red", RED)
        assert kinds(await snapshots.receive()) == [Kind.UNDERLAY, Kind.L3VNI]
        red.write_text(RED.replace("100", "200"))
        assert (await snapshots.receive()).resources[1].spec.vni == 200
        red.unlink()
        assert kinds(await snapshots.receive()) == [Kind.UNDERLAY]


async def test_a_replaced_directory_is_read_again(node: Node) -> None:
    node.write("a", GOOD)
    async with node.alive() as snapshots:
        await snapshots.receive()
        configs = node.settings.configs_dir
        configs.rename(configs.with_name("old"))
        configs.mkdir()
        node.write("a", GOOD + RED)
        while kinds(snapshot := await snapshots.receive()) != [Kind.UNDERLAY, Kind.L3VNI]:
            pass
        assert not snapshot.problems


async def test_a_directory_that_vanishes_stays_in_force_over_a_restart_until_a_reload(node: Node) -> None:
    node.write("a", GOOD)
    configs = node.settings.configs_dir
    async with node.alive() as snapshots:
        await snapshots.receive()
        configs.rename(configs.with_name("elsewhere"))
        vanished = await snapshots.receive()
    async with node.alive() as snapshots:
        restarted = await snapshots.receive()
        node.reload.set(1)
        confirmed = await snapshots.receive()
    for kept in (vanished, restarted):
        assert kinds(kept) == [Kind.UNDERLAY]
        assert [problem.origin.path for problem in errors(kept.problems)] == [str(configs)]
    assert (confirmed.resources, confirmed.problems, confirmed.reload_id) == ((), (), 1)


async def test_what_a_reload_confirms_is_on_disk_before_it_is_published(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the answer to a reload, a restart must not bring back what the reload has replaced."""
    node.write("a", GOOD)
    configs = node.settings.configs_dir
    published: list[int] = []

    def storing(path: Path, text: str) -> None:
        snapshot = node.out.peek()
        published.append(snapshot.reload_id if snapshot else -1)
        write_atomic(path, text)

    async with node.alive() as snapshots:
        await snapshots.receive()
        configs.rename(configs.with_name("elsewhere"))
        await snapshots.receive()
        monkeypatch.setattr(state_store, "write_atomic", storing)
        node.reload.set(1)
        assert (await snapshots.receive()).resources == ()
    assert published == [0, 0]


async def test_a_reload_before_the_actor_was_restarted_confirms_nothing(node: Node) -> None:
    node.write("a", GOOD)
    node.reload.set(1)
    async with node.alive() as snapshots:
        assert (await snapshots.receive()).reload_id == 1
    node.settings.configs_dir.rename(node.settings.configs_dir.with_name("elsewhere"))
    async with node.alive(keep_channels=True) as snapshots:
        await snapshots.receive()
        assert kinds(await snapshots.receive()) == [Kind.UNDERLAY]


async def test_a_broken_file_keeps_its_last_good_content_over_a_restart(node: Node) -> None:
    node.write("a", GOOD)
    red = node.write("red", RED)
    async with node.alive() as snapshots:
        await snapshots.receive()
        red.write_text("l3vnis: [\n")
        broken = await snapshots.receive()
        assert kinds(broken) == [Kind.UNDERLAY, Kind.L3VNI]
        assert str(red) in str(broken.problems[0])
        assert "last good content" in str(broken.problems[0])
    async with node.alive() as snapshots:
        assert kinds(await snapshots.receive()) == [Kind.UNDERLAY, Kind.L3VNI]


async def test_an_unusable_underlay_keeps_everything_as_it_was_over_a_restart(node: Node) -> None:
    underlay = node.write("a", GOOD + RED)
    async with node.alive() as snapshots:
        good = await snapshots.receive()
        underlay.write_text(GOOD.replace("64514", "0") + RED.replace("100", "200"))
        kept = await snapshots.receive()
        assert [resource.spec for resource in kept.resources] == [resource.spec for resource in good.resources]
    async with node.alive() as snapshots:
        kept = await snapshots.receive()
    assert [resource.spec for resource in kept.resources] == [resource.spec for resource in good.resources]
    assert any(
        "asn" in problem.field and problem.in_force == "the running configuration is kept" for problem in kept.problems
    )


@pytest.mark.parametrize("broken", ["s3 cret", None], ids=["bad", "missing"])
async def test_a_broken_password_file_keeps_the_router_over_a_restart(node: Node, broken: str | None) -> None:
    node.write("a", GOOD.replace("address: 192.0.2.1", "address: 192.0.2.1, passwordSecret: fabric"))
    secret = node.settings.configs_dir / "secrets" / "fabric"
    secret.parent.mkdir()
    secret.write_text("s3cret")
    secret.chmod(0o600)
    async with node.alive() as snapshots:
        good = await snapshots.receive()
    if broken is None:
        secret.unlink()
    else:
        secret.write_text(broken)
    async with node.alive() as snapshots:
        kept = await snapshots.receive()
    assert kept.resources == good.resources
    assert [str(secret) in problem.message for problem in errors(kept.problems)] == [True]


async def test_passwords_in_force_outlive_a_broken_underlay_and_a_broken_password_file(node: Node) -> None:
    text = GOOD.replace("address: 192.0.2.1", "address: 192.0.2.1, passwordSecret: fabric")
    path = node.write("a", text)
    secret = node.settings.configs_dir / "secrets" / "fabric"
    secret.parent.mkdir()
    secret.write_text("s3cret")
    async with node.alive() as snapshots:
        good = await snapshots.receive()
        path.write_text(text.replace("64514", "0"))
        await snapshots.receive()
    secret.unlink()
    async with node.alive() as snapshots:
        kept = await snapshots.receive()
    assert [resource.spec for resource in kept.resources] == [resource.spec for resource in good.resources]


async def test_a_fixed_underlay_comes_into_force_with_everything_that_waited(node: Node) -> None:
    underlay = node.write("a", GOOD)
    async with node.alive() as snapshots:
        await snapshots.receive()
        underlay.write_text(GOOD.replace("64514", "0") + RED)
        await snapshots.receive()
        underlay.write_text(GOOD + RED)
        fixed = await snapshots.receive()
    assert kinds(fixed) == [Kind.UNDERLAY, Kind.L3VNI]
    assert fixed.problems == ()


async def test_a_removed_underlay_is_no_doubt_but_a_wish(node: Node) -> None:
    underlay = node.write("a", GOOD)
    async with node.alive() as snapshots:
        await snapshots.receive()
        underlay.unlink()
        assert (await snapshots.receive()).resources == ()


async def test_the_memory_on_disk_is_for_root_alone(node: Node) -> None:
    node.write("a", GOOD)
    async with node.alive() as snapshots:
        await snapshots.receive()
    for name in ("last-good.json", "in-force.json", "node.json"):
        assert (node.settings.state_dir / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", [b"{", b"\xff\xfe", b"[" * 100_000], ids=["half", "binary", "deep"])
@pytest.mark.parametrize("name", ["last-good.json", "in-force.json", "node.json"])
async def test_a_damaged_memory_is_said_and_survived(node: Node, name: str, damage: bytes) -> None:
    node.write("a", GOOD)
    (node.settings.state_dir / name).write_bytes(damage)
    async with node.alive() as snapshots:
        assert kinds(await snapshots.receive()) == [Kind.UNDERLAY]


async def test_a_read_only_disk_with_a_left_over_temporary_file_does_not_keep_a_start(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write("a", GOOD)
    (node.settings.state_dir / ".last-good.json.0123abcd.tmp").touch()

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    async with node.alive() as snapshots:
        assert kinds(await snapshots.receive()) == [Kind.UNDERLAY]


async def test_a_reload_reads_all_and_is_taken_in_although_nothing_changed(node: Node) -> None:
    node.write("a", GOOD)
    async with node.alive() as snapshots:
        assert (await snapshots.receive()).reload_id == 0
        node.reload.set(1)
        assert (await snapshots.receive()).reload_id == 1


async def test_a_broken_node_configuration_keeps_the_index_over_a_restart(node: Node) -> None:
    node.write("a", GOOD)
    async with node.alive() as snapshots:
        await snapshots.receive()
    node.identify("nodeIndex: {index: -3}\n")
    async with node.alive() as snapshots:
        snapshot = await snapshots.receive()
    assert snapshot.node.index == 3
    assert snapshot.problems


async def test_no_files_at_all_are_a_complete_empty_snapshot_even_without_identity(node: Node) -> None:
    node.settings.node_config_file.unlink()
    async with node.alive() as snapshots:
        snapshot = await snapshots.receive()
    assert snapshot.resources == ()
    assert snapshot.problems == ()


async def test_a_configuration_without_any_identity_is_a_configuration_fault(node: Node) -> None:
    node.write("a", GOOD)
    node.settings.node_config_file.unlink()
    with pytest.raises(ConfigFault, match=r"node-config\.yaml"):
        await node.live()


async def test_a_running_daemon_waits_for_an_identity_that_comes_after_the_files(node: Node) -> None:
    node.settings.node_config_file.unlink()
    async with node.alive() as snapshots:
        await snapshots.receive()
        node.write("a", GOOD)
        waiting = await snapshots.receive()
        node.identify("nodeIndex: {index: 3}\n")
        identified = await snapshots.receive()
    assert waiting.resources == ()
    (problem,) = errors(waiting.problems)
    assert problem.origin.path == str(node.settings.node_config_file)
    assert problem.in_force == "the running configuration is kept"
    assert (identified.node.index, kinds(identified), identified.problems) == (3, [Kind.UNDERLAY], ())


async def test_a_restarted_actor_waits_for_an_identity_as_well(node: Node) -> None:
    node.settings.node_config_file.unlink()
    async with node.alive() as snapshots:
        await snapshots.receive()
    node.write("a", GOOD)
    async with node.alive(keep_channels=True) as snapshots:
        while not errors((waiting := await snapshots.receive()).problems):
            pass
    assert waiting.resources == ()


async def test_an_idle_daemon_says_that_it_waits_for_an_interface_and_answers_a_reload(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.static_config.actor.INTERFACE_SECONDS", 0.05)
    node.settings.node_config_file.unlink()
    async with node.alive() as snapshots:
        await snapshots.receive()
        node.identify("nodeIndex: {interfaceName: eth9}\n")
        node.write("a", GOOD)
        while not errors((waiting := await snapshots.receive()).problems):
            pass
        node.reload.set(1)
        while (answer := await snapshots.receive()).reload_id < 1:
            pass
        node.addresses = lambda name: (IPv4Interface("192.0.2.9/24"),)
        while not kinds(late := await snapshots.receive()):
            pass
    assert (waiting.resources, answer.resources) == ((), ())
    assert ["eth9" in problem.message for problem in errors(answer.problems)] == [True]
    assert (late.node.index, late.problems) == (9, ())


async def test_an_interface_that_comes_late_gives_the_index_then(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.static_config.actor.INTERFACE_SECONDS", 0.05)
    node.write("a", GOOD)
    node.identify("nodeIndex: {interfaceName: eth9}\n")
    looks: list[str] = []

    def addresses(name: str) -> tuple[IPInterface, ...]:
        looks.append(name)
        return (IPv4Interface("192.0.2.9/24"),) if len(looks) > 2 else ()

    node.addresses = addresses
    async with node.alive() as snapshots:
        assert (await snapshots.receive()).node.index == 9
    assert looks[:3] == ["eth9"] * 3


async def test_a_reload_says_which_settings_need_a_restart_until_they_are_as_before(node: Node) -> None:
    node.write("a", GOOD)
    async with node.alive() as snapshots:
        await snapshots.receive()
        node.set(settleSeconds=0.1, logLevel="debug")
        node.write("red", RED)
        assert (await snapshots.receive()).problems == ()
        node.reload.set(1)
        warned = await snapshots.receive()
        node.set(settleSeconds=0.05)
        node.reload.set(2)
        assert (await snapshots.receive()).problems == ()
    (problem,) = warned.problems
    assert (problem.severity, problem.message) == ("warning", "restart needed for: logLevel, settleSeconds")
    assert problem.origin.path == str(node.settings_file)
    assert warned.reload_id == 1
    assert kinds(warned) == [Kind.UNDERLAY, Kind.L3VNI]


async def test_a_reload_of_an_idle_daemon_says_it_as_well(node: Node) -> None:
    node.settings.node_config_file.unlink()
    async with node.alive() as snapshots:
        await snapshots.receive()
        node.set(settleSeconds=0.05, netns="other")
        node.reload.set(1)
        assert [problem.message for problem in (await snapshots.receive()).problems] == ["restart needed for: netns"]


async def test_unusable_settings_are_reported_at_a_reload_with_their_place_and_stop_nothing(node: Node) -> None:
    node.write("a", GOOD)
    (node.settings_file.parent / "conf.d").mkdir()
    fragment = node.settings_file.parent / "conf.d" / "10.yaml"
    async with node.alive() as snapshots:
        await snapshots.receive()
        fragment.write_text("# why\nlogLevel: loud\nnetns: other\n")
        node.reload.set(1)
        snapshot = await snapshots.receive()
    (problem,) = errors(snapshot.problems)
    assert (problem.origin.path, problem.origin.line, problem.field) == (str(fragment), 2, "logLevel")
    assert problem.in_force == "the daemon keeps the settings with which it was started; it cannot start with these"
    assert kinds(snapshot) == [Kind.UNDERLAY]


async def test_a_daemon_that_waits_for_its_identity_reports_its_settings_as_well(node: Node) -> None:
    node.settings.node_config_file.unlink()
    async with node.alive() as snapshots:
        await snapshots.receive()
        node.write("a", GOOD)
        await snapshots.receive()
        node.set(settleSeconds=0.05, netns="other")
        node.reload.set(1)
        assert "restart needed for: netns" in [problem.message for problem in (await snapshots.receive()).problems]


ROUTE = HostNetwork(ip_network("100.65.3.0/24"), "the host's route 100.65.3.0/24")


def ranged(cidr: str) -> str:
    return GOOD.replace("100.65.0.0/24", cidr)


def cidrs(snapshot: StaticSnapshot) -> tuple[str, ...]:
    (resource,) = snapshot.resources
    return tuple(resource.spec.tunnel_endpoint.cidrs)


async def test_tunnel_endpoints_that_take_a_network_of_the_host_do_not_replace_those_in_force(node: Node) -> None:
    node.networks = (ROUTE,)
    path = node.write("a", ranged("100.65.0.0/24"))
    async with node.alive() as snapshots:
        assert cidrs(await snapshots.receive()) == ("100.65.0.0/24",)
        path.write_text(ranged("100.65.0.0/16"))
        snapshot = await snapshots.receive()
        assert cidrs(snapshot) == ("100.65.0.0/24",)
        (problem,) = snapshot.problems
        assert problem.message == "100.65.0.0/16 contains the host's route 100.65.3.0/24"
        assert problem.in_force == RUNNING_KEPT
    # A restart finds the same files, and decides the same.
    async with node.alive() as snapshots:
        assert cidrs(await snapshots.receive()) == ("100.65.0.0/24",)
    node.networks = ()
    async with node.alive() as snapshots:
        snapshot = await snapshots.receive()
        assert (cidrs(snapshot), snapshot.problems) == (("100.65.0.0/16",), ())
    # From now on it is the one in force, whatever routes the host gets.
    node.networks = (ROUTE,)
    for _ in range(2):
        async with node.alive() as snapshots:
            assert cidrs(await snapshots.receive()) == ("100.65.0.0/16",)


async def test_a_first_start_does_not_remember_refused_tunnel_endpoints(node: Node) -> None:
    node.networks = (ROUTE,)
    node.write("a", ranged("100.65.0.0/16"))
    for _ in range(2):
        async with node.alive() as snapshots:
            # What is published says so itself, in the next actor: there is nothing to fall back to.
            assert cidrs(await snapshots.receive()) == ("100.65.0.0/16",)
        assert not read_texts(node.settings.state_dir / "in-force.json").texts


async def test_refused_tunnel_endpoints_stay_refused_however_often_the_files_change(node: Node) -> None:
    node.networks = (ROUTE,)
    node.write("a", ranged("100.65.0.0/16"))
    async with node.alive() as snapshots:
        await snapshots.receive()
        for number in range(2):
            node.write("red", RED.replace("100", f"20{number}"))
            assert (await snapshots.receive()).resources[1].spec.vni == 200 + number
            assert not read_texts(node.settings.state_dir / "in-force.json").texts


async def test_the_machines_networks_are_read_for_new_tunnel_endpoints_only(node: Node) -> None:
    reads = 0

    def counted() -> tuple[HostNetwork, ...]:
        nonlocal reads
        reads += 1
        return ()

    node.read_networks = counted
    path = node.write("a", ranged("100.65.0.0/24"))
    async with node.alive() as snapshots:
        await snapshots.receive()
        assert reads == 1
        node.write("red", RED)
        await snapshots.receive()
        # What a reload has answered is on disk.
        node.reload.set(1)
        await snapshots.receive()
        assert reads == 1
    # A restart finds the files that are in force.
    async with node.alive() as snapshots:
        assert kinds(await snapshots.receive()) == [Kind.UNDERLAY, Kind.L3VNI]
        assert reads == 1
        path.write_text(ranged("100.66.0.0/24"))
        await snapshots.receive()
        assert reads == 2


async def test_tunnel_endpoints_that_were_edited_between_two_starts_are_compared_with_the_hosts_networks(
    node: Node,
) -> None:
    path = node.write("a", ranged("100.65.0.0/24"))
    async with node.alive() as snapshots:
        await snapshots.receive()
        node.reload.set(1)
        await snapshots.receive()
    node.networks = (ROUTE,)
    path.write_text(ranged("100.65.0.0/16"))
    async with node.alive() as snapshots:
        snapshot = await snapshots.receive()
        assert cidrs(snapshot) == ("100.65.0.0/24",)
        (problem,) = snapshot.problems
        assert problem.message == "100.65.0.0/16 contains the host's route 100.65.3.0/24"


@pytest.mark.parametrize("was_in_force", [True, False])
async def test_an_underlay_moves_from_the_api_to_a_file_although_the_host_has_a_route_in_its_range(
    node: Node, *, was_in_force: bool
) -> None:
    """Its range is in force: once the object is deleted the file takes its place."""
    spec = yaml.safe_load(ranged("100.65.0.0/16"))["underlays"][0]
    one = ApiObject(Kind.UNDERLAY, node.settings.namespace, "fabric", spec=spec)
    saved = SavedSnapshot("node-a", ApiSnapshot(objects=(one,)), {one.id: Held("")} if was_in_force else {})
    (node.settings.state_dir / "api-snapshot.json").write_text(to_json(saved))
    node.networks = (ROUTE,)
    node.write("red", RED)
    async with node.alive() as snapshots:
        assert kinds(await snapshots.receive()) == [Kind.L3VNI]
        path = node.write("a", ranged("100.65.0.0/16"))
        snapshot = await snapshots.receive()
        assert kinds(snapshot) == ([Kind.UNDERLAY, Kind.L3VNI] if was_in_force else [Kind.L3VNI])
        assert bool(snapshot.problems) is not was_in_force
        # A wider one is new.
        path.write_text(ranged("100.64.0.0/10"))
        (problem,) = (await snapshots.receive()).problems
        assert problem.message == "100.64.0.0/10 contains the host's route 100.65.3.0/24"
