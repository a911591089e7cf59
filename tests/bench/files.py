"""CPU of a start with many L3VNIs from one file, stage by stage; a part of :mod:`.performance`.

The stages are the daemon's own functions, on this machine, with nothing but files: read and validate, resolve, plan for
an empty kernel and for one that has everything, render FRR's configuration and compare it with a running one that is
equal. The limit is one second for all of them together with 500 L3VNIs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from actors.frr.diff.difference import difference, intended, parse
from actors.frr.render.render import render
from actors.netlink.converge import converge
from actors.netlink.planning.observed import Link, Namespace
from actors.netlink.planning.plan import plan
from config.outcomes import NodeIdentity, StaticSnapshot
from config.settings import Settings
from config.sources.static_files import read_directory
from config.store.last_good import LastGood
from supervisor.operations.node_configuration import resolve_with
from tests.fakes.kernel import FakeKernel

from .stopwatch import compare, measure

#: Seconds of CPU for all stages together, with 500 L3VNIs.
LIMIT_SECONDS = 1.0

_UNDERLAY = """\
underlays:
- asn: 64514
  interfaces: [{type: NetworkDevice, networkDevice: {interfaceName: eth1}}]
  neighbors: [{asn: 64512, address: 192.168.11.2}]
  tunnelEndpoint: {cidrs: [100.65.0.0/24]}
"""


def configuration(count: int) -> str:
    """Return a router configuration with an underlay and that many L3VNIs with a host session each."""
    return _UNDERLAY + l3vnis(count)


def l3vnis(count: int, first: int = 0) -> str:
    """Return that many L3VNIs with a host session each: ``t0`` with VNI 1000, and so on, or from another one on."""
    numbers = range(first, first + count)
    return "l3vnis:\n" + "".join(l3vni(f"t{number}", 1000 + number, f"{net(number)}.0/24") for number in numbers)


def net(number: int) -> str:
    """Return the first three bytes of a network's addresses; none is an emulated machine's own, 10.0.2.0/24."""
    return f"10.{100 + number // 250}.{number % 250}"


def l3vni(vrf: str, vni: int, subnet: str) -> str:
    """Return an L3VNI with a host session as a line of YAML."""
    session = f"{{asn: 64514, hostASN: 64515, localCIDR: {{ipv4: {subnet}}}}}"
    return f"- {{vrf: {vrf}, vni: {vni}, hostSession: {session}}}\n"


def run(count: int, directory: Path) -> bool:
    """Measure every stage; return whether the limit was kept."""
    settings = Settings(configs_dir=directory, state_dir=directory / "state", run_dir=directory / "run")
    (directory / "openpe_bench.yaml").write_text(configuration(count))
    node = NodeIdentity("node1", 1)
    load, read = measure("read and validate", lambda: read_directory(directory, "node1", LastGood(), namespace="ns"))
    static = StaticSnapshot(node, read.resources, read.problems)
    resolution_cpu, resolution = measure("resolve", lambda: resolve_with(None, settings, static))
    desired = resolution.desired
    if desired is None or len(desired.l3vnis) != count:
        raise SystemExit(f"the configuration is not usable: {[str(problem) for problem in resolution.problems][:3]}")
    kernel = FakeKernel()
    kernel.add(Namespace.HOST, Link(0, "eth1", up=True))
    observed = kernel.observe(desired)
    first, planned = measure("plan for an empty kernel", lambda: plan(desired, observed))
    converge(desired, kernel)
    complete = kernel.observe(desired)
    again, nothing = measure("plan for a complete kernel", lambda: plan(desired, complete))
    assert len(planned.steps) > 10 * count
    assert not nothing.steps
    rendering, rendered = measure("render", lambda: render(desired, hostname="node1"))
    text = rendered.text
    comparing, found = measure("compare with FRR's", lambda: difference(intended(rendered), parse(text)))
    assert not found
    total = load + resolution_cpu + first + again + rendering + comparing
    return compare(f"all of it, {count} L3VNIs", total, LIMIT_SECONDS * count / 500, "s CPU")


def main() -> int:
    """Measure in a directory of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=500)
    with tempfile.TemporaryDirectory() as directory:
        return 0 if run(parser.parse_args().networks, Path(directory)) else 1


if __name__ == "__main__":
    sys.exit(main())
