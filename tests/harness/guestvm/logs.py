"""What one wants to read after something failed on a guest, in one folder on the host."""

from __future__ import annotations

import shutil
from pathlib import Path

from .errors import GuestError
from .machine import Machine

#: Runs on the guest; every line may fail on its own. One script, because each command over ssh has its price.
_GATHER = r"""
rm -rf /run/evidence; mkdir /run/evidence; cd /run/evidence
journalctl --no-pager --output=short-monotonic --boot >journal.txt 2>&1
systemctl --no-pager --full --lines=50 status 'openperouter*' 'frr@*' fabric >units.txt 2>&1
systemctl --no-pager --failed >failed-units.txt 2>&1
openperouter status >status.txt 2>&1
cp /run/openperouter/state.json . 2>/dev/null
for netns in host $(ip netns list | cut -d' ' -f1); do
    option=; [ $netns = host ] || option="-n $netns"
    for what in "-details link" address "route show table all" "-6 route show table all" neighbour; do
        echo "# ip $option $what"; ip $option $what
    done >ip-$netns.txt 2>&1
    bridge $option fdb >fdb-$netns.txt 2>&1
done
for instance in $(ls /run/frr 2>/dev/null); do
    [ -d /run/frr/$instance ] || continue
    timeout 60 vtysh -N $instance -c 'show version' -c 'show running-config' -c 'show bgp vrf all summary' \
        -c 'show bgp l2vpn evpn' -c 'show evpn vni detail' -c 'show evpn rmac vni all' \
        -c 'show evpn next-hops vni all' -c 'show bgp l2vpn evpn route detail' -c 'show nexthop-group rib' \
        -c 'show ip route vrf all' -c 'show ipv6 route vrf all' \
        -c 'show interface brief' >frr-$instance.txt 2>&1
done
true
"""


def collect(machine: Machine, folder: Path) -> None:
    """Fill ``folder`` (emptied first) with journal, unit states, FRR's and the kernel's view, and the console.

    Never raises for a guest that does not answer any more: the console is there then, and a note.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if machine.console.exists():
        shutil.copyfile(machine.console, folder / "console.log")
    try:
        machine.remote.run(_GATHER, seconds=600)
        machine.remote.copy_out("/run/evidence", folder)
        # A later test may compare what is in /run.
        machine.remote.run("rm -rf /run/evidence")
    except GuestError as error:
        (folder / "incomplete.txt").write_text(f"{error}\n")
