"""The README's first ten minutes, typed at a terminal: from an installed package to a router that is ready."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from demo import topology
from demo.checks import FABRIC_HOST_V4, LEAF, ping
from guestvm.machine import Machine

from .commands import CONFIGS, eventually, reload, status
from .terminal import Terminal

README = topology.CHECKOUT / "README.md"
NIC = "toswitch1"
#: An answer for each question of init, in its order.
ANSWERS = (
    ("NICs to the fabric", NIC),
    ("AS number", "64514"),
    ("Address of the leaf", LEAF),
    ("Pool of tunnel endpoints", ""),
    ("This node's index", "0"),
    ("First tenant", "red:100"),
    ("Addresses of its session", "172.27.10.0/24"),
)
#: Where the demonstration's speaker on the host is, in the AS that init chooses.
HOST_END = "172.27.10.2"


def commands() -> list[str]:
    """Return what the README has a new user type on the node."""
    section = README.read_text().partition("## The first ten minutes\n")[2].partition("\n## ")[0]
    [block] = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return [line.partition("#")[0].strip() for line in block.splitlines()]


@pytest.fixture
def new(fresh: Machine) -> Iterator[Machine]:
    """The node with nothing but the package; its NIC is back in the host afterwards."""
    yield fresh
    fresh.remote.run(f"rm -rf {CONFIGS}/*.yaml /root/openperouter-staging")
    reload(fresh)
    fresh.remote.run("rm /etc/openperouter/node-config.yaml")
    eventually(lambda: not fresh.remote.run(f"ip link show {NIC}", check=False).returncode, "the NIC is back")


def test_the_readmes_commands_make_a_router_that_is_ready(new: Machine) -> None:
    install, init, attempt, last = commands()
    assert install.startswith("apt-get install ")
    assert last == "openperouter status"
    first = Terminal(new, f"cd /root && {init}")
    for question, answer in ANSWERS:
        first.answer(rf"{question}[^\n]*: $", answer)
    assert first.end() == 0, first.text
    assert first.text.rstrip().endswith(f"nothing is in force yet; next: {attempt}")
    assert not status(new)["sessions"]
    second = Terminal(new, f"cd /root && {attempt}")
    second.answer("Press ENTER to keep it", "", seconds=300)
    assert second.end(seconds=300) == 0, second.text
    assert f"kept: written to {CONFIGS}" in second.text
    eventually(lambda: new.remote.run(f"{last} -q", check=False).returncode == 0, "the router is ready")
    shown = new.remote.run(last).stdout
    assert "● ready: 2 sessions up, 1 VNI" in shown
    assert re.search(rf"{re.escape(LEAF)} +default +fabric +64512 +Established", shown), shown
    assert "nothing to do" in new.remote.run("openperouter plan").stdout
    assert f"{HOST_END}/24" in new.remote.run("openperouter show peer-config red").stdout
    eventually(lambda: ping(FABRIC_HOST_V4)(new).ok, "the host reaches a host of the tenant behind the leaf")
