"""A whole node on the running kernel: the daemon, its FRR, a leaf with real FRR, and bird as the host's BGP speaker.

The machine's own namespace is the host, ``perouter`` the router and ``leaf`` the fabric:

    host, bird AS 64515            perouter, FRR AS 64514             leaf, FRR AS 64512
    host-e-VNI ================== pe-e-VNI, VRF           NIC ====== tonode
                                   VXLAN VNI        ~~~~~~~~~~~~~~~  VXLAN VNI, VRF with 10.50.N.1

Each tenant's route targets are explicit, so that both sides agree on them whatever the VNI.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import yaml

from config.status import ReloadStatus
from supervisor.operations.inspection.current_status import read_status
from tests.frr.harness import DAEMONS, FrrInstance, eventually, running_frr, sh

PROGRAM: Final = (sys.executable, "-c", "import sys; from supervisor.cli import main; sys.exit(main())")
UNIT: Final = Path(__file__).parents[2] / "packaging/systemd/openperouter.service"
ROUTER_AS: Final = 64514
HOST_AS: Final = 64515
LEAF_AS: Final = 64512
#: Ethernet, IPv4, UDP and VXLAN around a packet.
VXLAN_OVERHEAD: Final = 50
#: From a change of files until everything forwards again; a busy machine takes its time.
CONVERGE_SECONDS: Final = 60.0
RELOAD_SECONDS: Final = 180


@dataclass(frozen=True, slots=True)
class Tenant:
    """A routed tenant: ``number`` selects its addresses and route targets, whatever else changes."""

    number: int
    vrf: str
    vni: int
    host_as: int = HOST_AS
    port: int = 4789
    host_vrf: bool = False

    @property
    def target(self) -> str:
        """Address in the fabric that the tenant's host reaches."""
        return f"10.50.{self.number}.1"

    @property
    def prefix(self) -> str:
        return f"10.50.{self.number}.0/24"

    @property
    def gateway(self) -> str:
        """The router's side of the host session with node index 0."""
        return f"172.27.{self.number}.1"

    @property
    def announced(self) -> str:
        """Prefix that bird announces to the router."""
        return f"10.99.{self.number}.0/24"

    @property
    def vrf_of_host(self) -> str:
        """The host's VRF in which its session ends; empty for the host's own tables."""
        return f"host-v-{self.vni}" if self.host_vrf else ""

    def resource(self, router_as: int) -> dict[str, Any]:
        target = f"{LEAF_AS}:{self.number}"
        return {
            "name": f"tenant{self.number}", "vrf": self.vrf, "vni": self.vni, "vxlanPort": self.port,
            "exportRTs": [target], "importRTs": [target],
            "hostSession": {
                "asn": router_as, "hostASN": self.host_as, "localCIDR": {"ipv4": f"172.27.{self.number}.0/24"},
                "hostVRF": self.host_vrf,
            },
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Network:
    """What the node's files say, and the NIC."""

    tenants: tuple[Tenant, ...]
    asn: int = ROUTER_AS
    index: int = 0
    vteps: str = "100.65.0.0/24"
    #: Of the NIC. No file says it: an operator changes it beside the daemon.
    mtu: int = 1500

    def with_tenant(self, changed: Tenant) -> Network:
        return replace(self, tenants=tuple(changed if t.number == changed.number else t for t in self.tenants))

    def tenant(self, number: int) -> Tenant:
        return next(tenant for tenant in self.tenants if tenant.number == number)

    def files(self) -> dict[str, str]:
        underlay = {
            "asn": self.asn,
            "interfaces": [{"type": "NetworkDevice", "networkDevice": {"interfaceName": "toswitch1"}}],
            "neighbors": [{"asn": LEAF_AS, "address": "192.168.11.2"}],
            "tunnelEndpoint": {"cidrs": [self.vteps]},
        }
        resources = [tenant.resource(self.asn) for tenant in self.tenants]
        return {
            "configs/openpe_underlay.yaml": yaml.safe_dump({"underlays": [underlay]}),
            "configs/openpe_tenants.yaml": yaml.safe_dump({"l3vnis": resources}),
            "node-config.yaml": yaml.safe_dump({"nodeIndex": {"index": self.index}}),
        }


class Leaf:
    """The fabric's side: one VRF per tenant, with an address that answers pings."""

    def __init__(self, frr: FrrInstance) -> None:
        self.frr = frr
        self._tenants: dict[int, tuple[int, int]] = {}

    def load(self, text: str, daemon: str = "") -> None:
        """Configure all daemons or, much quicker, one: what follows a change is not to be what takes its time."""
        self.frr.conf.write_text(text)
        self.frr.load(daemon=daemon)

    def start(self) -> None:
        """Configure the underlay; any AS may call, from any address, so that the router's may change."""
        self.frr.start()
        self.load(
            f"router bgp {LEAF_AS}\n bgp router-id 100.64.0.1\n no bgp ebgp-requires-policy\n"
            " no bgp default ipv4-unicast\n neighbor 192.168.11.3 remote-as external\n"
            " neighbor 192.168.11.3 timers 3 9\n neighbor 192.168.11.3 timers connect 1\n"
            " address-family ipv4 unicast\n  network 100.64.0.1/32\n  neighbor 192.168.11.3 activate\n"
            " exit-address-family\n"
            " address-family l2vpn evpn\n  neighbor 192.168.11.3 activate\n  advertise-all-vni\n exit-address-family\n"
            "exit\n"
        )

    def follow(self, network: Network) -> None:
        """Give each tenant the VNI and port that the router is going to have."""
        wanted = {tenant.number: (tenant.vni, tenant.port) for tenant in network.tenants}
        for number in [n for n, now in self._tenants.items() if wanted.get(n, now) != now]:
            self._detach(number)
        for number in [n for n in wanted if n not in self._tenants]:
            self._attach(number, *wanted[number])

    def _detach(self, number: int) -> None:
        vni, _ = self._tenants.pop(number)
        self.load(f"vrf t{number}\n no vni {vni}\nexit-vrf\n", "mgmtd")
        eventually("the leaf's zebra has let go", lambda: self._type_of(vni) != "L3")
        sh(f"ip -n leaf link del vni{vni} && ip -n leaf link del br{vni}")

    def _attach(self, number: int, vni: int, port: int) -> None:
        vrf = f"t{number}"
        if f" {vrf}:" not in sh("ip -n leaf -o link"):
            sh(
                f"ip -n leaf link add {vrf} type vrf table {1000 + number} && ip -n leaf link set {vrf} up && "
                f"ip -n leaf link add d{number} type dummy && ip -n leaf link set d{number} master {vrf} up && "
                f"ip -n leaf address add 10.50.{number}.1/24 dev d{number}"
            )
            self.load(
                f"router bgp {LEAF_AS} vrf {vrf}\n bgp router-id 100.64.0.1\n"
                " address-family ipv4 unicast\n  redistribute connected\n exit-address-family\n"
                f" address-family l2vpn evpn\n  route-target import {LEAF_AS}:{number}\n"
                f"  route-target export {LEAF_AS}:{number}\n  advertise ipv4 unicast\n exit-address-family\nexit\n"
            )
        sh(
            f"ip -n leaf -batch - <<'EOF'\n"
            f"link add br{vni} type bridge\nlink set br{vni} addrgenmode none master {vrf}\n"
            f"link add vni{vni} type vxlan id {vni} local 100.64.0.1 dstport {port} nolearning\n"
            f"link set vni{vni} addrgenmode none master br{vni}\nlink set br{vni} up\nlink set vni{vni} up\nEOF"
        )
        eventually("the leaf's zebra has the VXLAN device", lambda: self._type_of(vni) is not None)
        self.load(f"vrf {vrf}\n vni {vni}\nexit-vrf\n", "mgmtd")
        eventually("the leaf's zebra has the L3VNI", lambda: self._type_of(vni) == "L3")
        self._tenants[number] = (vni, port)

    def _type_of(self, vni: int) -> str | None:
        shown = sh(f"vtysh -N {self.frr.name} -d zebra -c 'show evpn vni json'")
        found = json.loads(shown or "{}").get(str(vni), {}).get("type")
        return None if found is None else str(found)

    def routes(self, number: int) -> set[str]:
        """Return the prefixes in a tenant's VRF that came from the fabric."""
        answer = json.loads(self.frr.vtysh(f"show ip route vrf t{number} bgp json") or "{}")
        return set(answer)


class Bird:
    """The host's BGP speaker, from another vendor than the router."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def follow(self, network: Network) -> None:
        """Peer with the router in each tenant."""
        config = self._directory / "bird.conf"
        tenants = "".join(self._tenant(tenant, network.asn) for tenant in network.tenants)
        config.write_text(f"router id 10.99.0.1;\nprotocol device {{}}\n{tenants}")
        if self._process is None:
            command = ["bird", "-f", "-c", str(config), "-s", str(self._directory / "bird.ctl")]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
            eventually("bird answers", lambda: "BIRD" in self.ask("show status"))
        else:
            self.ask("configure")

    def _tenant(self, tenant: Tenant, router_as: int) -> str:
        name = f"t{tenant.number}"
        vrf = f'vrf "{tenant.vrf_of_host}"; ' if tenant.host_vrf else ""
        return (
            f"ipv4 table {name};\n"
            f"protocol static {name}s {{ ipv4 {{ table {name}; }}; route {tenant.announced} blackhole; }}\n"
            f"protocol bgp {name}b {{ {vrf}local as {tenant.host_as}; neighbor {tenant.gateway} as {router_as}; "
            f"connect delay time 1; connect retry time 1; error wait time 1, 2; "
            f"ipv4 {{ table {name}; import all; export where source = RTS_STATIC; }}; }}\n"
        )

    def ask(self, command: str) -> str:
        return sh(f"birdc -s {self._directory / 'bird.ctl'} {command}", check=False)

    def routes(self, tenant: Tenant) -> str:
        return self.ask(f"show route table t{tenant.number}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)


@dataclass
class Node:
    """The node and what surrounds it."""

    directory: Path
    frr: FrrInstance
    leaf: Leaf
    bird: Bird
    network: Network = field(default_factory=lambda: Network(()))
    _daemon: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> Path:
        return self.directory / "openperouter.yaml"

    @property
    def pid(self) -> int:
        """The running daemon's process."""
        assert self._daemon is not None
        return self._daemon.pid

    def prepare(self) -> None:
        """Write the daemon's settings."""
        (self.directory / "configs").mkdir(parents=True)
        names = {"nodeConfigFile": "node-config.yaml", "configsDir": "configs", "stateDir": "state", "runDir": "run"}
        values = {key: str(self.directory / name) for key, name in names.items()}
        (self.directory / "state").mkdir()
        (self.directory / "run").mkdir()
        self.settings.write_text(yaml.safe_dump({**values, "settleSeconds": 0.1, "auditIntervalSeconds": 5}))

    def start(self) -> None:
        log = (self.directory / "log").open("ab")
        self._daemon = subprocess.Popen(
            [*bounded(), *PROGRAM, "--settings", str(self.settings), "run"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        eventually("the daemon answers", lambda: self.command("status").stdout != "", CONVERGE_SECONDS)

    def kill(self) -> None:
        """Kill the daemon the hard way."""
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon.wait()

    def stop(self) -> None:
        if self._daemon is not None and self._daemon.poll() is None:
            self._daemon.send_signal(signal.SIGTERM)
            self._daemon.wait(60)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, "--settings", str(self.settings), *arguments],
            capture_output=True, text=True, timeout=RELOAD_SECONDS + 60, check=False,
        )  # fmt: skip

    def log(self) -> str:
        path = self.directory / "log"
        return path.read_text() if path.exists() else "no daemon has run"

    def write(self, network: Network) -> None:
        """Write the files of a network, each as an editor does."""
        self.expect(network)
        for name, text in network.files().items():
            path = self.directory / name
            path.with_suffix(".new").write_text(text)
            path.with_suffix(".new").rename(path)

    def expect(self, network: Network) -> None:
        """Have this network from now on, and its NIC, which is in the router already when its MTU changes."""
        if network.mtu != self.network.mtu:
            sh(f"ip -n perouter link set toswitch1 mtu {network.mtu}")
        self.network = network

    def apply(self, network: Network) -> None:
        """Change the fabric, the host and the node to another network; return when all of it forwards."""
        self.reload(network)
        self.follow(network)
        self.forwards()

    def reload(self, network: Network) -> None:
        """Change the node; return when that is verified."""
        self.write(network)
        done = self.command("reload", "--timeout", str(RELOAD_SECONDS))
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{self.log()[-4000:]}"

    def signal_reload(self, network: Network) -> None:
        """Change the node, as ``systemctl reload`` does; return when that is verified.

        ``openperouter reload`` says why it is not, but its start takes as long as many a change.
        """
        self.write(network)
        before = self._reloads().requested
        assert self._daemon is not None
        self._daemon.send_signal(signal.SIGHUP)

        def verified() -> bool:
            now = self._reloads()
            return now.verified == now.requested > before

        eventually("the change is verified", verified, RELOAD_SECONDS)

    def _reloads(self) -> ReloadStatus:
        """Return how far requests to reload have come."""
        return read_status(self.directory / "run").status.reload

    def follow(self, network: Network) -> None:
        """Change the fabric and the host."""
        self.leaf.follow(network)
        self.bird.follow(network)

    def l3vnis(self) -> dict[str, int]:
        """Return the VNI of each VRF that the router's zebra has as an L3VNI."""
        found = json.loads(self.frr.vtysh("show evpn vni json") or "{}")
        return {vni["tenantVrf"]: vni["vni"] for vni in found.values() if vni["type"] == "L3"}

    def forwards(self) -> None:
        """Wait until every tenant's routes are on both sides and its pings return."""
        for tenant in self.network.tenants:
            self.route_host(tenant)
            what = f"{tenant} forwards"
            try:
                eventually(what, lambda tenant=tenant: self._works(tenant), CONVERGE_SECONDS)  # type: ignore[misc]
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.evidence(tenant)}") from None

    def evidence(self, tenant: Tenant) -> str:
        """Return what both sides have of a tenant, for a failure's message."""
        vrf = tenant.vrf
        return "\n".join(
            (
                self.command("status").stdout,
                self.frr.vtysh("show evpn vni", f"show evpn vni {tenant.vni}", f"show ip route vrf {vrf}"),
                self.frr.vtysh("show bgp l2vpn evpn summary", "show bgp l2vpn evpn route type prefix"),
                self.leaf.frr.vtysh("show evpn vni", f"show ip route vrf t{tenant.number}"),
                self.bird.ask("show protocols"),
                sh("ip -n perouter -br link; ip -n leaf -br link; ip -br addr"),
                self.log()[-3000:],
            )
        )

    def route_host(self, tenant: Tenant) -> None:
        vrf = f" vrf {tenant.vrf_of_host}" if tenant.host_vrf else ""
        sh(f"ip route replace{vrf} {tenant.prefix} via {tenant.gateway}", check=False)

    def _works(self, tenant: Tenant) -> bool:
        self.route_host(tenant)
        return (
            self._mtu_of(tenant) == self.network.mtu - VXLAN_OVERHEAD
            and tenant.announced in self.leaf.routes(tenant.number)
            and tenant.prefix in self.bird.routes(tenant)
            and subprocess.run(
                [*ping_command(tenant), "-c", "1", "-W", "1", tenant.target], capture_output=True, check=False
            ).returncode == 0
        )  # fmt: skip

    def _mtu_of(self, tenant: Tenant) -> int:
        [link] = json.loads(sh(f"ip -j link show dev host-e-{tenant.vni}", check=False) or "[{}]")
        return int(link.get("mtu", 0))

    def fingerprint(self, tenant: Tenant) -> dict[str, Any]:
        """Return what must stay the same of a tenant that a change does not concern: devices and sessions."""
        links = json.loads(sh("ip -n perouter -j link")) + json.loads(sh("ip -j link"))
        names = {tenant.vrf, *(f"{kind}{tenant.vni}" for kind in ("br-pe-", "vni", "pe-e-", "host-e-"))}
        devices = {link["ifname"]: link["ifindex"] for link in links if link["ifname"] in names}
        neighbors = json.loads(self.frr.vtysh(f"show bgp vrf {tenant.vrf} neighbors json") or "{}")
        sessions = {
            peer: (found["bgpState"], found["connectionsEstablished"])
            for peer, found in neighbors.items()
            if isinstance(found, dict)
        }
        assert len(devices) == len(names), devices
        assert sessions
        return {"devices": devices, "sessions": sessions}

    def pids(self) -> dict[str, int]:
        """Return FRR's processes: none may ever change."""
        return {f"{frr.name}/{daemon}": frr.pid(daemon) for frr in (self.frr, self.leaf.frr) for daemon in DAEMONS}


#: What the unit's mounts do: no one but frr may enter Debian's /etc/frr.
MOUNTS: Final = """here=$PWD
cd /etc/frr/perouter
mount -t tmpfs -o mode=755 none /etc/frr
mkdir /etc/frr/perouter
mount --no-canonicalize --bind /proc/self/cwd /etc/frr/perouter
cd "$here"
exec "$@"
"""


def unit_rights() -> list[str]:
    """Return what starts a program with the unit's capabilities and groups, and no others."""
    lines = unit_lines()
    [kept] = [value.split() for key, value in lines if key == "CapabilityBoundingSet"]
    [groups] = [value.split() for key, value in lines if key == "SupplementaryGroups"]
    capabilities = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in kept)
    return ["setpriv", "--no-new-privs", f"--groups={','.join(groups)}", f"--bounding-set=-all,{capabilities}", "--"]


def bounded() -> list[str]:
    """Return what starts a program with the unit's rights and view of /etc/frr."""
    assert ("BindPaths", "/etc/frr/perouter") in unit_lines()
    return ["unshare", "--mount", "--propagation=slave", "sh", "-euc", MOUNTS, "sh", *unit_rights()]


def unit_lines() -> list[tuple[str, str]]:
    """Return the keys and values of the daemon's unit file."""
    return [(key, value) for key, _, value in (line.partition("=") for line in UNIT.read_text().splitlines())]


def ping_command(tenant: Tenant) -> list[str]:
    """Return what pings from where the tenant's session ends in the host."""
    return ["ping", "-n", *(["-I", tenant.vrf_of_host] if tenant.host_vrf else [])]


@dataclass
class Pings:
    """The result of a ping that ran all the while."""

    sent: int = 0
    received: int = 0
    #: Interruptions: the times of the last reply before and of the first one after (``time.time``), and the pings lost.
    gaps: list[tuple[float, float, int]] = field(default_factory=list)

    @property
    def lost(self) -> int:
        # The last one may still have been on its way.
        return max(0, self.sent - self.received - 1)


@contextmanager
def pings(tenant: Tenant) -> Iterator[Pings]:
    """Ping a tenant's far end twenty times a second."""
    process = subprocess.Popen(
        [*ping_command(tenant), "-D", "-i", "0.05", "-W", "2", tenant.target],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    result = Pings()
    try:
        yield result
    finally:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        counts = re.search(r"(\d+) packets transmitted, (\d+) received", output)
        if counts:
            result.sent, result.received = int(counts[1]), int(counts[2])
        result.gaps = gaps_of(output)


def gaps_of(output: str) -> list[tuple[float, float, int]]:
    """Return the interruptions in the output of ``ping -D``, between its first reply and its last."""
    found = re.findall(r"^\[([\d.]+)\] \d+ bytes .*icmp_seq=(\d+)", output, re.MULTILINE)
    replies = [(float(when), int(number)) for when, number in found]
    return [(a, b, after - before - 1) for (a, before), (b, after) in pairwise(replies) if after > before + 1]


@contextmanager
def running_node(directory: Path) -> Iterator[Node]:
    """A node with its fabric, built and torn down."""
    with running_frr("perouter", start=False) as router, running_frr("leaf", start=False) as leaf_frr:
        sh(
            "ip link add toswitch1 type veth peer name tonode netns leaf && "
            "ip address add 192.168.11.3/24 brd + dev toswitch1 && ip link set toswitch1 up && "
            "ip -n leaf address add 192.168.11.2/24 dev tonode && ip -n leaf link set tonode up && "
            "ip -n leaf address add 100.64.0.1/32 dev lo && "
            "ip netns exec leaf sysctl -qw net.ipv4.ip_forward=1"
        )
        # As Debian's package and ours have them.
        sh("chown frr:frr /etc/frr && chmod 700 /etc/frr")
        sh("chown root:frr /etc/frr/perouter && chmod 2750 /etc/frr/perouter")
        leaf = Leaf(leaf_frr)
        leaf.start()
        router.start()
        bird = Bird(directory)
        node = Node(directory, router, leaf, bird)
        node.prepare()
        try:
            yield node
        finally:
            node.stop()
            bird.stop()
            # The kernel removes a namespace, with the devices' other ends, some time after its name is gone.
            with suppress(AssertionError):
                sh("for link in $(ip -o link | cut -d: -f2 | cut -d@ -f1 | grep host-e-); do ip link del $link; done")
                sh("for link in $(ip -o link show group 4243 | cut -d: -f2 | cut -d@ -f1); do ip link del $link; done")
