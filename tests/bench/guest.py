"""A whole node with many L3VNIs, as its users see it: a booted Debian 13 with systemd and FRR, under emulation.

    make bench-guest [NETWORKS=100]

Changes are made by replacing one file: none to all, one more, half of them less. Each counts to the journal's line that
the kernel is configured and verified, which follows FRR's. A restart counts from exec to READY=1, as systemd saw both.
The minute at rest counts CPU of the daemon with its programs, and its baseline is the CPU of another Python process in
the same minute, which wakes every five seconds to read and decode 100 kB of JSON in a thread. The floors, last and in
the same machine with the daemon stopped, are what ``vtysh -f`` and ``ip -batch`` take for the same lines and devices;
they verify nothing.

Python is about 20 times slower there than on the host, so quote the ratios. Repeated samples show the best.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from config.status import Status
from demo import topology
from guestvm.errors import GuestError
from guestvm.image import ensure_image
from guestvm.machine import Machine
from supervisor.logs import message_ids
from tests.frr.harness import DAEMONS
from tests.guest.commands import CONFIGS, property_of, write

from .files import l3vnis
from .kernel import in_host, in_router, veth_in_router
from .stopwatch import compare

NAMESPACE = "perouter"
FILE = f"{CONFIGS}/openpe_bench.yaml"
FRR_CONF = f"/etc/frr/{NAMESPACE}/frr.conf"
STATE = "/run/openperouter/state.json"
#: What the daemon logs before it changes FRR, a text without an ID.
CHANGING = "changing FRR's configuration"
#: Nothing that is measured here hangs for so long.
SECONDS = 1800
MORE = 3
RESTARTS = 3
MINUTES = 2
#: After a change, health is polled, and routes are counted.
SETTLE_SECONDS = 60
IN_FORCE_SECONDS = 300
#: bgpd learns of hundreds of new devices from zebra within minutes.
UNTIL_SECONDS = 900
#: Prints the seconds of CPU that it takes to wake twelve times in a minute.
_REFERENCE = """\
import json, threading, time
text = json.dumps([{"vrf": f"t{number}", "peers": [number, "Idle"]} for number in range(2500)])
with open("/run/reference", "w") as file:
    file.write(text)
began, used = time.monotonic(), time.process_time()
for turn in range(1, 13):
    time.sleep(max(0, began + 5 * turn - time.monotonic()))
    thread = threading.Thread(target=lambda: json.load(open("/run/reference")))
    thread.start()
    thread.join()
print(time.process_time() - used)
"""
_CGROUPS = "/sys/fs/cgroup/system.slice"
#: CPU of these, with all their processes.
_UNITS = {"daemon": "openperouter.service", "FRR": f"system-frr.slice/frr@{NAMESPACE}.service"}
#: Counts what bgpd has of L3VNIs, without failing for none.
_L3VNIS = f"vtysh -N {NAMESPACE} -d bgpd -c 'show bgp l2vpn evpn vni' | sed -n '/ L3 /p' | wc -l"
#: A block of FRR's configuration that belongs to a VRF.
_BLOCK = re.compile(r"^(?:vrf|router bgp \d+ vrf) (\S+)\n(?: .*\n|!\n)*exit(?:-vrf)?\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Change:
    """What a change took, in seconds: until it is verified, and of CPU by unit."""

    total: float
    frr: float
    kernel: float
    cpu: dict[str, float]

    def __str__(self) -> str:
        cpu = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.cpu.items())
        reading = self.total - self.frr - self.kernel
        return f"{self.total:.1f} s (reading {reading:.1f}, FRR {self.frr:.1f}, kernel {self.kernel:.1f}); CPU: {cpu}"


class Node:
    """A booted node with the example configuration in force, and what is measured on it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def run(self, command: str, *, seconds: float = SECONDS, stdin: str | None = None) -> str:
        """Run a shell command; return its output."""
        return self.machine.remote.run(command, seconds=seconds, stdin=stdin).stdout

    def cpu(self) -> dict[str, float]:
        """Return the seconds of CPU of each unit since it was started."""
        files = " ".join(f"{_CGROUPS}/{unit}/cpu.stat" for unit in _UNITS.values())
        used = re.findall(r"^usage_usec (\d+)$", self.run(f"cat {files}"), re.MULTILINE)
        return dict(zip(_UNITS, (int(one) / 1e6 for one in used), strict=True))

    def memory(self) -> dict[str, float]:
        """Return the daemon's resident memory in MB, and its wakeups until now."""
        proc = f"/proc/{property_of(self.machine, 'MainPID')}"
        found = dict(re.findall(r"^(\w+):\s+(\d+)", self.run(f"cat {proc}/status"), re.MULTILINE))
        # A thread may end meanwhile.
        threads = self.run(f"cat {proc}/task/*/status 2>/dev/null; true")
        switches = re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", threads, re.MULTILINE)
        return {
            "VmRSS": int(found["VmRSS"]) / 1024,
            "VmHWM": int(found["VmHWM"]) / 1024,
            "wakeups": sum(map(int, switches)),
        }

    def change(self, what: str, count: int) -> Change:
        """Configure that many networks; print and return what that took."""
        before = self.cpu()
        began = self.configure(l3vnis(count))
        after = self.cpu()
        marks = list(self._marks(_since(began)))
        changing, verified, configured = (
            max((seconds for seconds, line in marks if wanted in line), default=began)
            for wanted in (CHANGING, message_ids.FRR_VERIFIED, message_ids.KERNEL_CONFIGURED)
        )
        used = {name: after[name] - before[name] for name in after}
        found = Change(configured - began, verified - changing, configured - verified, used)
        print(f"{what:<40} {found}", flush=True)
        self.until_in_force(count)
        return found

    def configure(self, text: str) -> float:
        """Replace the file, wait until that is verified in FRR and the kernel; return when it began, a Unix second."""
        began = float(self.run(f"cat >{FILE}.new && date +%s.%N && mv {FILE}.new {FILE}", stdin=text))
        # One program that follows: asking again and again takes much of the second CPU from what is measured.
        follow = f"exec journalctl -q -f -n all -o cat {_since(began)} MESSAGE_ID={message_ids.KERNEL_CONFIGURED}"
        self.run(f"bash -c 'exec 3< <({follow}); read -r _ <&3; kill $!'")
        return began

    def until_in_force(self, count: int) -> None:
        """Wait until the status shows that many networks, each verified by health as well."""
        deadline = time.monotonic() + IN_FORCE_SECONDS
        while lacking := self._lacks(count):
            if time.monotonic() > deadline:
                raise GuestError(f"{count} networks are not in force after {IN_FORCE_SECONDS} s: {lacking}")
            self.run("sleep 1")

    def _marks(self, since: str) -> Iterator[tuple[float, str]]:
        """Yield the Unix second and all fields of each of the daemon's log lines since then."""
        for line in self.run(f"journalctl -q --all -o json -u openperouter {since}").splitlines():
            yield int(json.loads(line)["__REALTIME_TIMESTAMP"]) / 1e6, line

    def _lacks(self, count: int) -> str:
        """Return what the status lacks, or nothing."""
        status = Status.from_json(self.run(f"cat {STATE}"))
        ours = [vni for vni in status.vnis if re.fullmatch(r"t\d+", vni.vrf)]
        faults = [f"{vni.vrf}: {vni.detail}" for vni in ours if not vni.ok]
        if status.ready and len(ours) == count and not faults:
            return ""
        return "; ".join((status.phase, f"{len(ours)} networks", f"{len(faults)} with a fault", *faults[:3]))

    def restart(self) -> tuple[float, float]:
        """Restart with nothing changed; return the seconds from exec to READY=1, and the daemon's CPU until then."""
        self.run("systemctl restart openperouter")
        cpu = self.cpu()["daemon"]
        began, ready = (
            int(property_of(self.machine, name)) / 1e6
            for name in ("ExecMainStartTimestampMonotonic", "ActiveEnterTimestampMonotonic")
        )
        return ready - began, cpu

    def rest(self) -> tuple[float, float, float]:
        """Return the daemon's CPU in a minute, the reference's, and the daemon's wakeups."""
        cpu, wakeups = self.cpu()["daemon"], self.memory()["wakeups"]
        reference = float(self.run("python3 -", stdin=_REFERENCE))
        return self.cpu()["daemon"] - cpu, reference, self.memory()["wakeups"] - wakeups

    def timed(self, *commands: str) -> float:
        """Return the seconds of some commands, one after the other."""
        script = "; ".join(("set -e; date +%s.%N", *commands, "date +%s.%N"))
        began, *_, ended = self.run(script).split()
        return float(ended) - float(began)


class Floors:
    """What FRR's and the kernel's own tools take for the same networks, on a node whose daemon is stopped.

    ``configuration`` is FRR's with all networks, of which the node has none now. From now on watchfrr ignores silent
    daemons: hundreds of devices at once silence zebra for longer than it waits until it restarts all of FRR.
    """

    def __init__(self, node: Node, configuration: str) -> None:
        self.node = node
        for daemon in DAEMONS:
            self.node.run(f"vtysh -N {NAMESPACE} -d watchfrr -c 'watchfrr ignore {daemon}'")
        self.blocks = [(match[1], match[0]) for match in _BLOCK.finditer(configuration)]
        self.others = int(node.run(_L3VNIS))

    def add(self, first: int, last: int) -> float:
        """Add networks; return the seconds of ``vtysh -f`` and ``ip -batch`` together."""
        names = {f"t{number}" for number in range(first, last)}
        lines = [text for name, text in self.blocks if name in names]
        if len(lines) != 2 * len(names):
            raise GuestError(f"FRR's configuration has {len(lines)} blocks of {len(names)} networks")
        files = [
            self._file("frr", lines),
            *(
                self._file(name, (f"{line}\n" for number in range(first, last) for line in commands(number)))
                for name, commands in (
                    ("router", in_router),
                    ("host", partial(in_host, netns=NAMESPACE)),
                    ("veth", veth_in_router),
                )
            ),
        ]
        frr, router, host, veth = files
        inside = f"ip -n {NAMESPACE} -batch"
        return self.node.timed(_vtysh(frr), f"{inside} {router}", f"ip -batch {host}", f"{inside} {veth}")

    def learn(self, count: int) -> float:
        """Wait until bgpd has learned that many networks from zebra; return the seconds."""
        return self.node.timed(self._until(f"-ge {self.others + count}"))

    def remove(self, first: int, last: int) -> float:
        """Remove the last networks: from FRR, their devices, and what FRR keeps of a VRF until its device is gone.

        bgpd must have them, and refuses to remove an instance whose L3VNI it still has, until zebra withdraws that.
        """
        numbers = range(first, last)
        asn = next(match[1] for _, text in self.blocks if (match := re.match(r"router bgp (\d+) vrf", text)))
        vnis = self._file("vnis", (f"vrf t{number}\n no vni {1000 + number}\nexit-vrf\n" for number in numbers))
        instances = self._file("instances", (f"no router bgp {asn} vrf t{number}\n" for number in numbers))
        devices = self._file("devices", (f"link del {name}\n" for number in numbers for name in _devices(number)))
        vrfs = self._file("vrfs", (f"no vrf t{number}\n" for number in numbers))
        return self.node.timed(
            _vtysh(vnis),
            self._until(f"-le {self.others + first}"),
            _vtysh(instances),
            f"ip -n {NAMESPACE} -batch {devices}",
            _vtysh(vrfs),
        )

    def _until(self, condition: str) -> str:
        """Return the command that waits until bgpd's number of L3VNIs meets a condition, and fails if it never does."""
        late = f"{{ echo 'the number of L3VNIs in bgpd is not {condition} after {UNTIL_SECONDS} s' >&2; exit 1; }}"
        end = f"[ $SECONDS -lt {UNTIL_SECONDS} ]"
        return f'SECONDS=0; until [ "$({_L3VNIS})" {condition} ]; do {end} || {late}; sleep 0.1; done'

    def _file(self, name: str, lines: Iterable[str]) -> str:
        path = f"/run/floor-{name}"
        write(self.node.machine, path, "".join(lines))
        return path


def _since(began: float) -> str:
    return f"--since=@{began:.6f}"


def _vtysh(file: str) -> str:
    """Return the command for a file; why FRR refuses a line is on its standard output."""
    return f"vtysh -N {NAMESPACE} -f {file} >&2"


def _devices(number: int) -> tuple[str, ...]:
    vni = 1000 + number
    return f"pe-e-{vni}", f"vni{vni}", f"br-pe-{vni}", f"t{number}"


def run(node: Node, count: int) -> None:
    """Print all figures, then the ratios."""
    half, most = count // 2, count + MORE
    more = node.change(f"0 to {count} L3VNIs", count)
    one = min(node.change(f"one more at {now}", now + 1).total for now in range(count, most))
    configuration = node.run(f"cat {FRR_CONF}")
    print(f"{'resident memory after them':<40} {node.memory()['VmRSS']:.1f} MB", flush=True)
    starts = [node.restart() for _ in range(RESTARTS)]
    for seconds, cpu in starts:
        print(f"{f'restart, nothing changed, {most} L3VNIs':<40} {seconds:.1f} s to READY; CPU {cpu:.1f}", flush=True)
    time.sleep(SETTLE_SECONDS)
    print(f"{'resident memory after a start':<40} {node.memory()['VmRSS']:.1f} MB", flush=True)
    for _ in range(MINUTES):
        cpu, reference, wakeups = node.rest()
        ratio = f"{cpu / reference:.2f} of the reference's"
        print(f"{'a minute at rest':<40} {cpu:.2f} s of CPU, {ratio}; {wakeups:.0f} wakeups", flush=True)
    fewer = node.change(f"{most} to {half}", half)
    memory = node.memory()
    print(
        f"{'resident memory then, and its maximum':<40} {memory['VmRSS']:.1f} and {memory['VmHWM']:.1f} MB", flush=True
    )
    node.run(f"rm {FILE}")
    node.until_in_force(0)
    node.run("systemctl stop openperouter")
    floors = Floors(node, configuration)
    # Each is printed at once: FRR's own tools may fail to remove hundreds of networks.
    floor = compare_to_floor(f"0 to {count}", floors.add(0, count), more.total)
    in_force = floor + floors.learn(count)
    compare(f"the same until bgpd has all {count}", in_force, unit="s")
    compare(f"0 to {count}, to that", more.total / in_force)
    compare("restart, to the floor of all", min(seconds for seconds, _ in starts) / floor)
    compare_to_floor("one more", min(floors.add(now, now + 1) for now in range(count, most)), one)
    floors.learn(most)
    compare_to_floor(f"{most} to {half}", floors.remove(half, most), fewer.total)


def compare_to_floor(what: str, floor: float, own: float) -> float:
    """Print a floor and how many times as long the daemon takes; return the floor."""
    compare(f"floor of {what}: vtysh -f and ip -batch", floor, unit="s")
    compare(f"{what}, to its floor", own / floor)
    return floor


def main() -> None:
    """Boot, start the router, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=100)
    options = parser.parse_args()
    with Machine.boot(ensure_image(), memory="3G") as machine:
        topology.install(machine)
        topology.start(machine)
        run(Node(machine), options.networks)


if __name__ == "__main__":
    main()
