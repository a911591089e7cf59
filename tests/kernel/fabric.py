"""What the tests of packets have around a node: sysctls of distributions, the fabric's side and tenants."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

NET = Path("/proc/sys/net")
LEAF = "test-leaf"
SEGMENTS = (110, 120, 130, 140)

#: What systemd's 50-default.conf sets, which Debian 13 has from linux-sysctl-defaults.
_SYSTEMD = {"ipv4/conf/default/accept_source_route": "0", "ipv4/conf/default/promote_secondaries": "1"}
#: Defaults as distributions and hostile administrators set them, of the machine's own namespace.
DEFAULTS = {
    "kernel": {},
    "debian": {**_SYSTEMD, "ipv4/conf/default/rp_filter": "2"},
    # 10-network-security.conf and 10-ipv6-privacy.conf.
    "ubuntu": {
        "ipv4/conf/default/rp_filter": "2",
        "ipv4/conf/all/rp_filter": "2",
        "ipv6/conf/default/use_tempaddr": "2",
        "ipv6/conf/all/use_tempaddr": "2",
    },
    # 50-redhat.conf, and "all" as version 7 had it.
    "rhel": {**_SYSTEMD, "ipv4/conf/default/rp_filter": "1", "ipv4/conf/all/rp_filter": "1"},
    "inherited": {
        "core/devconf_inherit_init_net": "1",
        "ipv4/conf/all/accept_local": "1",
        "ipv4/conf/all/route_localnet": "1",
        "ipv4/conf/all/arp_accept": "1",
        "ipv4/conf/default/accept_local": "1",
        "ipv4/conf/default/forwarding": "1",
        "ipv4/conf/all/forwarding": "1",
        "ipv6/conf/all/forwarding": "1",
        "ipv6/conf/all/accept_ra": "2",
        "ipv6/conf/default/accept_ra": "2",
        "ipv6/conf/default/accept_untracked_na": "1",
    },
}
#: What these distributions have for "*": udev sets it on each device of the host some time after that appears.
EACH_DEVICE = {
    "debian": {"rp_filter": "2", "accept_source_route": "0", "promote_secondaries": "1"},
    "rhel": {"rp_filter": "1", "accept_source_route": "0", "promote_secondaries": "1"},
}
FABRIC = {"ipv4": ("192.168.11.3", "192.168.11.2"), "ipv6": ("2001:db8:11::3", "2001:db8:11::2")}

PROBE = "add table inet probe\ndelete table inet probe\n"


@cache
def filters() -> bool:
    """Whether there is nft, and a kernel with nftables for IP."""
    nft = shutil.which("nft")
    return nft is not None and subprocess.run([nft, "-f", "-"], input=PROBE, text=True, check=False).returncode == 0
