"""FRR's own start is told from other processes, those of other pathspaces included."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.frr.startup import is_loading


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
def test_a_start_is_told_from_other_processes(tmp_path: Path, command: str, loading: bool) -> None:
    assert is_loading("perouter", processes(tmp_path, "/sbin/init", command)) is loading
