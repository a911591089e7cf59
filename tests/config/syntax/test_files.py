"""Bounded reading that distinguishes absence from failure and never blocks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from config.syntax.files import UnreadableFileError, list_directory, read_bounded, scan_directory


def test_content_and_mode_are_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    path.chmod(0o640)
    assert read_bounded(path, 10) == (b"abc", 0o640)


def test_one_byte_more_than_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abcdef")
    assert read_bounded(path, 3)[0] == b"abcd"


def test_absence_is_not_failure(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bounded(tmp_path / "none", 1)
    assert list_directory(tmp_path / "none") == []
    with pytest.raises(FileNotFoundError):
        scan_directory(tmp_path / "none")


def test_a_fifo_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UnreadableFileError, match="not a regular file"):
        read_bounded(tmp_path / "fifo", 1)


def test_a_directory_is_not_a_file_and_a_file_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(UnreadableFileError, match="not a regular file"):
        read_bounded(tmp_path, 1)
    with pytest.raises(UnreadableFileError, match="Not a directory"):
        list_directory(tmp_path / "f")


def test_a_loop_of_links_is_reported_in_the_systems_words(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UnreadableFileError, match="cannot be read: Too many levels of symbolic links") as caught:
        read_bounded(tmp_path / "loop", 1)
    assert str(caught.value.problem().origin) == str(tmp_path / "loop")


def test_a_link_to_a_directory_that_does_not_exist_is_failure_not_absence(tmp_path: Path) -> None:
    (tmp_path / "configs").symlink_to("nowhere")
    for look in (list_directory, scan_directory):
        with pytest.raises(UnreadableFileError, match="symbolic link to a directory that does not exist"):
            look(tmp_path / "configs")
