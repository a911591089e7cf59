"""The journal and the table map: what is written is read back, and damage is survived."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

import pytest

from actors.netlink.planning.observed import Address, NicPhase, NicRecord, SavedRoute
from actors.netlink.state_files import StateFiles
from config.desired import Family

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


def test_another_boots_journal_is_not_believed(tmp_path: Path) -> None:
    StateFiles(tmp_path, "boot").save_nic(RECORD)
    assert StateFiles(tmp_path, "next boot").journal() == {}


def test_tables_outlive_a_boot(tmp_path: Path) -> None:
    StateFiles(tmp_path, "boot").save_tables({"red": 10_000_100})
    assert StateFiles(tmp_path, "next boot").tables() == {"red": 10_000_100}


def test_a_damaged_file_is_kept_aside_and_counts_as_none(tmp_path: Path) -> None:
    files = StateFiles(tmp_path, "boot")
    (tmp_path / "nic-journal.json").write_text("{half")
    (tmp_path / "vrf-tables.json").write_text('{"tables": 3}')
    assert files.journal() == {}
    assert files.tables() == {}
    assert (tmp_path / "nic-journal.damaged").read_text() == "{half"


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


def test_what_an_older_version_did_not_write_is_as_it_was_then(tmp_path: Path) -> None:
    def take(record: dict[str, Any]) -> None:
        del record["group"], record["master"], record["sysctls"]
        for address in record["addresses"]:
            del address["label"], address["broadcast"]

    plain = tuple(replace(address, label="", broadcast=None) for address in RECORD.addresses)
    assert edited(tmp_path, take) == {"eth1": replace(RECORD, addresses=plain, sysctls=())}


def test_what_is_no_sysctl_of_a_nic_is_not_written_to_one(tmp_path: Path) -> None:
    def add(record: dict[str, Any]) -> None:
        record["sysctls"] |= {"ipv4.../../x": "1", "kernel.panic": "1", "ipv6.stable_secret": "2001:db8::1"}
        record["sysctls"] |= {f"ipv6.zz{number}": "1" for number in range(1000)}

    found = edited(tmp_path, add)["eth1"].sysctls
    assert found[:2] == RECORD.sysctls
    assert len(found) == 128
    assert all(key.startswith("ipv6.zz") for key, _ in found[2:])


def test_a_record_without_what_each_has_is_kept_aside(tmp_path: Path) -> None:
    files = StateFiles(tmp_path, "boot")
    (tmp_path / "nic-journal.json").write_text('{"boot": "boot", "nics": {"eth1": {"surprise": 1}}}')
    assert files.journal() == {}
    assert (tmp_path / "nic-journal.damaged").exists()


def test_what_a_disk_refuses_is_kept_in_memory_and_the_later_of_two_counts(tmp_path: Path) -> None:
    disk, memory = tmp_path / "disk", tmp_path / "memory"
    disk.write_text("where a directory should be, nothing can be written")
    memory.mkdir()
    files = StateFiles(disk, "boot", spare=memory)
    files.save_nic(RECORD)
    files.save_tables({"red": 1})
    again = StateFiles(disk, "boot", spare=memory, read_only=True)
    assert (again.journal(), again.tables()) == ({"eth1": RECORD}, {"red": 1})
    disk.unlink()
    files = StateFiles(disk, "boot", spare=memory)
    inside = replace(RECORD, phase=NicPhase.INSIDE)
    files.save_nic(inside)
    assert StateFiles(disk, "boot").journal() == {"eth1": inside}
    assert again.journal() == {"eth1": inside}
    assert set(files.forget()) == {disk / "nic-journal.json", memory / "nic-journal.json", memory / "vrf-tables.json"}
    assert list(disk.iterdir()) == list(memory.iterdir()) == []


def test_without_a_spare_directory_a_refusal_is_an_error(tmp_path: Path) -> None:
    files = StateFiles(tmp_path / "disk", "boot")
    (tmp_path / "disk").rmdir()
    with pytest.raises(FileNotFoundError):
        files.save_nic(RECORD)


def test_looking_only_leaves_no_trace(tmp_path: Path) -> None:
    directory = tmp_path / "absent"
    files = StateFiles(directory, "boot", read_only=True)
    assert (files.journal(), files.tables()) == ({}, {})
    assert not directory.exists()
