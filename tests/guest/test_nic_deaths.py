"""The supervisor is killed after each step of the NIC's way out of the router and into it again.

A drop-in starts the installed program with a few lines around it: they end it with SIGKILL after each step for a NIC
that no earlier process ended after. So each start gets one step further, over a journal and a kernel that the last one
left.
Nothing starts it by itself, and between a death and the next start the node is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from demo.checks import CHECKS
from guestvm.machine import Machine
from guestvm.progress import say

from .commands import CONFIGS, active, eventually, property_of, write

NIC = "toswitch1"
ADDRESS = "192.168.11.3/24"
DYING = "/run/dying.py"
#: The sandbox lets the daemon write here.
LEDGER = "/run/openperouter/died-after"
DROP_IN = "/run/systemd/system/openperouter.service.d/dying.conf"
PROGRAM = f"""\
import os, signal, sys
sys.path.insert(0, "/usr/share/openperouter")
from actors.netlink.kernel import LinuxKernel
from supervisor.cli import main

whole = LinuxKernel.apply_all


def dying(kernel, batch):
    refusals = []
    for step in batch:
        refusals += whole(kernel, (step,))
        if step.unit.startswith("nic "):
            with open("{LEDGER}", "a+") as ledger:
                ledger.seek(0)
                if f"{{step}}\\n" not in ledger.readlines():
                    ledger.write(f"{{step}}\\n")
                    ledger.flush()
                    os.kill(os.getpid(), signal.SIGKILL)
    return refusals


LinuxKernel.apply_all = dying
sys.exit(main())
"""
UNIT = f"[Service]\nRestart=no\nExecStart=\nExecStart=/usr/bin/python3 -I {DYING} run\n"
START_SECONDS = 300


@pytest.fixture
def dying(node: Machine) -> Iterator[Machine]:
    """The node with a supervisor that dies after each step for a NIC."""
    write(node, DYING, PROGRAM)
    node.remote.run(f"mkdir -p {DROP_IN.rpartition('/')[0]} && rm -f {LEDGER}")
    write(node, DROP_IN, UNIT)
    node.remote.run("systemctl stop openperouter && systemctl daemon-reload")
    yield node
    node.remote.run(f"rm -f {DROP_IN} {DYING} {LEDGER}; systemctl daemon-reload; systemctl reset-failed openperouter")
    node.remote.run(f"mv /run/away/*.yaml {CONFIGS}/", check=False)
    node.remote.run("systemctl restart openperouter", seconds=START_SECONDS, check=False)


def places(node: Machine) -> list[str]:
    """Return the namespaces that have the NIC."""
    looks = {"host": "ip", "perouter": "ip -n perouter"}
    return [
        place
        for place, ip in looks.items()
        if node.remote.run(f"{ip} link show dev {NIC}", check=False).returncode == 0
    ]


def deaths(node: Machine) -> list[str]:
    """Return the steps after which a supervisor died."""
    return node.remote.run(f"touch {LEDGER} && cat {LEDGER}").stdout.splitlines()


def starts_until_ready(node: Machine) -> list[str]:
    """Start a supervisor after the other until one is ready; return the steps after which the others died.

    After each death the NIC is in one of the two namespaces.
    """
    before = deaths(node)
    while True:
        known = deaths(node)
        node.remote.run("systemctl start openperouter", seconds=START_SECONDS, check=False)
        eventually(
            lambda: active(node) or property_of(node, "ActiveState") == "failed", "ready or dead", seconds=START_SECONDS
        )
        if active(node):
            return deaths(node)[len(before) :]
        found = deaths(node)
        assert len(found) == len(known) + 1, f"it ended without a step for the NIC: {found}"
        assert len(places(node)) == 1, f"after {found[-1]!r} the NIC is in {places(node)}"


@pytest.mark.timeout(3600)
def test_a_nic_is_never_lost_whichever_step_of_its_move_is_the_last(
    dying: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    node = dying
    assert places(node) == ["perouter"]
    node.remote.run(f"mkdir -p /run/away && mv {CONFIGS}/*.yaml /run/away/")
    out = starts_until_ready(node)
    assert places(node) == ["host"]
    assert ADDRESS in node.remote.run(f"ip -brief address show dev {NIC}").stdout
    assert any(line.startswith("router: move") for line in out), out
    node.remote.run("systemctl stop openperouter")
    node.remote.run(f"mv /run/away/*.yaml {CONFIGS}/")
    into = starts_until_ready(node)
    with capsys.disabled():
        for step in (*out, *into):
            say(f"died after: {step}")
    assert any(line.startswith("host: move") for line in into), into
    assert min(len(out), len(into)) >= 4, (out, into)
    assert places(node) == ["perouter"]
    assert ADDRESS in node.remote.run(f"ip -n perouter -brief address show dev {NIC}").stdout
    node.remote.run("ip link set dev tonear master br-hs-210 up")
    for check in CHECKS:
        verdict = check.wait(node, seconds=300)
        assert verdict.ok, f"{check.title}: {verdict.evidence}"
