"""FRR's own scripts, which run as root, with the settings that the package gives them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import RUN, FrrInstance, eventually, sh

SCRIPT = "/usr/lib/frr/frrinit.sh"


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of another unit: what a unit is, in a control group of its own."""
    groups = tmp_path / "cgroup"
    groups.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "cgroup2", "none", str(groups)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"control groups cannot be mounted here: {mounted.stderr.strip()}")
    group = groups / f"openperouter-test-{tmp_path.name}"
    try:
        group.mkdir(exist_ok=True)
        with subprocess.Popen(["sleep", "600"]) as process:
            (group / "cgroup.procs").write_text(str(process.pid))
            yield process
            process.kill()
        eventually("the group is empty", lambda: (group / "cgroup.procs").read_text() == "")
        group.rmdir()
    finally:
        sh(f"umount {groups}")


def test_a_daemon_has_no_process_outside_of_the_unit_ended(
    watched_frr: FrrInstance, victim: subprocess.Popen[bytes]
) -> None:
    """Run by watchfrr, the script stops what the PID file names before it starts the next bgpd."""
    file = RUN / watched_frr.name / "bgpd.pid"
    bgpd = watched_frr.pid("bgpd")
    sh(f"setpriv --reuid=frr --regid=frr --clear-groups sh -c 'echo {victim.pid} > {file}'")
    os.kill(bgpd, signal.SIGKILL)

    def restarted() -> bool:
        # To the script a process that nothing has waited for still runs.
        ended = victim.poll()
        assert ended is None, f"ended by signal {-ended}"
        return file.exists() and file.read_text().strip() not in ("", str(victim.pid))

    eventually("bgpd runs again", restarted)
    assert victim.poll() is None
    # The unit's own daemons still end.
    daemons = [watched_frr.pid(name) for name in ("zebra", "bgpd", "mgmtd")]
    subprocess.run([SCRIPT, "stop", watched_frr.name], check=True, capture_output=True)
    assert not [pid for pid in daemons if Path(f"/proc/{pid}").exists()]
    assert victim.poll() is None
