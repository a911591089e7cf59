"""What must outlive the process: the journal of NICs that the router has taken, the tables of VRFs, CNI's results.

All are small JSON files in the state directory, replaced atomically and synced before the step that relies on them. A
bad disk must not cut a node off its network: a second copy of each is in memory (/run), which lasts until the next
boot. A write needs one of the two; reading takes the copy with the higher ``serial``, and one that cannot be read
counts as none. The journal belongs to one boot: after a reboot the NIC is the host's again, with whatever configuration
the host gave it. The record of what CNI plugins made belongs to none: they may have reserved an address on disk. So
nothing is lost with the disk as long as the machine runs.

Older and newer versions of the program read these files as well, since an upgrade or a downgrade does not reboot. So
no version is checked: unknown members are ignored, missing ones take their defaults.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BeforeValidator, SerializerFunctionWrapHandler, WrapSerializer

from config.settings import Settings
from config.store.json_store import JsonStore, StoreError
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.atomic_file import remove_stale, write_atomic

from .planning.observed import CniRecord, NicRecord
from .wire.nic_sysctls import checked

log = get_logger("netlink")

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
JOURNAL = "nic-journal.json"
TABLES = "vrf-tables.json"
ATTACHMENTS = "cni-attachments.json"


def _sysctls_to_pairs(stored: dict[str, Any]) -> dict[str, Any]:
    return {**stored, "sysctls": checked(stored.get("sysctls", {}))}


def _sysctls_to_object(record: NicRecord, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
    return {**handler(record), "sysctls": dict(record.sysctls)}


_Record = Annotated[NicRecord, BeforeValidator(_sysctls_to_pairs), WrapSerializer(_sysctls_to_object)]


@dataclass(frozen=True, slots=True)
class _Content:
    """What each file begins with. ``serial`` counts writes; early versions wrote none."""

    version: int = 1
    serial: int = 0


@dataclass(frozen=True, slots=True)
class _Journal(_Content):
    boot: str = ""
    nics: dict[str, _Record] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Tables(_Content):
    tables: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Attachments(_Content):
    attachments: dict[str, CniRecord] = field(default_factory=dict)


C = TypeVar("C", bound=_Content)


class StateFiles:
    """The files of one state directory. ``boot`` identifies the running kernel's boot.

    ``spare`` is the directory of the second copies. Only the first use reads the files: this process is their only
    writer. ``read_only`` changes nothing on disk.
    """

    def __init__(
        self, directory: Path, boot: str | None = None, *, spare: Path | None = None, read_only: bool = False
    ) -> None:
        self._boot = boot if boot is not None else BOOT_ID.read_text().strip()
        directories = (directory, *(() if spare is None else (spare,)))
        self._journal = _Copies(_Journal, [one / JOURNAL for one in directories], read_only=read_only)
        self._tables = _Copies(_Tables, [one / TABLES for one in directories], read_only=read_only)
        self._cni = _Copies(_Attachments, [one / ATTACHMENTS for one in directories], read_only=read_only)
        if not read_only:
            for one in directories:
                _make(one)
            for path in (*self._journal.paths, *self._tables.paths, *self._cni.paths):
                remove_stale(path)

    @classmethod
    def of(cls, settings: Settings, boot: str | None = None, *, read_only: bool = False) -> StateFiles:
        """Return the files of this installation."""
        return cls(settings.state_dir, boot, spare=settings.run_dir, read_only=read_only)

    def journal(self) -> dict[str, NicRecord]:
        """Return this boot's records by NIC."""
        journal = self._journal.newest()
        return journal.nics if journal.boot == self._boot else {}

    def save_nic(self, record: NicRecord) -> None:
        """Write one NIC's record; durable when this returns."""
        self._write_journal({**self.journal(), record.name: record})

    def forget_nic(self, name: str) -> None:
        """Drop one NIC's record."""
        self._write_journal({nic: record for nic, record in self.journal().items() if nic != name})

    def _write_journal(self, records: Mapping[str, NicRecord]) -> None:
        self._journal.write(_Journal(boot=self._boot, nics=dict(sorted(records.items()))))

    def tables(self) -> dict[str, int]:
        """Return each VRF's persisted table."""
        return self._tables.newest().tables

    def save_tables(self, tables: Mapping[str, int]) -> None:
        """Write each VRF's table; durable when this returns."""
        self._tables.write(_Tables(tables=dict(sorted(tables.items()))))

    def cni(self) -> dict[str, CniRecord]:
        """Return the records of interfaces that CNI plugins make, by name."""
        return self._cni.newest().attachments

    def save_cni(self, record: CniRecord) -> None:
        """Write one interface's record; durable when this returns."""
        self._write_cni({**self.cni(), record.attachment.name: record})

    def forget_cni(self, name: str) -> None:
        """Drop one interface's record."""
        self._write_cni({known: record for known, record in self.cni().items() if known != name})

    def _write_cni(self, records: Mapping[str, CniRecord]) -> None:
        self._cni.write(_Attachments(attachments=dict(sorted(records.items()))))

    def forget(self) -> tuple[Path, ...]:
        """Remove all files, wherever they are; return those that were there."""
        return (*self._journal.forget(), *self._tables.forget(), *self._cni.forget())


class _Copies(Generic[C]):
    """One file, a copy in each directory."""

    def __init__(self, content: type[C], paths: Sequence[Path], *, read_only: bool) -> None:
        self.paths = tuple(paths)
        self._content = content
        self._known: C | None = None
        self._store = JsonStore(content, paths[0].name)
        self._read_only = read_only
        #: Whether a copy could neither be read nor be set aside: its serial may be any, and it may be read later.
        self._unread = False

    def newest(self) -> C:
        """Return the copy that was written last, an empty one when there is none."""
        if self._known is not None:
            return self._known
        copies = [copy for copy in map(self._load, self.paths) if copy is not None]
        newest = max(copies, key=lambda one: one.serial, default=self._content())
        self._known = newest
        return newest

    def write(self, content: C) -> None:
        """Write all copies; raise the first one's :class:`OSError` when no directory takes any."""
        known = self.newest()
        serial = known.serial + 1
        if self._unread:
            # Above all that a count of writes comes to.
            serial = max(serial, int(time.time()))
        content = replace(content, serial=serial)
        text = self._store.encode(content)
        refused: dict[Path, OSError] = {}
        for path in self.paths:
            try:
                write_atomic(path, text)
            except OSError as error:
                refused[path] = error
        if len(refused) == len(self.paths):
            # It may have come as far as a disk that could only not be synced: what is written next outranks that.
            self._known = replace(known, serial=serial)
            raise refused[self.paths[0]]
        self._known = content
        for path, refusal in refused.items():
            message = "cannot write a state file: only the other copy is up to date until the next successful write"
            log.warning(message, message_id=message_ids.STATE_SPARED, file=path, error=refusal)

    def forget(self) -> tuple[Path, ...]:
        """Remove all copies; return those that were there."""
        self._known = None
        found = tuple(path for path in self.paths if path.exists())
        for path in found:
            path.unlink()
        return found

    def _load(self, path: Path) -> C | None:
        """Return one copy, None when it is of no use; it is then set aside, if the disk allows that."""
        try:
            return self._store.read(path)
        except StoreError as error:
            if not self._read_only:
                message = "cannot use a state file: the other copy counts, if there is one"
                log.warning(message, message_id=message_ids.STATE_UNREADABLE, file=path, error=error)
                try:
                    path.replace(path.with_suffix(".damaged"))
                except OSError:
                    self._unread = True
            return None


def _make(directory: Path) -> None:
    """Make a directory; a disk that refuses is reported later, by the write that it refuses."""
    with suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
