"""Which of FRR's processes run, and whether its own start is still under way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.lib.frr.processes import is_loading, pid_of, running_daemons


def test_a_pid_file_that_names_another_program_is_no_daemon(tmp_path: Path) -> None:
    own = Path("/proc/self/comm").read_text().strip()
    (tmp_path / f"{own}.pid").write_text(f"{os.getpid()}\n")
    (tmp_path / "zebra.pid").write_text(f"{os.getpid()}\n")
    (tmp_path / "bgpd.pid").write_text("not a number\n")
    assert running_daemons(tmp_path) == {own}
    assert pid_of(tmp_path, own) == os.getpid()
    assert pid_of(tmp_path, "mgmtd") is None
    assert running_daemons(tmp_path / "missing") == frozenset()


def processes(directory: Path, *commands: str) -> Path:
    for number, command in enumerate(commands, start=1):
        (directory / str(number)).mkdir()
        (directory / str(number) / "cmdline").write_text(command.replace(" ", "\0") + "\0")
    (directory / "99").mkdir()
    (directory / "self").mkdir()
    return directory


@pytest.mark.parametrize(
    ("command", "loading"),
    [
        ("/bin/sh /usr/lib/frr/watchfrr.sh restart all", True),
        ("/usr/bin/vtysh -N perouter -b", True),
        ("/usr/bin/vtysh -N perouter -b -d mgmtd", True),
        ("/usr/bin/vtysh -N leaf -b", False),
        ("/usr/bin/vtysh -N perouter -f /run/openperouter/frr/commands.conf", False),
        ("/usr/lib/frr/watchfrr -N perouter -d -F traditional mgmtd zebra bgpd", False),
    ],
)
def test_a_start_is_distinguished_from_other_processes(tmp_path: Path, command: str, loading: bool) -> None:
    assert is_loading("perouter", processes(tmp_path, "/sbin/init", command)) is loading
