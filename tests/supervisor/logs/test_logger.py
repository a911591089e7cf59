"""Log lines carry fields, reach the journal, a terminal or a pipe, and never block or end the daemon."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.logs import logger, sinks
from supervisor.logs.logger import Log, configure, get_logger, journal_name

Run = Callable[[], str]
pytestmark = pytest.mark.usefixtures("restored_logging")


@pytest.fixture
def stderr_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Standard error goes into a file."""
    path = tmp_path / "stderr"
    with path.open("wb") as file:
        monkeypatch.setattr(sinks, "STDERR", file.fileno())
        yield path


@pytest.fixture
def log() -> Log:
    return get_logger("netlink")


def pretend_to_be_under_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    status = os.fstat(sinks.STDERR)
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")


def test_a_line_has_time_level_actor_message_and_fields(stderr_file: Path, log: Log) -> None:
    configure("info")
    log.info("underlay moved", nic="eth1", vni=100, ok=True, seconds=1.5, nothing=None, text='two "words"')
    line = stderr_file.read_text()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} info    netlink: .*\n", line)
    assert line.endswith('underlay moved nic=eth1 vni=100 ok=true seconds=1.5 text="two \\"words\\""\n')


def test_text_from_outside_cannot_forge_a_line(stderr_file: Path, log: Log) -> None:
    configure("info")
    log.info("bad name a\n00:00 info forged\x1b[2J", name="b\nforged")
    assert stderr_file.read_text().count("\n") == 1
    assert "\x1b" not in stderr_file.read_text()


def test_a_message_with_percent_signs_is_not_a_format(stderr_file: Path, log: Log) -> None:
    configure("info")
    log.info("100 %s of %d")
    assert "100 %s of %d" in stderr_file.read_text()


def test_the_level_decides_and_can_be_changed_while_running(stderr_file: Path, log: Log) -> None:
    configure("warning")
    log.info("hidden")
    configure("debug")
    log.debug("seen")
    assert "hidden" not in stderr_file.read_text()
    assert stderr_file.read_text().count("seen") == 1


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="'loud' is none of"):
        configure("loud")


def test_libraries_are_logged_from_warning_on(stderr_file: Path) -> None:
    configure("debug")
    logging.getLogger("pyroute2").info("chatter")
    logging.getLogger("pyroute2").warning("trouble")
    assert "pyroute2: trouble" in stderr_file.read_text()
    assert "chatter" not in stderr_file.read_text()


def test_an_exception_is_logged_with_its_traceback(stderr_file: Path, log: Log) -> None:
    configure("info")
    try:
        _ = 1 / 0
    except ZeroDivisionError as error:
        log.bug("actor failed", error, restarts=1)
    text = stderr_file.read_text()
    assert "actor failed restarts=1\nTraceback" in text
    assert "ZeroDivisionError: division by zero" in text


def test_a_terminal_gets_colour_and_a_file_does_not(
    stderr_file: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure("info")
    log.error("plain")
    monkeypatch.setattr(os, "isatty", lambda _descriptor: True)
    configure("info")
    log.error("red")
    plain, red = stderr_file.read_text().splitlines()
    assert "\x1b" not in plain
    assert red.startswith("\x1b[31m")
    assert red.endswith("\x1b[0m")


def test_without_the_journal_s_socket_standard_error_gets_priorities_on_every_line(
    stderr_file: Path, log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sinks, "JOURNAL_SOCKET", str(tmp_path / "absent"))
    pretend_to_be_under_the_journal(monkeypatch)
    configure("info")
    log.warning("odd", vni=7)
    try:
        _ = 1 / 0
    except ZeroDivisionError as error:
        log.bug("bug", error)
    lines = stderr_file.read_text().splitlines()
    assert lines[0] == "<4>netlink: odd vni=7"
    assert lines[1] == "<3>netlink: bug"
    assert all(line.startswith("<3>") for line in lines[1:])


def test_a_stale_journal_stream_is_ignored(stderr_file: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "1:2")
    configure("info")
    log.info("hello")
    assert not stderr_file.read_text().startswith("<")


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The journal's end of the socket."""
    path = str(tmp_path / "journal")
    monkeypatch.setattr(sinks, "JOURNAL_SOCKET", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(path)
        receiver.setblocking(False)
        yield receiver


def received(journal: socket.socket) -> dict[str, str]:
    """Return the next record, its members decoded as journald does."""
    datagram, fields = journal.recv(1 << 20), {}
    while datagram:
        name, separator, datagram = re.split(rb"([=\n])", datagram, maxsplit=1)
        if separator == b"=":
            value, _, datagram = datagram.partition(b"\n")
        else:
            end = 8 + int.from_bytes(datagram[:8], "little")
            value, newline, datagram = datagram[8:end], datagram[end : end + 1], datagram[end + 1 :]
            assert newline == b"\n"
        fields[name.decode()] = value.decode()
    return fields


def test_the_journal_gets_the_fields(
    stderr_file: Path, log: Log, journal: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_to_be_under_the_journal(monkeypatch)
    configure("info")
    log.warning("VNI refused", vni=100, vrf="red", generation=3, message_id="ab" * 16)
    fields = received(journal)
    place = {key: fields.pop(key) for key in ("CODE_FILE", "CODE_LINE", "CODE_FUNC")}
    assert fields == {
        "MESSAGE": "netlink: VNI refused vni=100 vrf=red generation=3",
        "ACTOR": "netlink",
        "VNI": "100",
        "VRF": "red",
        "GENERATION": "3",
        "MESSAGE_ID": "ab" * 16,
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "openperouter",
    }
    assert place["CODE_FILE"] == __file__
    assert int(place["CODE_LINE"]) > 0
    assert place["CODE_FUNC"] == "test_the_journal_gets_the_fields"
    assert stderr_file.read_text() == ""


def test_the_journal_gets_lines_of_a_traceback_as_one_record(
    stderr_file: Path, log: Log, journal: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_to_be_under_the_journal(monkeypatch)
    configure("info")
    log.bug("actor failed", ValueError("x\ny"), note="two\nlines")
    fields = received(journal)
    assert fields["MESSAGE"].splitlines()[-2:] == ["ValueError: x", "y"]
    assert fields["NOTE"] == "two\nlines"


def test_a_file_s_name_that_is_not_utf_8_is_escaped(stderr_file: Path, journal: socket.socket) -> None:
    name = os.fsdecode(b"openpe_caf\xe9.yaml")
    # Not through the root logger: pytest keeps what it sees there, and cannot send that name to another process.
    record = logging.LogRecord("openperouter", logging.WARNING, __file__, 1, f"{name} is bad", (), None, "test")
    record.fields = {"file": name}
    for sink in (sinks.StderrSink(prefix_priority=False), sinks.JournalSink(sinks.JOURNAL_SOCKET)):
        logger._Handler(sink, colour=False).emit(record)
    fields = received(journal)
    assert fields["FILE"] == "openpe_caf\\udce9.yaml"
    for text in (fields["MESSAGE"], stderr_file.read_text(encoding="utf-8")):
        assert text.count("openpe_caf\\udce9.yaml") == 2


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("vni", "VNI"),
        ("_pid", "PID"),
        ("9lives", "LIVES"),
        ("a-b", "A_B"),
        ("message", "FIELD_MESSAGE"),
        ("__", "FIELD_"),
    ],
)
def test_field_names_become_what_the_journal_accepts(key: str, name: str) -> None:
    assert journal_name(key) == name
    assert len(journal_name(key * 100)) <= 64


def dropped() -> int:
    """Return how many lines the installed sink has dropped."""
    [handler] = [handler for handler in logging.getLogger().handlers if isinstance(handler, logger._Handler)]
    assert isinstance(handler._sink, sinks.StderrSink)
    return handler._sink.dropped


def test_a_closed_standard_error_drops_lines(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    monkeypatch.setattr(sinks, "STDERR", writing)
    configure("info")
    log.error("dropped")
    assert dropped() == 1
    os.close(reading)


def test_a_broken_pipe_drops_lines(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr(sinks, "STDERR", writing)
    configure("info")
    for _ in range(3):
        log.error("dropped")
    assert dropped() == 3
    os.close(writing)


def test_field_values_that_fail_to_print_do_not_raise(stderr_file: Path, log: Log) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    configure("info")
    log.info("hello", value=Broken())
    log.info("after")
    assert "could not be formatted: ('hello',)" in stderr_file.read_text()
    assert "after" in stderr_file.read_text()


def test_configuring_twice_does_not_double_lines(stderr_file: Path, log: Log) -> None:
    configure("info")
    configure("info")
    log.info("once")
    assert stderr_file.read_text().count("once") == 1
