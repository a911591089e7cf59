"""One booted Debian 13 for all guest tests: the package is installed with apt, and wired to a fabric.

Tests use only what a user of the node has: apt, systemctl, journalctl, the ``openperouter`` command, files in
/etc/openperouter, vtysh, ip and ping. A test leaves the node as it found it. When one fails, journal, FRR's and the
kernel's view of that moment are in ``build/guest-logs/<test>``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Generator, Iterator

import autopkgtest
import pytest

from demo import topology
from guestvm.image import ensure_image
from guestvm.logs import collect
from guestvm.machine import Machine

from .cluster import give_uplink
from .commands import active, eventually
from .evidence import LOGS, evidence_of_failure
from .package import built_package

#: The first test pays for building image and package, booting and installing.
_SECONDS = 1800
#: Two machines on the cores of one, and an installation that is part of what is tested.
_SECONDS_OF_TWO = 3600
#: The node's own life has an order: it is installed, lives (all others), joins a cluster, and ends. Two others come
#: first, and are gone by then.
_ORDER = {
    "test_two_nodes": -2,
    "test_fresh_install": -1,
    "test_first_ten_minutes": -1,
    "test_cluster": 1,
    "test_namespace_deleted": 2,
    "test_package_life": 3,
}

_REPORTS = pytest.StashKey[dict[str, pytest.TestReport]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here, and leave it out where no guest was requested: building one needs root and a mirror."""
    for item in items:
        if "guest" not in item.path.parts:
            continue
        item.add_marker(pytest.mark.guest)
        item.add_marker(pytest.mark.timeout(_SECONDS_OF_TWO if item.path.stem == "test_two_nodes" else _SECONDS))
        if os.environ.get("OPENPEROUTER_GUEST_TESTS") != "1":
            item.add_marker(pytest.mark.skip(reason="boots a guest: make test-guest (or OPENPEROUTER_GUEST_TESTS=1)"))
    items.sort(key=lambda item: _ORDER.get(item.path.stem, 0))


@pytest.fixture(scope="session")
def installed() -> Iterator[Machine]:
    """A node with a fabric around it where ``apt-get install`` has returned, and nothing else.

    What it was before is kept there, for the end of its life.
    """
    shutil.rmtree(LOGS, ignore_errors=True)
    package = built_package()
    with Machine.boot(ensure_image(), uplink=True) as machine:
        with evidence_of_failure(machine, "install"):
            topology.lay_fabric(machine)
            autopkgtest.prepare(machine, package)
            give_uplink(machine)
            autopkgtest.take_picture(machine)
            autopkgtest.install(machine)
        yield machine


@pytest.fixture(scope="session")
def configured(installed: Machine) -> Machine:
    """The node with the example configuration in force and a workload attached."""
    with evidence_of_failure(installed, "configuration"):
        topology.give_configuration(installed)
        installed.remote.run("/usr/local/libexec/fabric/attach")
    return installed


@pytest.fixture
def fresh(installed: Machine, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """The node as the installation left it, when nothing else ran before; evidence is collected on a failure."""
    yield installed
    _collect_if_failed(installed, request)


@pytest.fixture
def node(configured: Machine, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """The running node; evidence is collected when the test that uses it fails.

    A node that died in an earlier test is started again: that test has failed, those after it are judged by themselves.
    """
    if configured.died:
        configured.start()
        eventually(lambda: active(configured), "the router is ready after the death of the machine", seconds=300)
        configured.remote.run("/usr/local/libexec/fabric/attach")
    since = configured.remote.run("date +%s").stdout.strip()
    yield configured
    _collect_if_failed(configured, request)
    if not configured.died:
        # What FRR's daemons say when they crash. Those that are stopped do not, and sshd's line for that ends earlier.
        crashes = configured.remote.run(
            f"journalctl --since=@{since} -o cat | grep -a 'Received signal [0-9]* at ' || true"
        ).stdout
        assert not crashes, f"a daemon of FRR crashed:\n{crashes}"


def _collect_if_failed(machine: Machine, request: pytest.FixtureRequest) -> None:
    reports = request.node.stash.get(_REPORTS, {})
    if any(report.failed for report in reports.values()):
        collect(machine, LOGS / re.sub(r"[^\w.-]+", "-", request.node.name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep each phase's report where the fixture finds it."""
    report = yield
    item.stash.setdefault(_REPORTS, {})[report.when or ""] = report
    return report
