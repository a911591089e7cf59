"""The journal and the table map: what is written is read back, damage is survived, old files stay readable."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

import pytest

from actors.netlink import state_files
from actors.netlink.converge import converge
from actors.netlink.planning.observed import Address, Link, Namespace, NicPhase, NicRecord, SavedRoute
from actors.netlink.planning.steps import SaveNic, Step
from actors.netlink.state_files import StateFiles
from config.desired import Family
from tests.actors.netlink.builders import state
from tests.fakes.kernel import FakeKernel

RECORD = NicRecord(
    name="eth1",
    phase=NicPhase.MOVING,
    mtu=9000,
    mac="02:00:00:00:00:01",
    up=True,
    addresses=(
        Address(ip_interface("192.168.11.3/24"), flags=0x280, peer="192.168.11.4"),
        Address(ip_interface("192.168.12.3/24"), broadcast="", label="eth1:2"),
        Address(ip_interface("fe80::1/64"), scope=253),
    ),
    routes=(SavedRoute(Family.IPV6, "2001:db8::/32", 254, gateway="fe80::2", priority=20, mtu=1400),),
    altnames=("enp1s0",),
    sysctls=(("ipv4.rp_filter", "2"), ("ipv6.accept_ra", "0")),
)


def test_a_record_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    StateFiles(tmp_path, "boot").save_nic(RECORD)
    assert StateFiles(tmp_path, "boot").journal() == {"eth1": RECORD}


def test_a_forgotten_record_is_gone_and_the_others_stay(tmp_path: Path) -> None:
    files = StateFiles(tmp_path, "boot")
    other = NicRecord("eth2", NicPhase.INSIDE, 1500, "", up=True)
    files.save_nic(RECORD)
    files.save_nic(other)
    files.forget_nic("eth1")
    assert files.journal() == {"eth2": other}


def test_another_boots_journal_is_ignored(tmp_path: Path) -> None:
    StateFiles(tmp_path, "boot").save_nic(RECORD)
    assert StateFiles(tmp_path, "next boot").journal() == {}


def test_tables_outlive_a_boot(tmp_path: Path) -> None:
    StateFiles(tmp_path, "boot").save_tables({"red": 10_000_100})
    assert StateFiles(tmp_path, "next boot").tables() == {"red": 10_000_100}


def test_a_damaged_file_is_set_aside_and_counts_as_none(tmp_path: Path) -> None:
    files = StateFiles(tmp_path, "boot")
    (tmp_path / "nic-journal.json").write_text("{half")
    (tmp_path / "vrf-tables.json").write_text('{"tables": 3}')
    assert files.journal() == {}
    assert files.tables() == {}
    assert (tmp_path / "nic-journal.damaged").read_text() == "{half"
    assert (tmp_path / "vrf-tables.damaged").exists()


#: As version 0.1 wrote them.
WRITTEN = {
    "nic-journal.json": """\
{
 "version": 1,
 "serial": 1,
 "boot": "boot",
 "nics": {
  "eth1": {
   "name": "eth1",
   "phase": "moving",
   "mtu": 9000,
   "mac": "02:00:00:00:00:01",
   "up": true,
   "addresses": [
    {
     "interface": "192.168.11.3/24",
     "flags": 640,
     "scope": 0,
     "ours": false,
     "peer": "192.168.11.4",
     "broadcast": null,
     "label": ""
    },
    {
     "interface": "192.168.12.3/24",
     "flags": 128,
     "scope": 0,
     "ours": false,
     "peer": "",
     "broadcast": "",
     "label": "eth1:2"
    },
    {
     "interface": "fe80::1/64",
     "flags": 128,
     "scope": 253,
     "ours": false,
     "peer": "",
     "broadcast": null,
     "label": ""
    }
   ],
   "routes": [
    {
     "family": "ipv6",
     "destination": "2001:db8::/32",
     "table": 254,
     "gateway": "fe80::2",
     "source": "",
     "priority": 20,
     "protocol": 3,
     "scope": 0,
     "type": 1,
     "flags": 0,
     "mtu": 1400
    }
   ],
   "altnames": [
    "enp1s0"
   ],
   "master": "",
   "group": 0,
   "sysctls": {
    "ipv4.rp_filter": "2",
    "ipv6.accept_ra": "0"
   }
  }
 }
}
""",
    "vrf-tables.json": """\
{
 "version": 1,
 "serial": 1,
 "tables": {
  "red": 10000100
 }
}
""",
}


def test_files_are_read_and_written_as_they_always_were(tmp_path: Path) -> None:
    for name, text in WRITTEN.items():
        (tmp_path / name).write_text(text)
    files = StateFiles(tmp_path, "boot")
    assert files.journal() == {"eth1": RECORD}
    assert files.tables() == {"red": 10_000_100}
    files.forget()
    files.save_nic(RECORD)
    files.save_tables({"red": 10_000_100})
    assert {name: (tmp_path / name).read_text() for name in WRITTEN} == WRITTEN


BAD_DISK = [errno.EIO, errno.EISDIR, errno.EACCES, errno.EROFS]


class Disk:
    """A directory that refuses everything with one error from a certain moment on."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refuses = 0
        directory.mkdir()
        for name in ("read_bytes", "replace", "mkdir", "iterdir", "unlink"):
            monkeypatch.setattr(Path, name, self._refusing(getattr(Path, name), directory))
        monkeypatch.setattr(os, "open", self._refusing(os.open, directory))

    def _refusing(self, function: Callable[..., Any], directory: Path) -> Callable[..., Any]:
        def call(path: Path, *arguments: Any, **options: Any) -> Any:
            if self.refuses and directory in (path, path.parent):
                raise OSError(self.refuses, os.strerror(self.refuses))
            return function(path, *arguments, **options)

        return call


@pytest.mark.parametrize("error", BAD_DISK)
def test_a_disk_that_turns_bad_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    disk = Disk(tmp_path / "disk", monkeypatch)
    memory = tmp_path / "memory"
    files = StateFiles(tmp_path / "disk", "boot", spare=memory)
    files.save_nic(RECORD)
    files.save_tables({"red": 10_000_100})
    disk.refuses = error
    for one in (files, StateFiles(tmp_path / "disk", "boot", spare=memory)):
        assert (one.journal(), one.tables()) == ({"eth1": RECORD}, {"red": 10_000_100})
        one.save_nic(replace(RECORD, phase=NicPhase.INSIDE))
        one.save_nic(RECORD)
    disk.refuses = 0
    later = StateFiles(tmp_path / "disk", "boot", spare=memory)
    assert later.journal() == {"eth1": RECORD}
    later.forget_nic("eth1")
    assert StateFiles(tmp_path / "disk", "boot").journal() == StateFiles(memory, "boot").journal() == {}


@pytest.mark.parametrize("error", BAD_DISK)
def test_a_disk_that_is_bad_after_a_boot_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    disk = Disk(tmp_path / "disk", monkeypatch)
    StateFiles(tmp_path / "disk", "boot").save_nic(RECORD)
    disk.refuses = error
    files = StateFiles(tmp_path / "disk", "next boot", spare=tmp_path / "memory")
    assert (files.journal(), files.tables()) == ({}, {})
    files.save_nic(RECORD)
    assert StateFiles(tmp_path / "memory", "next boot").journal() == {"eth1": RECORD}


def test_what_was_written_while_a_disk_was_bad_outranks_what_it_had_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, memory = Disk(tmp_path / "disk", monkeypatch), tmp_path / "memory"
    before = StateFiles(tmp_path / "disk", "boot before")
    for table in range(3):
        before.save_nic(replace(RECORD, mtu=table))
        before.save_tables({"red": table})
    disk.refuses = errno.EIO
    files = StateFiles(tmp_path / "disk", "boot", spare=memory)
    files.save_nic(RECORD)
    files.save_tables({"red": 10_000_100})
    disk.refuses = 0
    later = StateFiles(tmp_path / "disk", "boot", spare=memory)
    assert (later.journal(), later.tables()) == ({"eth1": RECORD}, {"red": 10_000_100})


def test_a_refused_write_that_reached_the_disk_never_outranks_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, memory = tmp_path / "disk", tmp_path / "memory"
    files = StateFiles(disk, "boot", spare=memory)
    files.save_tables({"red": 1})
    refusal = OSError(errno.EIO, "")

    def unsynced(path: Path, text: str) -> None:
        if path.parent == disk:
            path.write_text(text)
        raise refusal

    def spare_only(path: Path, text: str) -> None:
        if path.parent == disk:
            raise refusal
        path.write_text(text)

    monkeypatch.setattr(state_files, "write_atomic", unsynced)
    with pytest.raises(OSError, match="5"):
        files.save_tables({"red": 2})
    assert files.tables() == {"red": 1}
    monkeypatch.setattr(state_files, "write_atomic", spare_only)
    files.save_tables({"red": 3})
    assert StateFiles(disk, "boot", spare=memory).tables() == {"red": 3}


def test_without_any_record_no_nic_is_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path / "disk", monkeypatch)
    files = StateFiles(tmp_path / "disk", "boot", spare=tmp_path / "disk" / "memory")
    kernel = Journalling(files)
    kernel.add(Namespace.HOST, Link(0, "toswitch1", up=True))
    disk.refuses = errno.EROFS
    (tmp_path / "disk" / "memory").rmdir()
    [failure] = converge(state(), kernel).failures
    assert "Read-only" in failure.message
    assert (Namespace.HOST, "toswitch1") in kernel.links
    disk.refuses = 0
    assert converge(state(), kernel).clean
    assert (Namespace.ROUTER, "toswitch1") in kernel.links


class Journalling(FakeKernel):
    """A fake kernel with real state files."""

    def __init__(self, files: StateFiles) -> None:
        super().__init__()
        self.files = files

    def apply(self, step: Step) -> None:
        if isinstance(step, SaveNic):
            self.files.save_nic(step.record)
        super().apply(step)


def test_a_directory_in_a_files_place_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "nic-journal.json").mkdir()
    files = StateFiles(tmp_path, "boot")
    assert files.journal() == {}
    files.save_nic(RECORD)
    assert StateFiles(tmp_path, "boot").journal() == {"eth1": RECORD}


def edited(directory: Path, edit: Callable[[dict[str, Any]], None]) -> dict[str, NicRecord]:
    """Save the record, change what was written of it, and return what is read then."""
    StateFiles(directory, "boot").save_nic(RECORD)
    journal = directory / "nic-journal.json"
    content = json.loads(journal.read_text())
    edit(content["nics"]["eth1"])
    journal.write_text(json.dumps(content))
    return StateFiles(directory, "boot").journal()


def test_what_a_newer_version_wrote_besides_is_ignored(tmp_path: Path) -> None:
    def add(record: dict[str, Any]) -> None:
        for part in (record, *record["addresses"], *record["routes"]):
            part["surprise"] = {"from": "a newer version"}

    assert edited(tmp_path, add) == {"eth1": RECORD}
    assert not (tmp_path / "nic-journal.damaged").exists()
    StateFiles(tmp_path, "boot").save_nic(RECORD)
    assert "surprise" not in (tmp_path / "nic-journal.json").read_text()


def test_what_an_older_version_did_not_write_takes_its_default(tmp_path: Path) -> None:
    def take(record: dict[str, Any]) -> None:
        del record["group"], record["master"], record["sysctls"]
        for address in record["addresses"]:
            del address["label"], address["broadcast"]

    plain = tuple(replace(address, label="", broadcast=None) for address in RECORD.addresses)
    assert edited(tmp_path, take) == {"eth1": replace(RECORD, addresses=plain, sysctls=())}


def test_only_sysctls_of_a_nic_are_restored(tmp_path: Path) -> None:
    def add(record: dict[str, Any]) -> None:
        record["sysctls"] |= {"ipv4.../../x": "1", "kernel.panic": "1", "ipv6.stable_secret": "2001:db8::1"}
        record["sysctls"] |= {f"ipv6.zz{number}": "1" for number in range(1000)}

    found = edited(tmp_path, add)["eth1"].sysctls
    assert found[:2] == RECORD.sysctls
    assert len(found) == 128
    assert all(key.startswith("ipv6.zz") for key, _ in found[2:])


def test_an_incomplete_record_is_set_aside(tmp_path: Path) -> None:
    files = StateFiles(tmp_path, "boot")
    (tmp_path / "nic-journal.json").write_text('{"boot": "boot", "nics": {"eth1": {"surprise": 1}}}')
    assert files.journal() == {}
    assert (tmp_path / "nic-journal.damaged").exists()


def test_the_later_copy_counts(tmp_path: Path) -> None:
    disk, memory = tmp_path / "disk", tmp_path / "memory"
    disk.write_text("where a directory should be, nothing can be written")
    memory.mkdir()
    files = StateFiles(disk, "boot", spare=memory)
    files.save_nic(RECORD)
    files.save_tables({"red": 1})
    again = StateFiles(disk, "boot", spare=memory, read_only=True)
    assert (again.journal(), again.tables()) == ({"eth1": RECORD}, {"red": 1})
    disk.unlink()
    StateFiles(disk, "boot").save_nic(replace(RECORD, mtu=1500))
    files = StateFiles(disk, "boot", spare=memory)
    inside = replace(RECORD, phase=NicPhase.INSIDE)
    files.save_nic(inside)
    assert StateFiles(disk, "boot").journal() == {"eth1": inside}
    assert StateFiles(memory, "boot").journal() == {"eth1": inside}
    assert set(files.forget()) == {disk / "nic-journal.json", memory / "nic-journal.json", memory / "vrf-tables.json"}
    assert list(disk.iterdir()) == list(memory.iterdir()) == []


def test_without_a_spare_directory_a_refusal_is_an_error(tmp_path: Path) -> None:
    files = StateFiles(tmp_path / "disk", "boot")
    (tmp_path / "disk").rmdir()
    with pytest.raises(FileNotFoundError):
        files.save_nic(RECORD)


def test_read_only_changes_nothing_on_disk(tmp_path: Path) -> None:
    directory = tmp_path / "absent"
    files = StateFiles(directory, "boot", read_only=True)
    assert (files.journal(), files.tables()) == ({}, {})
    assert not directory.exists()
