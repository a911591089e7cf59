"""5 000 nodes and 1 000 objects: what a change costs in requests, on a server in memory and a virtual clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from actors.controller import writer
from actors.controller.aggregation import DUPLICATE_INDEX
from actors.controller.cluster_state import (
    ClusterDecoder,
    ClusterNode,
    ClusterState,
    NodeReport,
    ObjectKey,
    ObjectReport,
)
from actors.controller.election import Term
from config.api import ApiCredentials
from config.problems import Kind
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.fakes.api_server import FakeApiServer, path_of

NODES = 5000
OBJECTS = 1000
#: How many nodes report in a second (docs/cluster.md).
RATE = 100

#: A busy machine takes minutes for it.
pytestmark = [pytest.mark.usefixtures("autojump_clock"), pytest.mark.timeout(900)]


class Cluster:
    """The state that the watch would publish, and the writer that reads it."""

    def __init__(self) -> None:
        self.server = FakeApiServer()
        self.credentials: Latest[ApiCredentials] = Latest("credentials")
        self.term: Latest[Term] = Latest("term")
        self.cluster: Latest[ClusterState] = Latest("cluster")
        self.decoder = ClusterDecoder()
        names = [f"node-{number:04}" for number in range(NODES)]
        self.nodes = {
            name: ClusterNode(name, name, {"kubernetes.io/hostname": name}, str(number), by_node=True)
            for number, name in enumerate(names)
        }
        for number in range(OBJECTS):
            self.server.put("l3vnis", f"vrf{number:03}", {"vni": number + 1}, namespace="demo")
        self.seen = {self.key(number): ObjectReport(1, in_force=True) for number in range(OBJECTS)}
        self.reports = dict.fromkeys(names, NodeReport(self.seen))
        self.objects = {one.key: one for one in map(self.decoded, range(OBJECTS))}

    @staticmethod
    def key(number: int) -> ObjectKey:
        return ObjectKey("L3VNI", "demo", f"vrf{number:03}")

    def decoded(self, number: int):  # type: ignore[no-untyped-def]
        return self.decoder.object(Kind.L3VNI, self.server.objects[path_of("l3vnis", f"vrf{number:03}", "demo")])

    def publish(self) -> None:
        """Publish what the server has now, as the watch does: what did not change is the same object as before."""
        for number in range(OBJECTS):
            if (new := self.decoded(number)) != self.objects[new.key]:
                self.objects[new.key] = new
        self.cluster.set(ClusterState(self.nodes, dict(self.reports), dict(self.objects), live=True))

    async def run(self) -> None:
        self.credentials.set(self.server.credentials())
        self.term.set(Term(1e12, 1))
        await writer.run(
            ActorContext("writer"),
            credentials=self.credentials.reader(),
            term=self.term.reader(),
            cluster=self.cluster.reader(),
            connect=self.server.connect,
        )

    async def settled(self) -> int:
        """Let everything be written; return how many requests there were so far."""
        requests = -1
        while requests != len(self.server.requests):
            requests = len(self.server.requests)
            self.publish()
            await trio.sleep(60)
        return requests

    def message(self, number: int) -> str:
        one = self.server.objects[path_of("l3vnis", f"vrf{number:03}", "demo")]
        found: str = one["status"]["conditions"][0]["message"]
        return found


async def test_requests_of_a_large_cluster(autojump_clock: MockClock) -> None:
    cluster = Cluster()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.run)
        first = await cluster.settled()
        assert first == OBJECTS
        # One object changes, and every node reports it.
        cluster.server.put("l3vnis", "vrf007", {"vni": 4000}, namespace="demo")
        new = NodeReport({**cluster.seen, cluster.key(7): ObjectReport(2, in_force=True)})
        cluster.publish()
        await trio.sleep(1)
        names = list(cluster.nodes)
        for begin in range(0, NODES, RATE):
            cluster.reports.update(dict.fromkeys(names[begin : begin + RATE], new))
            cluster.publish()
            await trio.sleep(1)
        rolled_out = await cluster.settled()
        assert cluster.message(7) == f"{NODES}/{NODES} nodes"
        assert 3 <= rolled_out - first <= 8
        # One node fails to have one object.
        bad = {**new.resources, cluster.key(8): ObjectReport(1, in_force=False)}
        cluster.reports[names[5]] = NodeReport(bad, {cluster.key(8): "refused"})
        failed = await cluster.settled()
        assert cluster.message(8) == f"{NODES - 1}/{NODES} nodes; failing on node-0005 (refused)"
        assert failed - rolled_out == 1
        # A label of a node changes, and nothing else.
        cluster.nodes = {**cluster.nodes, names[9]: replace(cluster.nodes[names[9]], labels={"rack": "1"})}
        assert await cluster.settled() == failed
        # Two nodes get the same index: an Event for each, and there is no Underlay.
        cluster.nodes = {**cluster.nodes, names[9]: replace(cluster.nodes[names[9]], annotation="8")}
        assert await cluster.settled() - failed == 2
        assert [one["reason"] for one in cluster.server.find("/events/")] == [DUPLICATE_INDEX] * 2
        nursery.cancel_scope.cancel()
