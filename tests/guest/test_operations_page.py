"""Every command of docs/operations.md, in its order, on a machine where the package is installed with apt.

The machine has the fabric of the demonstration around it, but nothing of ours before the page's first command. While
the router of the page works, the commands of the pages for alerts and the journal are run there as well.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import check_install
import pytest

from demo import topology
from guestvm.image import ensure_image
from guestvm.logs import collect
from guestvm.machine import Machine

from .package import built_package
from .runbook import RUN, script

PAGE = topology.CHECKOUT / "docs" / "operations.md"
LOGS = topology.CHECKOUT / "build" / "guest-logs" / "operations-page"
#: Installing compiles the program with an emulated processor, beside another such machine; everything else is quicker.
BLOCK_SECONDS = 1000
START = r'until test "$(systemctl is-active openperouter)" != activating; do sleep 1; done\n\1'
#: After the block with this the router is complete and in force, without a trial.
COMPLETE = "openperouter events --json"


def blocks() -> list[str]:
    """Return the page's shell blocks in order."""
    return re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def runnable(block: str) -> str:
    """Return a block as a script that ends where something else happens than the page says.

    A command of which the page says ``# exits with N`` has to. apt waits a minute for the start, which a slow machine
    exceeds: it gets the time until the unit is active.
    """
    demanded = re.sub(
        r"^(.*\S) +# exits with (\d+)$", r"if \1; then exit 99; else test $? -eq \2; fi", block, flags=re.MULTILINE
    )
    patient = re.sub(r"^(systemctl is-active openperouter)$", START, demanded, flags=re.MULTILINE)
    return f"set -eux\n{patient}"


@pytest.fixture(scope="module")
def bare() -> Iterator[Machine]:
    """A machine with the fabric around it, the package as a file in root's home, and a higher version below it."""
    package = built_package()
    with Machine.boot(ensure_image()) as machine, tempfile.TemporaryDirectory() as name:
        shutil.copy(package, name)
        newer = Path(name) / "newer"
        newer.mkdir()
        check_install.bumped(package, newer).rename(newer / package.name.replace("_all", "+1_all"))
        machine.remote.copy_in(Path(name), "/root")
        topology.lay_fabric(machine)
        yield machine


# It installs, upgrades and removes the package one after the other, each time with an emulated processor.
@pytest.mark.timeout(3600)
def test_every_command_of_the_operations_page_works(bare: Machine) -> None:
    commands = blocks()
    assert len(commands) > 10
    for number, block in enumerate(commands, start=1):
        done = bare.remote.run(f"cd /root\n{runnable(block)}", seconds=BLOCK_SECONDS, check=False)
        if done.returncode != 0:
            collect(bare, LOGS)
        assert done.returncode == 0, f"block {number}:\n{block}\n{done.stdout}\n{done.stderr}"
        if COMPLETE in block:
            runbook = bare.remote.run(script(RUN.items()), seconds=BLOCK_SECONDS, check=False)
            assert runbook.returncode == 0, f"{runbook.stdout}\n{runbook.stderr}"
    left = bare.remote.run(
        "ip -brief address show dev toswitch1; ls -d /etc/openperouter /run/netns/perouter", check=False
    )
    assert "192.168.11.3/24" in left.stdout
    assert "openperouter" not in left.stdout
