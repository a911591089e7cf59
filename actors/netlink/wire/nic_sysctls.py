"""A NIC's own sysctls: those that differ from the namespace's defaults, to be recorded and restored.

They are lost when the NIC moves: in the other namespace, and again after its return, it has that namespace's defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

#: The network sysctls, of the namespace of the thread that opens them.
NET = Path("/proc/sys/net")
FAMILIES = ("ipv4", "ipv6")
DEFAULT = "default"
#: A sysctl's key in the journal, for example ``ipv4.rp_filter``: net/<family>/conf/<NIC>/ is implied.
KEY = re.compile(r"ipv[46]\.[a-z0-9_]{1,48}")
#: All of them are numbers except ``stable_secret``, which is a secret and is left out.
VALUE = re.compile(r"-?[0-9]{1,20}")
#: A kernel has about ninety.
MOST = 128
#: IPv6's MTU becomes the link's whenever the link comes up.
FOLLOWS_THE_LINK = "ipv6.mtu"
#: Addresses derived from the secret: the kernel refuses this mode until the secret is set.
NEEDS_THE_SECRET = ("ipv6.addr_gen_mode", "2")

Sysctls = tuple[tuple[str, str], ...]


def path_of(nic: str, key: str) -> str:
    """Return a sysctl's path below /proc/sys/net."""
    family, _, name = key.partition(".")
    return f"{family}/conf/{nic}/{name}"


def own_sysctls(nic: str, root: Path = NET) -> Sysctls:
    """Return a NIC's writable sysctls that differ from the defaults, sorted; none for a NIC that does not exist."""
    found = {pair for family in FAMILIES for pair in _differing(root / family / "conf", family, nic)}
    return checked(dict(found - {NEEDS_THE_SECRET}))


def checked(sysctls: Mapping[str, str]) -> Sysctls:
    """Return the sysctls that can be restored, sorted and limited in number."""
    good = ((key, value) for key, value in sysctls.items() if KEY.fullmatch(key) and VALUE.fullmatch(value))
    return tuple(sorted(pair for pair in good if pair[0] != FOLLOWS_THE_LINK))[:MOST]


def _differing(conf: Path, family: str, nic: str) -> Iterator[tuple[str, str]]:
    try:
        files = list((conf / nic).iterdir())
    except FileNotFoundError:
        return
    for file in files:
        value, usual = _read(file), _read(conf / DEFAULT / file.name)
        if value is not None and value != usual:
            yield f"{family}.{file.name}", value


def _read(file: Path) -> str | None:
    """Return a writable sysctl's value; None for one that is read-only, has no value or does not exist."""
    try:
        return file.read_text().strip() if file.stat().st_mode & 0o200 else None
    except OSError:
        return None
