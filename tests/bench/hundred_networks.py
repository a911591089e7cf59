"""A hundred networks at once: as custom resources, against the same from a file, on one emulated node with real FRR.

    make bench-networks [NETWORKS=100]

The baseline is a file dropped into the configuration directory. Counted are FRR's applications (the journal's "FRR runs
the desired configuration, verified"), and the time from the user's command until the node says that the newest
configuration is verified. Custom resources are written by one ``kubectl apply`` and half of them removed by one
``kubectl delete``; their times include kubectl's own.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

import yaml

from config.api import API_VERSION
from demo import topology
from guestvm.image import ensure_image
from guestvm.machine import Machine
from kubeserver import build
from supervisor.logs import message_ids
from tests.cluster.harness import ClusterServer
from tests.guest.cluster import NAMESPACE, Cluster, give_credentials, give_uplink
from tests.guest.commands import CONFIGS, has_link, status, write

_SECONDS = 900
_FILE = f"{CONFIGS}/openpe_bench.yaml"


@dataclass(frozen=True, slots=True)
class Figure:
    """One change: seconds until it was verified, and how often FRR was written to."""

    what: str
    seconds: float
    applications: int


def networks(first: int, last: int) -> list[dict[str, object]]:
    """Return the specs of L3VNIs with a host session each."""
    return [
        {
            "vrf": f"bench{number}",
            "vni": 5000 + number,
            "hostSession": {"asn": 64514, "hostASN": 64515, "localCIDR": {"ipv4": f"10.{100 + number}.0.0/24"}},
        }
        for number in range(first, last)
    ]


def as_file(count: int) -> str:
    """Return a router configuration file with that many networks."""
    return yaml.safe_dump({"l3vnis": [{"name": spec["vrf"], **spec} for spec in networks(0, count)]})


def as_objects(first: int, last: int) -> str:
    """Return the same as custom resources."""
    return yaml.safe_dump_all(
        {
            "apiVersion": API_VERSION,
            "kind": "L3VNI",
            "metadata": {"name": str(spec["vrf"]), "namespace": NAMESPACE},
            "spec": spec,
        }
        for spec in networks(first, last)
    )


class Bench:
    """A node in its cluster, and a stopwatch."""

    def __init__(self, node: Machine, cluster: Cluster) -> None:
        self.node = node
        self.kubeconfig = cluster.server.admin_kubeconfig()

    def kubectl(self, verb: str, objects: str) -> None:
        """Run kubectl as an administrator does."""
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), verb, "-f", "-", "--wait=false"]
        if verb == "apply":
            command.pop()
        subprocess.run(command, input=objects, text=True, check=True, stdout=subprocess.DEVNULL)

    def measure(self, what: str, change: Callable[[], object], count: int) -> Figure:
        """Make a change and wait until the node has exactly ``count`` of the networks, verified."""
        cursor = self._applications()
        begin = time.monotonic()
        change()
        self._wait(count, begin)
        figure = Figure(what, time.monotonic() - begin, self._applications() - cursor)
        print(f"{what}: {figure.seconds:.1f} s, FRR applications: {figure.applications}", flush=True)
        return figure

    def _wait(self, count: int, begin: float) -> None:
        while not self._has(count):
            if time.monotonic() - begin > _SECONDS:
                raise SystemExit(f"{count} networks are not in force after {_SECONDS} s")
            time.sleep(0.5)

    def _has(self, count: int) -> bool:
        found = status(self.node)
        ours = [vni for vni in found["vnis"] if vni["vrf"].startswith("bench")]
        return bool(found["ready"]) and len(ours) == count and all(vni["ok"] for vni in ours)

    def _applications(self) -> int:
        wanted = f"MESSAGE_ID={message_ids.FRR_VERIFIED}"
        return int(self.node.remote.run(f"journalctl -q -o cat {wanted} | wc -l").stdout)


def run(bench: Bench, count: int) -> None:
    """Print every figure and the ratios."""
    node, half = bench.node, count // 2
    more = bench.measure(f"0 to {count} from a file", lambda: write(node, _FILE, as_file(count)), count)
    fewer = bench.measure(f"{count} to {half} from a file", lambda: write(node, _FILE, as_file(half)), half)
    bench.measure(f"{half} to 0 from a file", lambda: node.remote.run(f"rm {_FILE}"), 0)
    created = bench.measure(f"0 to {count} from the API", lambda: bench.kubectl("apply", as_objects(0, count)), count)
    deleted = bench.measure(
        f"{count} to {half} from the API", lambda: bench.kubectl("delete", as_objects(half, count)), half
    )
    print(f"API to file, {count} more: {created.seconds / more.seconds:.2f}")
    print(f"API to file, {count - half} fewer: {deleted.seconds / fewer.seconds:.2f}")


def main() -> None:
    """Boot, connect, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=100)
    options = parser.parse_args()
    with Machine.boot(ensure_image(), uplink=True) as node:
        server = ClusterServer(build.NEWEST)
        try:
            server.start()
            cluster = Cluster(server, "node1")
            cluster.prepare()
            topology.install(node)
            topology.start(node)
            give_uplink(node)
            give_credentials(node, cluster)
            bench = Bench(node, cluster)
            while not (status(node).get("api") or {}).get("live"):
                time.sleep(1)
            assert has_link(node, "vni100")
            run(bench, options.networks)
        finally:
            server.discard()


if __name__ == "__main__":
    main()
