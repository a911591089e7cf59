"""Sinks drop lines rather than wait, count them, and report the number afterwards."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from supervisor.logs.sinks import JournalSink, StderrSink


def fill(sink: StderrSink | JournalSink) -> int:
    """Write until the first drop; return how many lines fitted."""
    written = 0
    while not sink.dropped:
        sink.write(6, "x" * 500, "x" * 500, {})
        written += 1
        assert written < 100_000
    return written - 1


@pytest.mark.timeout(60)
def test_a_full_pipe_drops_lines_and_reports_how_many_when_there_is_room() -> None:
    reading, writing = os.pipe()
    sink = StderrSink(prefix_priority=True, descriptor=writing)
    assert fill(sink) > 10
    sink.write(6, "lost", "lost", {})
    assert sink.dropped == 2
    os.read(reading, 1 << 20)
    sink.write(6, "after", "after", {})
    text = os.read(reading, 1 << 20).decode()
    assert text == "<4>2 log lines were lost because standard error was not read\n<6>after\n"
    os.close(reading)
    os.close(writing)


@pytest.mark.timeout(60)
def test_a_full_stream_socket_drops_lines_too() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sink = StderrSink(prefix_priority=False, descriptor=ours.fileno())
        assert fill(sink) > 10
        while sink.dropped:
            theirs.recv(1 << 20)
            sink.write(6, "after", "after", {})
        assert b"log lines were lost" in theirs.recv(1 << 20)


def test_a_line_longer_than_a_piece_arrives_whole() -> None:
    reading, writing = os.pipe()
    StderrSink(prefix_priority=False, descriptor=writing).write(6, "", "y" * 10_000, {})
    assert os.read(reading, 1 << 20) == b"y" * 10_000 + b"\n"
    os.close(reading)
    os.close(writing)


@pytest.mark.timeout(60)
def test_a_stalled_journal_drops_lines_and_reports_how_many_when_it_reads_again(tmp_path: Path) -> None:
    path = str(tmp_path / "journal")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(path)
        sink = JournalSink(path)
        fitted = fill(sink)
        sink.write(6, "lost", "lost", {})
        assert sink.dropped == 2
        for _ in range(fitted):
            journal.recv(1 << 16)
        sink.write(6, "after", "after", {})
        assert sink.dropped == 0
        report, after = journal.recv(1 << 16), journal.recv(1 << 16)
    assert b"MESSAGE=2 log lines were lost because the journal did not take them\nPRIORITY=4\n" in report
    assert b"MESSAGE=after\n" in after
