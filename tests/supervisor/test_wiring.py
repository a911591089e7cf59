"""The composition root: data flows one way, and each child gets what its actor needs."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path

import pytest
import trio

from actors.netlink.preview import host_networks
from config.settings import Settings
from config.status import Status
from supervisor.process.sd_notify import Notifier
from supervisor.runtime.child import ChildState, ChildStatus
from supervisor.runtime.graph import GraphError
from supervisor.runtime.tree import Supervisor
from supervisor.wiring import COMMANDS, HEEDED, Daemon, actor_status


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    settings = Settings(run_dir=tmp_path / "run", state_dir=tmp_path / "state")
    return Daemon(settings, settings_file=tmp_path / "openperouter.yaml", notifier=Notifier())


def test_data_flows_one_way_from_the_files_to_the_status(daemon: Daemon) -> None:
    lines = str(daemon.graph).splitlines()
    assert "static_config -> [static] -> report, desired, api_mirror, crd_watch" in lines
    assert "api_wait -> [access] -> report, netlink, status_writer, api_mirror, crd_watch" in lines
    assert "crd_watch -> [api] -> report, desired, status_writer, api_mirror" in lines
    assert "desired -> [desired] -> report, health, frr, status_writer" in lines
    assert "frr -> [frr] -> report, health, netlink, status_writer" in lines
    assert "netlink -> [kernel] -> report, refresh, probes, health, status_writer, frr (heeds)" in lines
    assert "probes -> [probes] -> health" in lines
    assert "health -> [health] -> report, status_writer, frr (heeds)" in lines
    assert "report -> [status] -> control, systemd, metrics_endpoint" in lines
    assert "(outside) -> [children] -> report" in lines


def test_the_reload_command_is_the_only_way_against_the_flow(daemon: Daemon) -> None:
    assert "(outside), control (command) -> [reload] -> systemd, static_config" in str(daemon.graph).splitlines()
    assert "control (command) -> [forget_api] -> desired" in str(daemon.graph).splitlines()
    assert {("control", "reload"), ("control", "forget_api")} == COMMANDS
    with pytest.raises(GraphError, match="control commands through reload, which is not declared"):
        daemon.graph.check(commands=(), heeded=HEEDED)


def test_frr_heeds_what_follows_from_its_own_outcome(daemon: Daemon) -> None:
    assert {("frr", "kernel"), ("frr", "health")} == HEEDED
    with pytest.raises(GraphError, match="frr heeds health, which is not declared; frr heeds kernel"):
        daemon.graph.check(commands=COMMANDS)
    with pytest.raises(GraphError, match="netlink does not heed health"):
        daemon.graph.check(commands=COMMANDS, heeded={*HEEDED, ("netlink", "health")})


async def test_each_child_has_all_that_its_actor_needs(daemon: Daemon) -> None:
    for spec in daemon.children():
        parameters = inspect.signature(spec.body()).parameters
        needed = [name for name, one in parameters.items() if one.default is one.empty]
        assert needed == ["ctx"], spec.name


@pytest.mark.parametrize("name", ["static_config", "desired"])
async def test_who_judges_tunnel_endpoints_can_read_the_hosts_networks(daemon: Daemon, name: str) -> None:
    """Without a reader none would be refused."""
    [spec] = [spec for spec in daemon.children() if spec.name == name]
    body = spec.body()
    assert isinstance(body, partial)
    reader = body.keywords["networks"]
    assert (reader.func, reader.args) == (host_networks, (daemon.settings,))


async def test_a_child_s_next_run_reads_its_channels_from_the_newest_value_on(daemon: Daemon) -> None:
    [spec] = [spec for spec in daemon.children() if spec.name == "systemd"]
    daemon.channels.status.set(Status(summary="ready"))
    for _ in range(2):
        body = spec.body()
        assert isinstance(body, partial)
        assert body.keywords["status"].take() == Status(summary="ready")


async def test_every_child_that_decides_about_the_router_is_critical(daemon: Daemon) -> None:
    critical = {child.name for child in daemon.supervisor.snapshot() if child.critical}
    assert critical == {"watchdog", "systemd", "report", "health", "netlink", "frr", "desired", "static_config"}


async def test_consumers_start_before_producers(daemon: Daemon) -> None:
    names = [child.name for child in daemon.supervisor.snapshot()]
    assert names.index("netlink") < names.index("frr") < names.index("desired") < names.index("static_config")


def test_a_child_s_snapshot_keeps_its_meaning_in_the_status() -> None:
    child = ChildStatus(
        name="frr", state=ChildState.BACKOFF, critical=True, incarnation=3, restarts=2, last_error="FRR is not there"
    )
    status = actor_status(child)
    assert (status.name, status.state, status.restarts, status.last_error) == ("frr", "backoff", 2, "FRR is not there")
    assert status.critical
    assert status.incarnation == 3


ROUTER = """\
underlays:
- asn: 64514
  interfaces: [{type: NetworkDevice, networkDevice: {interfaceName: eth1}}]
  neighbors: [{asn: 64512, address: 192.0.2.1, passwordSecret: fabric}]
  tunnelEndpoint: {cidrs: [100.65.0.0/24]}
"""


async def test_a_first_configuration_that_is_still_being_written_starts_once_it_is_complete(tmp_path: Path) -> None:
    configs = tmp_path / "configs"
    (configs / "secrets").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    node_config, router = tmp_path / "node-config.yaml", configs / "openpe_underlay.yaml"
    node_config.write_text("nodeIndex: {index: ")
    router.write_text(ROUTER[:40])
    settings = Settings(
        node_config_file=node_config,
        configs_dir=configs,
        state_dir=tmp_path,
        run_dir=tmp_path / "run",
        settle_seconds=0.05,
    )
    daemon = Daemon(settings, settings_file=tmp_path / "openperouter.yaml", notifier=Notifier())
    specs = [spec for spec in daemon.children() if spec.name in ("desired", "static_config")]
    supervisor = Supervisor(specs)

    async def failed(name: str, reason: str) -> None:
        """Wait until a child has failed for this reason, at least."""
        statuses = supervisor.statuses.reader()
        while not any(one.name == name and reason in one.last_error for one in await statuses.receive()):
            assert not supervisor.stopping

    async with trio.open_nursery() as nursery:
        with trio.fail_after(60):
            nursery.start_soon(supervisor.run)
            await failed("static_config", "no node index")
            node_config.write_text("nodeIndex: {index: 0}\n")
            await failed("desired", "no usable configuration")
            router.write_text(ROUTER)
            (configs / "secrets" / "fabric").write_text("correct-horse")
            state = await daemon.channels.desired.reader().receive()
        assert state.underlay is not None
        supervisor.stop()
