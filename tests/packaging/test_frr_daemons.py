"""What is FRR's does not decide what root does: neither its PID files nor, at the installation, links in its directory.

FRR's scripts are bash's; a distribution's may be another shell's. The real scripts are tried with real daemons
(tests/frr/test_scripts.py); here a program called ``cat`` says to which control group a process belongs.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

DAEMONS = Path(__file__).resolve().parents[2] / "packaging" / "frr" / "perouter" / "daemons"
POSTINST = DAEMONS.parents[3] / "debian" / "openperouter.postinst"
#: What frrcommon.sh does with the content of a PID file, its second argument here.
STOP = '. "$1"; pid=$2; kill -0 "$pid" 2>/dev/null || exit 3; kill -2 "$pid"'

pytestmark = pytest.mark.parametrize("shell", ["bash", "dash"])


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    # What a shell starts in its background ignores SIGINT, as its children then do.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        # In a process group of its own, which a negative number means.
        process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        yield process
        process.kill()


def stop(shell: str, pid: str, groups: Path) -> int:
    """Run the scripts' lines; return their exit code."""
    (groups / "cat").write_text(f'#!/bin/sh\nexec /bin/cat "{groups}$1"\n')
    (groups / "cat").chmod(0o755)
    environment = {**os.environ, "PATH": f"{groups}:{os.environ['PATH']}"}
    return subprocess.run([shell, "-c", STOP, shell, str(DAEMONS), pid], env=environment, check=False).returncode


def place(groups: Path, process: str, group: str) -> None:
    file = groups / "proc" / process / "cgroup"
    file.parent.mkdir(parents=True)
    file.write_text(f"0::{group}\n")


def test_a_process_of_the_unit_is_stopped(shell: str, tmp_path: Path, victim: subprocess.Popen[bytes]) -> None:
    for process in ("self", str(victim.pid)):
        place(tmp_path, process, "/system.slice/frr@perouter.service")
    assert stop(shell, str(victim.pid), tmp_path) == 0
    assert victim.wait(30) == -2


@pytest.mark.parametrize("pid", ["{}", "-{}", "", "$(kill {})", "99999999"])
def test_no_other_process_is(shell: str, tmp_path: Path, victim: subprocess.Popen[bytes], pid: str) -> None:
    place(tmp_path, "self", "/system.slice/frr@perouter.service")
    place(tmp_path, str(victim.pid), "/system.slice/ssh.service")
    assert stop(shell, pid.format(victim.pid), tmp_path) == 3
    assert victim.poll() is None


def test_the_installation_gives_away_nothing_that_a_link_of_frrs_names(shell: str, tmp_path: Path) -> None:
    """The directory was FRR's before: what is in it may be a link to any file."""
    etc, tools, victim = tmp_path / "etc/frr/perouter", tmp_path / "tools", tmp_path / "victim"
    etc.mkdir(parents=True)
    tools.mkdir()
    victim.write_text("root's")
    for name in ("daemons", "frr.conf"):
        (etc / name).symlink_to(victim)
    (etc / "vtysh.conf").write_text("")
    # The group frr need not exist here.
    for name in ("chown", "install"):
        (tools / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/calls\n')
        (tools / name).chmod(0o755)
    environment = {**os.environ, "DPKG_ROOT": str(tmp_path), "PATH": f"{tools}:{os.environ['PATH']}"}
    subprocess.run([shell, str(POSTINST), "configure"], env=environment, check=True)
    owned = [line for line in (tmp_path / "calls").read_text().splitlines() if line.startswith("chown")]
    assert owned == [f"chown -h root:frr {etc}", f"chown -h root:frr {etc}/vtysh.conf"]
    assert [path.name for path in etc.iterdir()] == ["vtysh.conf"]
    assert victim.read_text() == "root's"
