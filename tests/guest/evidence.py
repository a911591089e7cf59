"""What a guest shows at a failure, for what no test has by itself: installation, configuration, a module's fixture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from demo import topology
from guestvm.logs import collect
from guestvm.machine import Machine

LOGS = topology.CHECKOUT / "build" / "guest-logs"


@contextmanager
def evidence_of_failure(machine: Machine, name: str) -> Iterator[None]:
    """Collect the machine's journal, FRR's and the kernel's view in ``LOGS / name`` if the block fails."""
    try:
        yield
    except Exception:
        collect(machine, LOGS / name)
        raise
