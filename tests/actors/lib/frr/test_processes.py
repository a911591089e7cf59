"""Which of FRR's processes run, and whether its own start is still under way."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from actors.lib.frr.processes import is_loading, pid_of, running_daemons


def test_a_pid_file_that_names_another_program_is_no_daemon(tmp_path: Path) -> None:
    own = Path("/proc/self/comm").read_text().strip()
    (tmp_path / f"{own}.pid").write_text(f"{os.getpid()}\n")
    (tmp_path / "zebra.pid").write_text(f"{os.getpid()}\n")
    (tmp_path / "bgpd.pid").write_text("not a number\n")
    os.mkfifo(tmp_path / "staticd.pid")
    assert running_daemons(tmp_path) == {own}
    assert pid_of(tmp_path, own) == os.getpid()
    assert pid_of(tmp_path, "mgmtd") is None
    assert running_daemons(tmp_path / "missing") == frozenset()


@pytest.mark.parametrize(
    ("name", "command", "loading"),
    [
        ("watchfrr.sh", "/bin/bash /usr/lib/frr/watchfrr.sh restart all", True),
        ("vtysh", "/usr/bin/vtysh -N perouter -b", True),
        ("vtysh", "/usr/bin/vtysh -N perouter -b -d mgmtd", True),
        ("vtysh", "/usr/bin/vtysh -N leaf -b", False),
        ("vtysh", "/usr/bin/vtysh -N perouter -f /run/openperouter/frr/commands.conf", False),
        ("watchfrr", "/usr/lib/frr/watchfrr -N perouter -d -F traditional mgmtd zebra bgpd", False),
        ("watchfrr.sh", "", False),
        ("less", "less /usr/lib/frr/watchfrr.sh", False),
    ],
)
def test_a_start_is_distinguished_from_other_processes(tmp_path: Path, name: str, command: str, loading: bool) -> None:
    for number in ("1", "99", "self"):
        (tmp_path / number).mkdir()
    (tmp_path / "1/comm").write_text(f"{name}\n")
    (tmp_path / "1/cmdline").write_text(command.replace(" ", "\0") + "\0" * bool(command))
    assert is_loading("perouter", tmp_path) is loading


def test_a_script_has_its_own_name(tmp_path: Path) -> None:
    script = tmp_path / "watchfrr.sh"
    script.write_text("#!/bin/sh\necho started\nread line\n")
    script.chmod(0o755)
    with subprocess.Popen([script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        assert is_loading("perouter")
        process.communicate(b"\n")
    assert process.returncode == 0
