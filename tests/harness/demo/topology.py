"""Puts this checkout and a fabric around it on a guest.

Everything is laid out in a directory on the host first (the program as ``packaging/install.sh`` installs it, compiled
by the guest's Python, plus the fabric's files) and copied in one step: on an emulated machine
compiling alone would take longer than the whole demonstration.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from guestvm.errors import GuestError
from guestvm.machine import Machine
from guestvm.tree import ensure_tree

_HERE = Path(__file__).resolve().parent
CHECKOUT = _HERE.parent.parent.parent
EXAMPLES = CHECKOUT / "packaging" / "examples"

#: The whole start: FRR three times, the supervisor once, seconds on real hardware.
START_SECONDS = 900

_FABRIC = _HERE / "rootfs"
_FABRIC_UNITS = "fabric.service frr@leaf.service frr@hostbgp.service"
_SETTLE_IN = f"""
chown frr:frr /etc/frr
chown -R frr:frr /etc/frr/leaf /etc/frr/hostbgp
systemctl daemon-reload
systemctl enable --quiet {_FABRIC_UNITS}
"""
#: As packaging/install.sh does it on a running machine: the daemon may not write what is not root's.
_OWN = "chown -R root:frr /etc/frr/perouter; chmod 2750 /etc/frr/perouter\n"
_ENABLE = "systemctl enable --quiet openperouter-netns.service openperouter.service"


def install(machine: Machine, *, configure: bool = True) -> None:
    """Install the checkout and the fabric's files on a guest, and the example configuration (with ``configure``).

    Starts nothing.
    """
    with tempfile.TemporaryDirectory(prefix="openperouter-stage-") as name:
        stage = Path(name)
        _stage_program(stage)
        shutil.copytree(_FABRIC, stage, dirs_exist_ok=True)
        if configure:
            _stage_configuration(stage / "etc/openperouter")
        machine.remote.copy_in(stage, "/")
    machine.remote.run(_SETTLE_IN + _OWN + _ENABLE)


def lay_fabric(machine: Machine) -> None:
    """Install and start the fabric alone, around a node that has nothing of ours, or has our package."""
    machine.remote.copy_in(_FABRIC, "/")
    machine.remote.run(f"{_SETTLE_IN}systemctl start {_FABRIC_UNITS}", seconds=START_SECONDS)


def lay_host_speaker(machine: Machine) -> None:
    """Install and start the host's BGP speaker alone, on a node whose fabric is elsewhere."""
    machine.remote.copy_in(_FABRIC / "etc/frr/hostbgp", "/etc/frr/hostbgp")
    machine.remote.run(
        "chown frr:frr /etc/frr; chown -R frr:frr /etc/frr/hostbgp; systemctl enable --quiet --now frr@hostbgp",
        seconds=START_SECONDS,
    )


def give_configuration(machine: Machine) -> None:
    """Give the example configuration to a node that has the program, and wait until it is in force."""
    copy_configuration(machine)
    # A reload of a unit that still starts is over with its start: apt does not wait for it on a machine that is busy.
    machine.remote.run("systemctl start openperouter && systemctl reload openperouter", seconds=START_SECONDS)


def copy_configuration(machine: Machine) -> None:
    """Give the example configuration to a node, whatever it has of the program."""
    with tempfile.TemporaryDirectory(prefix="openperouter-stage-") as name:
        shutil.copytree(EXAMPLES, name, dirs_exist_ok=True)
        machine.remote.copy_in(Path(name), "/etc/openperouter")


def start(machine: Machine) -> float:
    """Start fabric, host BGP speaker and supervisor at once; return the seconds until systemd called all ready."""
    command = (
        "begin=$(date +%s.%N); systemctl start fabric frr@leaf frr@hostbgp openperouter; status=$?; "
        "echo $begin $(date +%s.%N); exit $status"
    )
    done = machine.remote.run(command, seconds=START_SECONDS, check=False)
    if done.returncode != 0:
        why = machine.remote.run("systemctl status --no-pager --lines=40 openperouter", check=False)
        raise GuestError(f"systemctl start openperouter failed ({done.returncode}): {done.stderr}\n{why.stdout}")
    begin, end = done.stdout.split()
    return float(end) - float(begin)


def _stage_configuration(target: Path) -> None:
    """Copy a node's examples file by file: directories keep the modes that the installation gave them."""
    for source in (EXAMPLES / "node-config.yaml", *(EXAMPLES / "configs").glob("*.yaml")):
        shutil.copyfile(source, target / source.relative_to(EXAMPLES))


def _stage_program(stage: Path) -> None:
    subprocess.run([str(CHECKOUT / "packaging" / "install.sh"), str(stage)], check=True)
    _compile(stage)


def _compile(stage: Path) -> None:
    """Compile as the package's build and installation do."""
    program = stage / "usr/share/openperouter"
    roots = ("--strip", str(stage), "--strip", str(ensure_tree()))
    _python(str(CHECKOUT / "packaging/bytecode/generate.py"), str(program), *roots)
    _python("-m", "compileall", "-q", "-s", str(stage), "-p", "/", str(program))


def _python(*arguments: str) -> None:
    """Run the tree's Python by way of the tree's own loader: no chroot, no mount, no privilege."""
    tree = ensure_tree()
    loader = [str(tree / "lib64/ld-linux-x86-64.so.2"), "--library-path", str(tree / "usr/lib/x86_64-linux-gnu")]
    command = [*loader, str(tree / "usr/bin/python3"), *arguments]
    environment = {"PYTHONHOME": str(tree / "usr"), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise GuestError(f"the guest's Python does not compile this checkout:\n{done.stdout}{done.stderr}")
