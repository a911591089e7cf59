"""How guest tests ask a node, and wait for what takes a moment."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from guestvm.machine import Machine
from guestvm.remote import Completed

CONFIGS = "/etc/openperouter/configs"
_PAUSE_SECONDS = 0.5
#: Twenty a second; each has two seconds to come back.
PING = "ping -n -i 0.05 -W 2"


def eventually(look: Callable[[], bool], what: str, *, seconds: float = 300) -> None:
    """Wait until ``look`` is true; fail the test with ``what`` after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(_PAUSE_SECONDS)


def property_of(node: Machine, name: str, unit: str = "openperouter") -> str:
    """Return one of systemd's properties of a unit."""
    return node.remote.run(f"systemctl show --value -p {name} {unit}").stdout.strip()


def active(node: Machine) -> bool:
    """Say whether the supervisor is ready."""
    return property_of(node, "ActiveState") == "active"


def status(node: Machine) -> dict[str, Any]:
    """Return ``openperouter status --json``."""
    answer = json.loads(node.remote.run("openperouter status --json", check=False).stdout)
    assert isinstance(answer, dict)
    return answer


def findings(node: Machine) -> list[dict[str, Any]]:
    """Return what ``openperouter doctor`` finds."""
    answer = json.loads(node.remote.run("openperouter doctor --json", seconds=300, check=False).stdout)["findings"]
    assert isinstance(answer, list)
    return answer


def write(node: Machine, path: str, text: str) -> None:
    """Write a file on the node the way an editor does: whole, under its final name at once."""
    node.remote.run(f"cat >{path}.new && mv {path}.new {path}", stdin=text)


def reload(node: Machine, *, check: bool = True) -> Completed:
    """``systemctl reload openperouter``: returns when the reload is over."""
    return node.remote.run("systemctl reload openperouter", seconds=300, check=check)


def has_link(node: Machine, link: str) -> bool:
    """Say whether the router has a device of that name."""
    return node.remote.run(f"ip -n perouter link show dev {link}", check=False).returncode == 0


@contextmanager
def no_ping_lost(node: Machine, target: str, *, netns: str = "") -> Iterator[None]:
    """Ping from the node, or from its namespace, all the while; fail when one is not answered, but for the last."""
    where = f"ip netns exec {netns} " if netns else ""
    log = f"/run/pings-{target}"
    node.remote.run(f"{where}{PING} {target} </dev/null >{log} 2>&1 & echo $! >{log}.pid")
    yield
    node.remote.run(f"read pid <{log}.pid; kill -INT $pid; while kill -0 $pid 2>/dev/null; do sleep 0.1; done")
    said = node.remote.run(f"cat {log}").stdout
    counts = re.search(r"(\d+) packets transmitted, (\d+) received", said)
    assert counts is not None, said[-500:]
    sent, received = int(counts[1]), int(counts[2])
    assert sent > 20, said[-500:]
    # The last one may still have been on its way.
    assert sent - received <= 1, f"{received} of {sent} came back"
