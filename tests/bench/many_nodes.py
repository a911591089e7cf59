"""Many simulated nodes and one real API server: how many requests each sends when idle, and over a restart.

    make bench-nodes [NODES=200]

Every node runs the program's own crd_watch, status_writer and api_mirror, with an identity of its own, in one process.
The requests are counted in the server's audit log. The figures are requests a node, so they do not depend on the
machine; the time until the last node watches again is given as a multiple of the server's own start.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from actors.api_mirror import actor as mirror
from actors.crd_watch import actor as crd_watch
from actors.status_writer import actor as status_writer
from config.api import API_VERSION, ApiAccess, ApiCredentials, ApiReach, ApiSnapshot
from config.desired import DesiredState
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome, NodeIdentity, StaticSnapshot
from config.resolve.resolution import resolve
from config.settings import Settings
from config.sources.static_files import read_directory
from config.store.last_good import LastGood
from kubeserver import build
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.cluster.harness import ClusterServer, install_crds, kube, make_namespace, make_node

NAMESPACE = "openperouter-system"
_UNDERLAY = """\
underlays:
  - asn: 64514
    neighbors: [{asn: 64512, address: 192.168.11.2}]
    interfaces: [{type: NetworkDevice, networkDevice: {interfaceName: toswitch}}]
    tunnelEndpoint: {cidrs: [100.64.0.0/16]}
"""
_SHARED_VNIS = 20
_USER = "bench:"


@dataclass
class SimulatedNode:
    """One node's channels; FRR and the kernel are reported as healthy."""

    name: str
    index: int
    settings: Settings
    access: Latest[ApiAccess] = field(default_factory=lambda: Latest("access"))
    static: Latest[StaticSnapshot] = field(default_factory=lambda: Latest("static"))
    api: Latest[ApiSnapshot] = field(default_factory=lambda: Latest("api"))
    desired: Latest[DesiredState] = field(default_factory=lambda: Latest("desired"))
    frr: Latest[FrrOutcome] = field(default_factory=lambda: Latest("frr"))
    kernel: Latest[KernelOutcome] = field(default_factory=lambda: Latest("kernel"))
    health: Latest[HealthReport] = field(default_factory=lambda: Latest("health"))

    @property
    def live(self) -> bool:
        """Whether the node watches."""
        snapshot = self.api.peek()
        return snapshot is not None and snapshot.live

    def begin(self, credentials: ApiCredentials) -> None:
        """Publish what the actors upstream would."""
        identity = NodeIdentity(self.name, self.index)
        files = read_directory(self.settings.configs_dir, self.name, LastGood())
        self.static.set(StaticSnapshot(identity, files.resources, files.problems))
        state = resolve(files.resources, identity).desired
        assert state is not None
        self.desired.set(state)
        self.frr.set(FrrOutcome(state, applied=True))
        self.kernel.set(KernelOutcome(state, applied=True))
        self.health.set(HealthReport(1, 0, verified=True, summary="healthy"))
        self.access.set(ApiAccess(ApiReach.REACHABLE, credentials))

    def start(self, nursery: trio.Nursery) -> None:
        """Run the actors."""
        settings = self.settings

        async def watch() -> None:
            snapshots = self.static.reader()
            await crd_watch.run(
                ActorContext("crd_watch"),
                settings=settings,
                access=self.access.reader(),
                snapshots=snapshots,
                out=self.api,
            )

        async def report() -> None:
            await status_writer.run(
                ActorContext("status_writer"),
                settings=settings,
                access=self.access.reader(),
                api=self.api.reader(),
                desired=self.desired.reader(),
                frr=self.frr.reader(),
                kernel=self.kernel.reader(),
                health=self.health.reader(),
            )

        async def show() -> None:
            snapshots = self.static.reader()
            await mirror.run(
                ActorContext("api_mirror"),
                settings=settings,
                access=self.access.reader(),
                snapshots=snapshots,
                api=self.api.reader(),
            )

        for actor in (watch, report, show):
            nursery.start_soon(actor)


async def prepare(server: ClusterServer, nodes: list[SimulatedNode]) -> None:
    """Create the objects that the nodes will find."""
    async with kube(server.admin) as client:
        await install_crds(client)
        await make_namespace(client, NAMESPACE)
        for node in nodes:
            await make_node(client, node.name)
        for number in range(_SHARED_VNIS):
            name = f"tenant-{number}"
            body = {
                "apiVersion": API_VERSION,
                "kind": "L3VNI",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"vrf": f"t{number}", "vni": 1000 + number},
            }
            await client.create(f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/l3vnis", body)


async def all_live(nodes: list[SimulatedNode], seconds: float) -> float:
    """Wait until every node watches; return how long it took."""
    begin = time.monotonic()
    with trio.fail_after(seconds):
        while not all(node.live for node in nodes):  # noqa: ASYNC110 - two hundred cells have no common event
            await trio.sleep(0.05)
    return time.monotonic() - begin


def per_node(server: ClusterServer, since: int, nodes: int) -> tuple[int, str]:
    """Return how many requests of the nodes there are by now, and a table of those since then, a node."""
    requests = [what for event in server.audit() if (what := _request_of(event))]
    counts = Counter(requests[since:])
    lines = [f"    {count / nodes:6.2f}  {what}" for what, count in counts.most_common()]
    return len(requests), "\n".join([f"    {sum(counts.values()) / nodes:6.2f}  in all", *lines])


def _request_of(event: Mapping[str, Any]) -> str:
    """Return the request of a node, "" for the end of a watch and for another client's request."""
    stage = "ResponseStarted" if event["verb"] == "watch" else "ResponseComplete"
    if not event["user"]["username"].startswith(_USER) or event["stage"] != stage:
        return ""
    about = event.get("objectRef", {})
    resource = "/".join(filter(None, [about.get("resource"), about.get("subresource")]))
    return f"{event['verb']} {resource or event['requestURI']}"


async def measure(server: ClusterServer, nodes: list[SimulatedNode], idle_seconds: float) -> None:
    """Run everything once and print the figures."""
    begin = time.monotonic()
    await trio.to_thread.run_sync(server.start)
    baseline = time.monotonic() - begin
    await prepare(server, nodes)
    seen, _ = per_node(server, 0, len(nodes))
    async with trio.open_nursery() as nursery:
        for node in nodes:
            node.begin(server.credentials(f"{_USER}{node.name}", ["system:masters"]))
            node.start(nursery)
        await all_live(nodes, 300)
        await trio.sleep(idle_seconds)
        seen, table = per_node(server, seen, len(nodes))
        print(f"requests a node from start to {idle_seconds:g} s later:\n{table}", flush=True)
        await trio.sleep(idle_seconds)
        seen, table = per_node(server, seen, len(nodes))
        print(f"requests a node in {idle_seconds:g} s of quiet:\n{table}", flush=True)
        await trio.to_thread.run_sync(server.stop)
        while any(node.live for node in nodes):  # noqa: ASYNC110 - see all_live
            await trio.sleep(0.05)
        await trio.to_thread.run_sync(server.start)
        seconds = await all_live(nodes, 300)
        await trio.sleep(idle_seconds)
        seen, table = per_node(server, seen, len(nodes))
        print(f"requests a node over a restart of the server, and {idle_seconds:g} s after:\n{table}")
        print(f"all watch again {seconds / baseline:.1f} starts of a server after it was ready")
        nursery.cancel_scope.cancel()


def main() -> None:
    """Measure with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds of quiet")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # every node logs that its server is unreachable
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        root = Path(name)
        configs = root / "configs"
        configs.mkdir()
        (configs / "openpe_underlay.yaml").write_text(_UNDERLAY)
        nodes = []
        for index in range(options.nodes):
            state = root / f"node-{index}"
            state.mkdir()
            settings = Settings(configs_dir=configs, state_dir=state, run_dir=state)
            nodes.append(SimulatedNode(f"node-{index}", index, settings))
        server = ClusterServer(build.NEWEST, logs=root / "logs")
        try:
            trio.run(measure, server, nodes, options.idle)
        finally:
            server.discard()


if __name__ == "__main__":
    main()
