"""What must outlive the process: the journal of NICs that the router has taken, and the tables of VRFs.

Both are small JSON files in the state directory, replaced atomically and synced before the step that relies on them. A
full or read-only disk must not cut a node off its network: what cannot be written there goes to a spare directory in
memory (/run), which lasts until the next boot. Of two copies the one with the higher ``serial`` counts. The journal
belongs to one boot: after a reboot the NIC is the host's again, with whatever configuration the host gave it.

Older and newer versions of the program read these files as well, since an upgrade or a downgrade does not reboot. So
no version is checked: unknown members are ignored, missing ones take their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BeforeValidator, SerializerFunctionWrapHandler, WrapSerializer

from config.settings import Settings
from config.store.json_store import JsonStore, StoreError
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.atomic_file import remove_stale, write_atomic

from .planning.observed import NicRecord
from .wire.nic_sysctls import checked

log = get_logger("netlink")

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
JOURNAL = "nic-journal.json"
TABLES = "vrf-tables.json"


def _sysctls_to_pairs(stored: dict[str, Any]) -> dict[str, Any]:
    return {**stored, "sysctls": checked(stored.get("sysctls", {}))}


def _sysctls_to_object(record: NicRecord, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
    return {**handler(record), "sysctls": dict(record.sysctls)}


_Record = Annotated[NicRecord, BeforeValidator(_sysctls_to_pairs), WrapSerializer(_sysctls_to_object)]


@dataclass(frozen=True, slots=True)
class _Content:
    """What both files begin with. ``serial`` counts writes; early versions wrote none."""

    version: int = 1
    serial: int = 0


@dataclass(frozen=True, slots=True)
class _Journal(_Content):
    boot: str = ""
    nics: dict[str, _Record] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Tables(_Content):
    tables: dict[str, int] = field(default_factory=dict)


C = TypeVar("C", bound=_Content)


class StateFiles:
    """The two files of one state directory. ``boot`` identifies the running kernel's boot.

    ``spare`` is the directory for what ``directory`` refuses. ``read_only`` changes nothing on disk.
    """

    def __init__(
        self, directory: Path, boot: str | None = None, *, spare: Path | None = None, read_only: bool = False
    ) -> None:
        self._boot = boot if boot is not None else BOOT_ID.read_text().strip()
        directories = (directory, *(() if spare is None else (spare,)))
        self._journal = _Copies(_Journal, [one / JOURNAL for one in directories], read_only=read_only)
        self._tables = _Copies(_Tables, [one / TABLES for one in directories], read_only=read_only)
        if not read_only:
            _make(directory, optional=spare is not None)
            for path in self._paths:
                remove_stale(path)

    @classmethod
    def of(cls, settings: Settings, boot: str | None = None, *, read_only: bool = False) -> StateFiles:
        """Return the files of this installation."""
        return cls(settings.state_dir, boot, spare=settings.run_dir, read_only=read_only)

    def journal(self) -> dict[str, NicRecord]:
        """Return this boot's records by NIC; a damaged file is set aside and counts as none."""
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
        """Return each VRF's persisted table; a damaged file is set aside and counts as none."""
        return self._tables.newest().tables

    def save_tables(self, tables: Mapping[str, int]) -> None:
        """Write each VRF's table; durable when this returns."""
        self._tables.write(_Tables(tables=dict(sorted(tables.items()))))

    def forget(self) -> tuple[Path, ...]:
        """Remove both files, wherever they are; return those that were there."""
        found = tuple(path for path in self._paths if path.exists())
        for path in found:
            path.unlink()
        return found

    @property
    def _paths(self) -> tuple[Path, ...]:
        return *self._journal.paths, *self._tables.paths


class _Copies(Generic[C]):
    """One file in the directories that may hold it, the preferred one first."""

    def __init__(self, content: type[C], paths: Sequence[Path], *, read_only: bool) -> None:
        self.paths = tuple(paths)
        self._empty = content()
        self._store = JsonStore(content, paths[0].name)
        self._read_only = read_only

    def newest(self) -> C:
        """Return the copy that was written last, an empty one when there is none."""
        return max((self._load(path) for path in self.paths), key=lambda one: one.serial)

    def write(self, content: C) -> None:
        """Write to the first directory that takes it; raise the last one's :class:`OSError` when none does."""
        text = self._store.encode(replace(content, serial=self.newest().serial + 1))
        refusal: OSError | None = None
        for path in self.paths:
            try:
                write_atomic(path, text)
            except OSError as error:
                refusal = error
                continue
            if refusal is not None:
                message = "cannot write to the state directory: kept in memory until the next successful write"
                log.warning(message, message_id=message_ids.STATE_SPARED, file=path, error=refusal)
            return
        if refusal is not None:
            raise refusal

    def _load(self, path: Path) -> C:
        """Return one copy. A disk that fails raises: unlike damage, that may pass, and must not count as no journal."""
        try:
            return self._store.decode(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return self._empty
        except StoreError:
            if not self._read_only:
                path.replace(path.with_suffix(".damaged"))
            return self._empty


def _make(directory: Path, *, optional: bool) -> None:
    """Make a directory; a disk that refuses is reported later, by the write that it refuses."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        if not optional:
            raise
