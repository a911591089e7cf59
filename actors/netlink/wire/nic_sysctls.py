"""The sysctls that a NIC has of its own: read where they differ from the namespace's defaults, and written back.

They die with the NIC's move: in the other namespace, and again when it is back, it has that one's defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

#: Below which a namespace's network sysctls are, those of the thread that looks.
NET = Path("/proc/sys/net")
FAMILIES = ("ipv4", "ipv6")
DEFAULT = "default"
#: ``ipv4.rp_filter``: what comes after net/<family>/conf/<NIC>/.
KEY = re.compile(r"ipv[46]\.[a-z0-9_]{1,48}")
#: All of them are numbers but for ``stable_secret``, which is a secret and stays out.
VALUE = re.compile(r"-?[0-9]{1,20}")
#: A kernel has some ninety.
MOST = 128
#: IPv6's MTU is the link's again whenever that comes up.
FOLLOWS_THE_LINK = "ipv6.mtu"
#: Addresses from the secret: the kernel takes it from nobody who has not given the secret before.
NEEDS_THE_SECRET = ("ipv6.addr_gen_mode", "2")

Sysctls = tuple[tuple[str, str], ...]


def path_of(nic: str, key: str) -> str:
    """Return a sysctl's path below /proc/sys/net."""
    family, _, name = key.partition(".")
    return f"{family}/conf/{nic}/{name}"


def own_sysctls(nic: str, root: Path = NET) -> Sysctls:
    """Return a NIC's writable sysctls that differ from the defaults, in order; none for a NIC that is not there."""
    found = {pair for family in FAMILIES for pair in _differing(root / family / "conf", family, nic)}
    return checked(dict(found - {NEEDS_THE_SECRET}))


def checked(sysctls: Mapping[str, str]) -> Sysctls:
    """Return what of this are sysctls that can be given back, not too many of them."""
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
    """Return a sysctl that could be written as well, or None: also for one that has no value, and one that is gone."""
    try:
        return file.read_text().strip() if file.stat().st_mode & 0o200 else None
    except OSError:
        return None
