"""The example's playbook (``packaging/examples/fleet``), run by Ansible on this host against booted guests.

Ansible is not a package that these tests need otherwise: it is installed from Python's package index, once, into a
directory of the cache. The guests are reached over the ssh connections that their machines keep.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from demo.topology import CHECKOUT, EXAMPLES
from guestvm.cache import build_once
from guestvm.machine import Machine

#: The oldest that supports both this host's Python and Debian 13's, for some years.
ANSIBLE = "ansible-core==2.19.14"
_FETCH_SECONDS = 300
#: Two emulated nodes, one after another, with an installation each.
_RUN_SECONDS = 1500


class Playbook:
    """A copy of the example in ``directory``, for these machines by their names in the inventory."""

    def __init__(self, directory: Path, nodes: Mapping[str, Machine], package: Path) -> None:
        self._directory = directory
        self._package = package
        shutil.copytree(EXAMPLES / "fleet", directory, dirs_exist_ok=True)
        self.inventory = directory / "inventory.yaml"
        hosts = {name: _reached_by(machine) for name, machine in nodes.items()}
        (directory / "hosts.json").write_text(json.dumps({"routers": {"hosts": hosts}}))
        command = directory / "bin" / "openperouter"
        command.parent.mkdir()
        program = shlex.join(["env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", "supervisor"])
        command.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        command.chmod(0o755)

    def run(self, *options: str) -> dict[str, dict[str, int]]:
        """Run it; return each node's counts (``ok``, ``changed`` ...). Raises AssertionError when a task failed."""
        arguments = ["-i", str(self._directory / "hosts.json"), str(self._directory / "ansible.yaml")]
        # All nodes at once: two of them, and what is tested is what the tasks do.
        variables = ["-e", f"deb={self._package}", "-e", "batch=100%"]
        done = subprocess.run(
            [sys.executable, "-m", "ansible", "playbook", *arguments, *variables, *options],
            cwd=self._directory,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-2000:]}"
        return {
            name: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", counts)}
            for name, counts in re.findall(r"^([\w-]+)\s+: (ok=.*)$", done.stdout, flags=re.MULTILINE)
        }

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self._directory / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ensure_ansible()),
            "HOME": str(self._directory),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_PIPELINING": "1",
            # The machines' own connections have options of their own.
            "ANSIBLE_SSH_ARGS": "",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
        }


def ensure_ansible() -> Path:
    """Return a directory for PYTHONPATH with Ansible, installing it first where it is not there yet."""
    version = f"{ANSIBLE.partition('==')[2]}-python{sys.version_info.major}.{sys.version_info.minor}"
    return build_once("ansible", version, _install)


def _install(directory: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, "--target", str(directory), ANSIBLE], check=True, timeout=_FETCH_SECONDS)


def _reached_by(machine: Machine) -> dict[str, str]:
    arguments = shlex.join(machine.remote.options)
    # The user's name keeps Ansible from looking for sudo.
    return {"ansible_host": "127.0.0.1", "ansible_user": "root", "ansible_ssh_common_args": arguments}
