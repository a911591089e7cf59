"""Fixtures with real FRR daemons.

They need root, network namespaces and FRR's programs, so they run only where the environment promises these:
``OPENPEROUTER_KERNEL_TESTS=1``, as inside the User-Mode-Linux kernel.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.frr import apply
from config.settings import Settings

from .harness import ETC, RUN, FrrInstance, running_frr, sh

HERE = Path(__file__).parent
#: Of one test, unless it has its own: these start many processes, and the machine may be busy with others.
LIMIT_SECONDS = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip = pytest.mark.skip(reason="needs real FRR daemons: set OPENPEROUTER_KERNEL_TESTS=1 where they are")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.frr)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LIMIT_SECONDS))
            if os.environ.get("OPENPEROUTER_KERNEL_TESTS") != "1":
                item.add_marker(skip)


def kernel_has_vrf() -> bool:
    made = subprocess.run(
        ["ip", "link", "add", "probe0", "type", "vrf", "table", "99"], capture_output=True, check=False
    )
    if made.returncode == 0:
        sh("ip link del probe0")
    return made.returncode == 0


@pytest.fixture(scope="session")
def vrf_kernel() -> None:
    if not kernel_has_vrf():
        pytest.skip("this kernel has no VRF devices")


@pytest.fixture
def frr() -> Iterator[FrrInstance]:
    with running_frr("frrtest") as instance:
        yield instance


@pytest.fixture
def watched_frr() -> Iterator[FrrInstance]:
    """An FRR with its watchfrr."""
    with running_frr("frrtest", watched=True) as instance:
        yield instance


@pytest.fixture(scope="module")
def shared_frr() -> Iterator[FrrInstance]:
    """One FRR for a whole module: starting one is the slow part, and what runs before should not matter anyway."""
    with running_frr("frrshared") as instance:
        yield instance


@pytest.fixture
def quick_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """What FRR does not show after a second is refused: the applier's patience is for nodes with hundreds of VRFs."""
    monkeypatch.setattr(apply, "READ_PAUSES", (0.2,) * 5)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_for("frrtest", tmp_path)


def settings_for(name: str, directory: Path) -> Settings:
    return Settings(
        frr_pathspace=name,
        netns=name,
        frr_etc_dir=ETC,
        frr_run_dir=RUN,
        run_dir=directory / "run",
        state_dir=directory / "state",
        audit_interval_seconds=1.0,
    )
