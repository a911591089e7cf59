"""FRR is restarted below a stretched segment, as its unit does it; the leaf is an FRR with nothing configured for that.

    near ─ bridge ─ router (frrtest) 100.65.0.0 ~ 100.64.0.1 leaf (frrleaf) ─ bridge ─ far

EVPN routes do not outlive their session in FRR 10.3, with graceful restart or without, so that packets are lost from
bgpd's end until the leaf has the routes of its next session.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import ExitStack
from datetime import datetime
from ipaddress import ip_address

import pytest

from actors.frr.render.render import render
from config.desired import GracefulRestart
from tests.actors.frr.cases import state, underlay

from .harness import DAEMON_DIR, RUN, FrrInstance, eventually, namespace, pinging, running_frr, sh
from .router import LEAF, NAME
from .test_apply import HOST

VNI = 210
#: The ends' addresses: in the fabric, of the tunnel.
ENDS = {NAME: ("192.168.11.3", "100.65.0.0"), LEAF: ("192.168.11.2", "100.64.0.1")}
#: Workloads: where they are attached, and their address.
WORKLOADS = {"near": (NAME, "192.168.210.10"), "far": (LEAF, "192.168.210.20")}
#: Five probes of one a second, in probes of five a second.
RATE, LOST = 5, 25
#: Of so many restarts the best one counts, and one that is good enough is the last: the machine may be busy.
RESTARTS = 6
#: Seconds from the end of bgpd's configuration to its first session: by FRR's default four, since it has route maps.
HOLD = 2.0
LEAF_CONFIG = """\
router bgp 64512
 no bgp ebgp-requires-policy
 neighbor 192.168.11.3 remote-as 64514
 address-family ipv4 unicast
  network 100.64.0.1/32
 exit-address-family
 address-family l2vpn evpn
  neighbor 192.168.11.3 activate
  advertise-all-vni
 exit-address-family
exit
"""


def wire() -> None:
    """Connect both ends, and give each its part of the segment."""
    sh(f"ip -n {NAME} link add fabric type veth peer name fabric netns {LEAF}")
    for name, (address, vtep) in ENDS.items():
        *_, high, _, low = ip_address(vtep).packed
        sh(
            f"ip netns exec {name} sysctl -qw net.ipv4.ip_forward=1 && ip -n {name} address add {vtep}/32 dev lo && "
            f"ip -n {name} address add {address}/24 dev fabric && ip -n {name} link set fabric up && "
            f"ip -n {name} link add br{VNI} address 02:00:00:00:{high:02x}:{low:02x} type bridge && "
            f"ip -n {name} link set br{VNI} addrgenmode none up && "
            f"ip -n {name} link add vni{VNI} type vxlan id {VNI} local {vtep} dstport 4789 nolearning && "
            f"ip -n {name} link set vni{VNI} addrgenmode none master br{VNI} && ip -n {name} link set vni{VNI} up && "
            f"ip -n {name} link set vni{VNI} type bridge_slave neigh_suppress on learning off"
        )
    for name, (where, address) in WORKLOADS.items():
        sh(
            f"ip -n {where} link add to-{name} mtu 1450 type veth peer name eth0 mtu 1450 netns {name} && "
            f"ip -n {where} link set to-{name} master br{VNI} up && "
            f"ip -n {name} address add {address}/24 dev eth0 && ip -n {name} link set eth0 up"
        )


def reaches() -> bool:
    command = ["ip", "netns", "exec", "near", "ping", "-n", "-c", "3", "-i", "0.2", "-W", "1", WORKLOADS["far"][1]]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


def configured(instance: FrrInstance, text: str) -> None:
    """Start FRR as its unit does, with a configuration on disk."""
    instance.conf.write_text(text)
    shutil.chown(instance.conf, "frr", "frr")
    instance.start_watched()


@pytest.mark.parametrize("graceful", [None, GracefulRestart()], ids=["plain", "graceful"])
def test_a_restart_of_frr_loses_at_most_five_probes_of_one_a_second(graceful: GracefulRestart | None) -> None:
    desired = state(underlay=underlay(graceful_restart=graceful))
    with ExitStack() as stack:
        router, leaf = (stack.enter_context(running_frr(name, start=False)) for name in ENDS)
        for name in WORKLOADS:
            stack.enter_context(namespace(name))
        wire()
        configured(leaf, LEAF_CONFIG)
        configured(router, render(desired, hostname=HOST).text)
        eventually("packets", reaches)
        lost: list[int] = []
        while len(lost) < RESTARTS and min(lost, default=LOST + 1) > LOST:
            bgpd = router.pid("bgpd")
            with pinging("near", f"-i {1 / RATE} {WORKLOADS['far'][1]}") as flow:
                sh(f"{router.enter} {DAEMON_DIR}/frrinit.sh restart {NAME} </dev/null >/dev/null 2>&1")
                eventually("packets again", reaches)
            assert router.pid("bgpd") != bgpd
            lost.append(flow.sent - flow.received)
        # At least one is lost: else nothing was interrupted, and nothing is shown.
        assert 0 < min(lost) <= LOST, lost


def test_bgpd_opens_sessions_once_it_has_its_configuration() -> None:
    # FRR's user can write there, and it goes with the instance.
    log = RUN / NAME / "frr.log"
    desired = render(state(underlay=underlay()), hostname=HOST).text
    with running_frr(NAME, start=False) as router:
        configured(router, f"log file {log} debugging\ndebug bgp neighbor-events\n{desired}")
        marks = ("BGP: .*Configuration Read in Took", "BGP: .*released from config-pending hold")
        eventually("the neighbour is released", lambda: re.search(marks[1], log.read_text()) is not None)
        read, released = (moment(log.read_text(), mark) for mark in marks)
    assert released - read < HOLD


def moment(log: str, mark: str) -> float:
    """Return when FRR first wrote a message."""
    found = re.search(rf"^(\S+ \S+) {mark}", log, re.MULTILINE)
    assert found is not None, mark
    return datetime.strptime(found[1], "%Y/%m/%d %H:%M:%S.%f").timestamp()
