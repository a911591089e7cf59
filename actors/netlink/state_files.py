"""What must outlive the process: the journal of NICs in the router's hands, and the tables of VRFs.

Both are small JSON files in the state directory, replaced atomically and synced before the step that relies on them. A
full or read-only disk must not keep a node from its network: what cannot be written there goes to a spare directory in
memory, which lasts as long as what it tells of does, until the next boot.
The journal belongs to one boot: after a reboot the NIC is the host's again, and whoever configures the host has
configured it.

Both files are read by older and newer versions of the program as well: an upgrade or a downgrade does not reboot. What
a version does not know in them it ignores, what it misses has a default; so there is one ``version``, and none is asked
for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from ipaddress import ip_interface
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.desired import Family
from config.settings import Settings
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.atomic_file import remove_stale, write_atomic

from .planning.observed import Address, NicPhase, NicRecord, SavedRoute
from .wire.nic_sysctls import checked

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

log = get_logger("netlink")

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
JOURNAL = "nic-journal.json"
TABLES = "vrf-tables.json"


class StateFiles:
    """The two files of one state directory. ``boot`` identifies the running kernel's boot.

    ``spare`` is the directory for what ``directory`` refuses; of two files the later counts. ``read_only`` is for
    looking: nothing is made, cleaned or set aside.
    """

    def __init__(
        self, directory: Path, boot: str | None = None, *, spare: Path | None = None, read_only: bool = False
    ) -> None:
        self._directories = (directory, *(() if spare is None else (spare,)))
        self._boot = boot if boot is not None else BOOT_ID.read_text().strip()
        self._read_only = read_only
        if read_only:
            return
        _make(directory, optional=spare is not None)
        for path in (parent / name for parent in self._directories for name in (JOURNAL, TABLES)):
            remove_stale(path)

    @classmethod
    def of(cls, settings: Settings, boot: str | None = None, *, read_only: bool = False) -> StateFiles:
        """Return the files of this installation."""
        return cls(settings.state_dir, boot, spare=settings.run_dir, read_only=read_only)

    def journal(self) -> dict[str, NicRecord]:
        """Return the records of this boot by NIC; a file that cannot be read is kept aside and counts as none."""
        path, content = self._newest(JOURNAL)
        if content.get("boot") != self._boot:
            return {}
        try:
            return {name: _record(found) for name, found in content.get("nics", {}).items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            self._set_aside(path)
            return {}

    def save_nic(self, record: NicRecord) -> None:
        """Write one NIC's record; durable when this returns."""
        self._write_journal({**self.journal(), record.name: record})

    def forget_nic(self, name: str) -> None:
        """Drop one NIC's record."""
        self._write_journal({nic: record for nic, record in self.journal().items() if nic != name})

    def _write_journal(self, records: Mapping[str, NicRecord]) -> None:
        nics = {name: _fields(record) for name, record in sorted(records.items())}
        self._store(JOURNAL, {"boot": self._boot, "nics": nics})

    def tables(self) -> dict[str, int]:
        """Return each VRF's persisted table."""
        tables = self._newest(TABLES)[1].get("tables", {})
        if not isinstance(tables, dict):
            return {}
        return {str(vrf): table for vrf, table in tables.items() if isinstance(table, int)}

    def save_tables(self, tables: Mapping[str, int]) -> None:
        """Write each VRF's table; durable when this returns."""
        self._store(TABLES, {"tables": dict(sorted(tables.items()))})

    def forget(self) -> tuple[Path, ...]:
        """Remove both files, wherever they are; return those that were there."""
        paths = [parent / name for parent in self._directories for name in (JOURNAL, TABLES)]
        found = tuple(path for path in paths if path.exists())
        for path in found:
            path.unlink()
        return found

    def _store(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a file to the first directory that takes it; raise the last one's :class:`OSError` when none does."""
        serial = self._serial(self._newest(name)[1]) + 1
        text = json.dumps({"version": 1, "serial": serial, **content}, indent=1) + "\n"
        refusal: OSError | None = None
        for directory in self._directories:
            try:
                write_atomic(directory / name, text)
            except OSError as error:
                refusal = error
                continue
            if refusal is not None:
                message = "the state directory cannot be written to: kept in memory until it can"
                log.warning(message, message_id=message_ids.STATE_SPARED, file=directory / name, error=refusal)
            return
        if refusal is not None:
            raise refusal

    def _newest(self, name: str) -> tuple[Path, dict[str, Any]]:
        """Return the file that was written last, and where it is."""
        found = [(parent / name, self._load(parent / name)) for parent in self._directories]
        return max(found, key=lambda one: self._serial(one[1]))

    @staticmethod
    def _serial(content: Mapping[str, Any]) -> int:
        """Return the number of a write; files of older versions have none."""
        serial = content.get("serial", 0)
        return serial if isinstance(serial, int) else 0

    def _load(self, path: Path) -> dict[str, Any]:
        try:
            content = json.loads(path.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except ValueError:
            self._set_aside(path)
            return {}
        return content if isinstance(content, dict) else {}

    def _set_aside(self, path: Path) -> None:
        """Keep a damaged file for whoever looks into it, out of the way of the next write."""
        if not self._read_only:
            path.replace(path.with_suffix(".damaged"))


def _make(directory: Path, *, optional: bool) -> None:
    """Make a directory; a disk that refuses is told later, by the write that it refuses."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        if not optional:
            raise


def _fields(record: NicRecord) -> dict[str, Any]:
    found = asdict(record)
    for address in found["addresses"]:
        address["interface"] = str(address["interface"])
    found["sysctls"] = dict(record.sysctls)
    return found


def _record(found: Mapping[str, Any]) -> NicRecord:
    addresses = tuple(
        Address(**{**_known(Address, address), "interface": ip_interface(address["interface"])})
        for address in found["addresses"]
    )
    routes = tuple(
        SavedRoute(**{**_known(SavedRoute, route), "family": Family(route["family"])}) for route in found["routes"]
    )
    return NicRecord(
        **{
            **_known(NicRecord, found),
            "phase": NicPhase(found["phase"]),
            "addresses": addresses,
            "routes": routes,
            "altnames": tuple(found["altnames"]),
            "sysctls": checked(found.get("sysctls", {})),
        }
    )


def _known(kind: type[DataclassInstance], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what this version knows of an object that perhaps a newer one wrote."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in found.items() if name in names}
