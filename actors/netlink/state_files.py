"""What must outlive the process: the journal of NICs in the router's hands, and the tables of VRFs.

Both are small JSON files in the state directory, replaced atomically and synced before the step that relies on them.
The journal belongs to one boot: after a reboot the NIC is the host's again, and whoever configures the host has
configured it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from config.desired import Family
from supervisor.atomic_file import remove_stale, write_atomic

from .objects import Address, NicPhase, NicRecord, SavedRoute

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
JOURNAL = "nic-journal.json"
TABLES = "vrf-tables.json"


class StateFiles:
    """The two files of one state directory. ``boot`` identifies the running kernel's boot.

    ``read_only`` is for looking: nothing is made, cleaned or set aside.
    """

    def __init__(self, directory: Path, boot: str | None = None, *, read_only: bool = False) -> None:
        self._journal = directory / JOURNAL
        self._tables = directory / TABLES
        self._boot = boot if boot is not None else BOOT_ID.read_text().strip()
        self._read_only = read_only
        if read_only:
            return
        directory.mkdir(parents=True, exist_ok=True)
        for path in (self._journal, self._tables):
            remove_stale(path)

    def journal(self) -> dict[str, NicRecord]:
        """Return the records of this boot by NIC; a file that cannot be read is kept aside and counts as none."""
        content = self._load(self._journal)
        if content.get("boot") != self._boot:
            return {}
        try:
            return {name: _record(fields) for name, fields in content.get("nics", {}).items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            self._set_aside(self._journal)
            return {}

    def save_nic(self, record: NicRecord) -> None:
        """Write one NIC's record; durable when this returns."""
        self._write_journal({**self.journal(), record.name: record})

    def forget_nic(self, name: str) -> None:
        """Drop one NIC's record."""
        self._write_journal({nic: record for nic, record in self.journal().items() if nic != name})

    def _write_journal(self, records: Mapping[str, NicRecord]) -> None:
        nics = {name: _fields(record) for name, record in sorted(records.items())}
        _store(self._journal, {"version": 1, "boot": self._boot, "nics": nics})

    def tables(self) -> dict[str, int]:
        """Return each VRF's persisted table."""
        tables = self._load(self._tables).get("tables", {})
        if not isinstance(tables, dict):
            return {}
        return {str(vrf): table for vrf, table in tables.items() if isinstance(table, int)}

    def save_tables(self, tables: Mapping[str, int]) -> None:
        """Write each VRF's table; durable when this returns."""
        _store(self._tables, {"version": 1, "tables": dict(sorted(tables.items()))})

    def _load(self, path: Path) -> dict[str, Any]:
        try:
            content = json.loads(path.read_text())
        except FileNotFoundError:
            return {}
        except ValueError:
            self._set_aside(path)
            return {}
        return content if isinstance(content, dict) else {}

    def _set_aside(self, path: Path) -> None:
        """Keep a damaged file for whoever looks into it, out of the way of the next write."""
        if not self._read_only:
            path.replace(path.with_suffix(".damaged"))


def _store(path: Path, content: Mapping[str, Any]) -> None:
    write_atomic(path, json.dumps(content, indent=1) + "\n")


def _fields(record: NicRecord) -> dict[str, Any]:
    fields = asdict(record)
    for address in fields["addresses"]:
        address["interface"] = str(address["interface"])
    return fields


def _record(fields: Mapping[str, Any]) -> NicRecord:
    addresses = tuple(
        Address(**{**address, "interface": ip_interface(address["interface"])}) for address in fields["addresses"]
    )
    routes = tuple(SavedRoute(**{**route, "family": Family(route["family"])}) for route in fields["routes"])
    return NicRecord(
        **{
            **fields,
            "phase": NicPhase(fields["phase"]),
            "addresses": addresses,
            "routes": routes,
            "altnames": tuple(fields["altnames"]),
        }
    )
