"""Fixtures of the tests on a real kernel: two throw-away namespaces, and a NIC in one of them.

They need root and a kernel with VRF, so they run in the machine of ``tests/harness/uml/run.py``, which sets
OPENPEROUTER_KERNEL_TESTS=1. Anywhere else they are skipped, with the reason.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.netlink import kernel
from actors.netlink.planning.packet_filter import canonical
from tests.kernel.fabric import DEFAULTS, FABRIC, LEAF, NET, SEGMENTS, filters
from tests.kernel.node import Node, ip

#: Of one test: a case for each step of a plan takes a minute on an idle machine, and it may be busy.
LIMIT_SECONDS = 900
SWITCH = "OPENPEROUTER_KERNEL_TESTS"
REASON = f"needs root and a kernel with VRF: run in tests/harness/uml/run.py, which sets {SWITCH}=1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.kernel)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LIMIT_SECONDS))
            if os.environ.get(SWITCH) != "1":
                item.add_marker(pytest.mark.skip(reason=REASON))


@pytest.fixture(autouse=True)
def filter_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep our table in memory where the kernel has no nftables for IP, as User-Mode Linux.

    ``make test-frr`` runs test_packet_filter.py on the host's kernel.
    """
    if not filters():
        table: list[dict[str, Any]] = []
        monkeypatch.setattr(kernel, "read_table", lambda _: canonical(table))
        monkeypatch.setattr(kernel, "replace_table", lambda _, objects: table.__setitem__(slice(None), objects))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Return a node whose host namespace is the machine's own, cleaned before and after."""
    node = Node(tmp_path / "state")
    node.build()
    try:
        yield node
    finally:
        node.close()


@pytest.fixture(params=DEFAULTS)
def defaults(request: pytest.FixtureRequest) -> Iterator[str]:
    """Set the machine's sysctls, before anything is created, and restore them."""
    before = {}
    try:
        for key, value in DEFAULTS[request.param].items():
            path = NET / key
            if path.exists():
                before[path] = path.read_text()
                path.write_text(value)
        yield request.param
    finally:
        for path, old in reversed(before.items()):
            path.write_text(old)


@pytest.fixture
def fabric(defaults: str, node: Node) -> Iterator[Node]:
    """Return the node with the NIC's other end in a namespace of its own, with addresses on both sides."""
    subprocess.run(["ip", "netns", "del", LEAF], check=False, capture_output=True)
    ip("netns", "add", LEAF)
    ip("link", "set", "leaf", "netns", LEAF)
    ip("-n", LEAF, "link", "set", "leaf", "up")
    for here, there in FABRIC.values():
        length, flags = (24, []) if "." in here else (64, ["nodad"])
        ip("addr", "add", f"{here}/{length}", "dev", node.NIC, *flags)
        ip("-n", LEAF, "addr", "add", f"{there}/{length}", "dev", "leaf", *flags)
    for number in SEGMENTS:
        subprocess.run(["ip", "netns", "del", f"tenant-{number}"], check=False, capture_output=True)
        ip("netns", "add", f"tenant-{number}")
    try:
        yield node
    finally:
        for name in (LEAF, *(f"tenant-{number}" for number in SEGMENTS)):
            ip("netns", "del", name)
