"""The archive: closed to others, never over an existing file, whole or absent."""

from __future__ import annotations

import os
import stat
import tarfile
from pathlib import Path

import pytest

from supervisor.operations.bundle import BundleError, archive, write_bundle
from supervisor.operations.bundle.archive import Piece

PIECES = (Piece("status.json", "{}"), Piece("frr/running.conf", "router bgp 1\n"))


def test_it_holds_every_piece_below_one_directory_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    old = os.umask(0)
    try:
        size = write_bundle(path, PIECES, "bundle")
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_size == size
    with tarfile.open(path) as members:
        assert members.getnames() == ["bundle/status.json", "bundle/frr/running.conf"]
        assert {member.mode for member in members.getmembers()} == {0o600}


@pytest.mark.parametrize("trap", ["file", "link"])
def test_an_existing_file_is_not_touched(tmp_path: Path, trap: str) -> None:
    path, victim = tmp_path / "b.tar.gz", tmp_path / "victim"
    victim.write_text("precious")
    if trap == "link":
        path.symlink_to(victim)
    else:
        path.write_text("precious")
    with pytest.raises(BundleError, match="already exists"):
        write_bundle(path, PIECES, "bundle")
    assert victim.read_text() == path.read_text() == "precious"


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive, "_add", full)
    with pytest.raises(BundleError, match="No space left"):
        write_bundle(tmp_path / "b.tar.gz", PIECES, "bundle")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="No such file"):
        write_bundle(tmp_path / "none" / "b.tar.gz", PIECES, "bundle")
