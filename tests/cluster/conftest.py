"""Fixtures with a real API server.

    server          a :class:`tests.cluster.harness.ClusterServer`, ready: etcd and kube-apiserver on the loopback,
                    shared by all tests, of the newest version that is tested. A test may stop, pause and compact it: it
                    runs again before the next one.
    both_versions   a mark for tests that shall run with the oldest version, too: whatever they take from here (server,
                    crds, namespace) is then of that version
    crds            the names of the CRDs in packaging/crds, installed and served by ``server``
    namespace       the name of a fresh namespace
    system          the name of the program's own namespace, ``openperouter-system``, with none of its objects in it

    from tests.cluster.harness import ClusterServer, both_versions, kube

    @both_versions
    async def test_something(server: ClusterServer, namespace: str) -> None:
        async with kube(server.admin) as client:
            ...

``make test-cluster ARGS="-k something"`` runs them; OPENPEROUTER_CLUSTER_TESTS=1 does so in any run of pytest. A failed
test shows what the servers said meanwhile; their logs stay in ``build/cluster-logs``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from config.api import API_VERSION, NODE_STATUS_PLURAL, PLURALS
from kubeserver import build, golang
from kubeserver.errors import NoGoError

from .harness import ROOT, ClusterServer, install_crds, kube, make_namespace, namespace_name

HERE = Path(__file__).parent
#: Each process that runs tests has servers, and logs, of its own.
LOGS = ROOT / "build" / "cluster-logs" / os.environ.get("PYTEST_XDIST_WORKER", "main")
SYSTEM = "openperouter-system"
#: Some judge hundreds of objects; on a busy machine that takes minutes.
_TEST_SECONDS = 600
#: How much of each log a failed test shows.
_SHOWN_CHARACTERS = 6000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here, and leave it out, saying why, where it was not asked for or cannot be built."""
    ours = [item for item in items if HERE in item.path.parents]
    reason = _reason_to_skip() if ours else None
    for item in ours:
        item.add_marker(pytest.mark.cluster)
        item.add_marker(pytest.mark.timeout(_TEST_SECONDS))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def _reason_to_skip() -> str | None:
    if os.environ.get("OPENPEROUTER_CLUSTER_TESTS") != "1":
        return "needs a real API server: make test-cluster (or OPENPEROUTER_CLUSTER_TESTS=1)"
    if all(build.built(program) for program in build.PROGRAMS):
        return None
    try:
        golang.find_go()
    except NoGoError as error:
        return str(error)
    return None


@dataclass
class Pool:
    """The servers that were started so far, one a version, and what is known to be on them."""

    servers: dict[str, ClusterServer] = field(default_factory=dict)
    crds: dict[str, list[str]] = field(default_factory=dict)
    namespaces: int = 0

    def get(self, minor: str) -> ClusterServer:
        """Return a version's server, running."""
        if minor not in self.servers:
            [release] = [release for release in build.RELEASES if release.minor == minor]
            self.servers[minor] = ClusterServer(release, logs=LOGS / str(os.getpid()) / minor)
        self.servers[minor].start()
        return self.servers[minor]

    def discard(self) -> None:
        """End them all."""
        for server in self.servers.values():
            server.discard()


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Make servers as they are asked for."""
    for old in LOGS.glob("*"):
        # Several runs may share one checkout.
        if not (Path("/proc") / old.name).exists():
            shutil.rmtree(old, ignore_errors=True)
    pool = Pool()
    yield pool
    pool.discard()


_SERVER = pytest.StashKey[tuple[ClusterServer, dict[Path, int]]]()


@pytest.fixture
def server(pool: Pool, request: pytest.FixtureRequest) -> ClusterServer:
    """Return the API server, running and ready (see the top of this file)."""
    server = pool.get(getattr(request, "param", build.NEWEST.minor))
    request.node.stash[_SERVER] = (server, {log: log.stat().st_size for log in _logs(server)})
    return server


@pytest.fixture
async def crds(server: ClusterServer, pool: Pool) -> list[str]:
    """Return the names of our CRDs, installed."""
    minor = server.release.minor
    if minor not in pool.crds:
        async with kube(server.admin) as client:
            pool.crds[minor] = await install_crds(client)
    return pool.crds[minor]


@pytest.fixture
async def namespace(server: ClusterServer, pool: Pool, request: pytest.FixtureRequest) -> str:
    """Return the name of a namespace that no other test uses."""
    pool.namespaces += 1
    name = f"{namespace_name(request.node.originalname)}-{pool.namespaces}"
    async with kube(server.admin) as client:
        await make_namespace(client, name)
    return name


@pytest.fixture
async def system(server: ClusterServer, crds: list[str]) -> AsyncIterator[str]:
    """Yield the name of the program's own namespace; our objects, wherever a test left them, are gone before and after.

    An object in any namespace concerns every node that it selects, so leftovers would be merged with what a test makes.
    """
    async with kube(server.admin) as client:
        await make_namespace(client, SYSTEM)
    await _clear(server, crds)
    yield SYSTEM
    server.start()
    await _clear(server, crds)


async def _clear(server: ClusterServer, crds: list[str]) -> None:
    plurals = [*PLURALS.values(), NODE_STATUS_PLURAL]
    async with kube(server.admin) as client:
        for plural in (plural for plural in plurals if any(name.startswith(f"{plural}.") for name in crds)):
            async for page in client.pages(f"/apis/{API_VERSION}/{plural}"):
                for namespace in sorted({item["metadata"]["namespace"] for item in page["items"]}):
                    await client.delete(f"/apis/{API_VERSION}/namespaces/{namespace}/{plural}")


def _logs(server: ClusterServer) -> list[Path]:
    return [path for path in (server.logs / "kube-apiserver.log", server.logs / "etcd.log") if path.exists()]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what the servers said since the test began."""
    report = yield
    if report.failed and _SERVER in item.stash:
        server, sizes = item.stash[_SERVER]
        for log in _logs(server):
            said = log.read_bytes()[sizes.get(log, 0) :].decode(errors="replace")
            report.sections.append((f"{server.release.version}: {log.name}", said[-_SHOWN_CHARACTERS:]))
    return report
