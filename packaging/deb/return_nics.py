"""Print the shell commands that return the router's NICs to the host, from the daemon's journal.

When a package is purged, its program is gone, and Python may be as well. So ``prerm`` writes these commands down while
both exist, and ``postrm`` runs them. They need only ``sh`` and ``ip``, can be run again, and do nothing after a reboot,
which returns the NICs to the host anyway.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Final

HERE: Final = Path(__file__).resolve().parent
#: Installed beside the private modules; in a checkout two folders below them.
sys.path.insert(0, str(HERE if (HERE / "actors").is_dir() else HERE.parents[1]))

from actors.netlink.planning.observed import (  # noqa: E402
    NIC_GROUP,
    OUR_GROUPS,
    Address,
    NicRecord,
    SavedRoute,
    in_order,
    usual_broadcast,
)
from actors.netlink.planning.plan_nics import host_addresses  # noqa: E402
from actors.netlink.state_files import BOOT_ID, StateFiles  # noqa: E402
from actors.netlink.wire.nic_sysctls import path_of  # noqa: E402
from config.desired import Family  # noqa: E402
from config.settings import load_settings  # noqa: E402

SETTINGS: Final = Path("/etc/openperouter/openperouter.yaml")

#: linux/if_addr.h: flags that are configured together with an address, by their names in ip-address(8).
ADDRESS_FLAGS: Final = (
    (0x02, "nodad"),
    (0x04, "optimistic"),
    (0x10, "home"),
    (0x100, "mngtmpaddr"),
    (0x200, "noprefixroute"),
    (0x400, "autojoin"),
)
RTNH_F_ONLINK: Final = 4

PREAMBLE: Final = """\
# Returns the router's NICs to the host: written when the package was removed, run when it is purged.
[ "$(cat /proc/sys/kernel/random/boot_id)" = {boot} ] || exit 0
host=/proc/$$/ns/net

attempt() {{ # an existing address or route is not an error, and one that fails must not stop the rest
    output=$("$@" 2>&1) || case $output in
        *"File exists"* | *"already assigned"*) ;;
        *) echo "openperouter: $*: $output" >&2 ;;
    esac
}}

tune() {{ # tune FILE VALUE, below /proc/sys/net
    output=$({{ echo "$2" > "/proc/sys/net/$1"; }} 2>&1) || echo "openperouter: $1: $output" >&2
}}

"""


def script(netns: str, boot: str, records: dict[str, NicRecord]) -> str:
    """Return the whole script for the records of one boot."""
    lines = [line for record in records.values() for line in commands(netns, record)]
    return PREAMBLE.format(boot=quote(boot)) + "\n".join([*lines, ""])


def commands(netns: str, record: NicRecord) -> Iterator[str]:
    """Yield the commands for one NIC: out of the router, then its sysctls, which must be set before it is up, then
    addresses, MTU and state, then routes, which need all of these."""
    name, inside = quote(record.name), f"ip -n {quote(netns)} link"
    yield f"if {inside} show dev {name} >/dev/null 2>&1; then"
    yield f"    attempt {inside} set dev {name} netns $host"
    # systemd's MACAddressPolicy= gives virtual NICs another MAC when they appear: wait for that, then undo it.
    yield "    ! command -v udevadm >/dev/null || udevadm settle --timeout=10"
    yield "fi"
    yield f"if ip link show dev {name} >/dev/null 2>&1; then"
    if record.mac:
        same = f'[ "$(cat /sys/class/net/{name}/address)" = {quote(record.mac)} ]'
        yield f"    {same} || attempt ip link set dev {name} address {quote(record.mac)}"
    for key, value in record.sysctls:
        yield f"    tune {quote(path_of(record.name, key))} {quote(value)}"
    for line in restoring(record):
        yield f"    attempt ip {line}"
    yield "fi"


def restoring(record: NicRecord) -> Iterator[str]:
    """Yield the arguments of ``ip`` that restore a NIC in the host."""
    name = quote(record.name)
    for address in host_addresses(record):
        if not (generates_addresses(record) and generated_by_kernel(address, record.mac)):
            yield address_command(record.name, address)
    group = 0 if record.group in {NIC_GROUP, *OUR_GROUPS} else record.group
    state = "up" if record.up or record.routes else "down"
    yield f"link set dev {name} mtu {record.mtu} group {group} {state}"
    for altname in record.altnames:
        yield f"link property add dev {name} altname {quote(altname)}"
    for route in in_order(record.routes):
        yield route_command(name, route)


def generates_addresses(record: NicRecord) -> bool:
    """Return whether the kernel generates link-local addresses for a NIC, according to the NIC's own sysctls."""
    return not {"ipv6.addr_gen_mode", "ipv6.disable_ipv6"} & dict(record.sysctls).keys()


def generated_by_kernel(address: Address, mac: str) -> bool:
    """Return whether the kernel generates an address itself: link-local, from the NIC's MAC (RFC 4291, appendix A)."""
    octets = [int(octet, 16) for octet in mac.split(":")] if mac else []
    if len(octets) != 6 or address.interface.version != 6:
        return False
    identifier = bytes([octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:]])
    return address.interface.ip.packed == bytes([0xFE, 0x80, 0, 0, 0, 0, 0, 0]) + identifier


def address_command(name: str, address: Address) -> str:
    """Return the command that restores one address."""
    interface = address.interface
    arguments = [f"-{interface.version} address add"]
    if address.peer:
        arguments.append(f"{interface.ip} peer {quote(address.peer)}/{interface.network.prefixlen}")
    else:
        arguments.append(str(interface))
    broadcast = usual_broadcast(interface, address.peer) if address.broadcast is None else address.broadcast
    arguments += [f"broadcast {quote(broadcast)}"] if broadcast else []
    arguments.append(f"dev {quote(name)}")
    arguments += [f"label {quote(address.label)}"] if address.label not in {"", name} else []
    arguments += [f"scope {address.scope}", *(flag for bit, flag in ADDRESS_FLAGS if address.flags & bit)]
    return " ".join(arguments)


def route_command(name: str, route: SavedRoute) -> str:
    """Return the command that restores one route."""
    family = 4 if route.family is Family.IPV4 else 6
    arguments = [f"-{family} route add {quote(route.destination)}", f"dev {name} table {route.table}"]
    arguments += [f"via {quote(route.gateway)}"] if route.gateway else []
    arguments += [f"proto {route.protocol}"]
    # IPv6 routes have no scope.
    arguments += [f"scope {route.scope}"] if family == 4 else []
    arguments += [f"src {quote(route.source)}"] if route.source else []
    arguments += [f"metric {route.priority}"] if route.priority else []
    arguments += ["onlink"] if route.flags & RTNH_F_ONLINK else []
    arguments += [f"mtu {route.mtu}"] if route.mtu else []
    return " ".join(arguments)


def main() -> int:
    """Print the script for this machine's journal."""
    settings, _ = load_settings(SETTINGS, SETTINGS.parent / "conf.d")
    boot = BOOT_ID.read_text().strip()
    sys.stdout.write(script(settings.netns, boot, StateFiles.of(settings, boot, read_only=True).journal()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
