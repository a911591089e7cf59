"""The package in a directory tree of its own: what a machine without systemd shows, down to the contents of files."""

from __future__ import annotations

import subprocess
import sys

from demo.topology import CHECKOUT

from .package import built_package

_SECONDS = 1200


def test_it_installs_upgrades_and_leaves_nothing_behind() -> None:
    command = [sys.executable, str(CHECKOUT / "packaging/deb/check_install.py"), str(built_package())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
