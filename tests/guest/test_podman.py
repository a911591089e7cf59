"""FRR in podman's containers on a booted node: the units that ``openperouter generate quadlet`` writes, and the image.

The node is one of its own, with Debian's podman, no package of ours and no registry. The order of the tests is that of
a node's life: it starts, loses this and that, gets another image and the old one again, and boots; then with plain
units (``openperouter generate systemd``).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo import topology
from demo.checks import CHECKS, FABRIC_HOST_V4, Check, ping
from guestvm.image import ensure_image
from guestvm.logs import collect
from guestvm.machine import Machine
from guestvm.tree import PODMAN_NODE
from supervisor.operations.router.podman_units import DEFAULT_IMAGE
from supervisor.version import VERSION

from .commands import active, eventually, property_of, status
from .evidence import LOGS
from .test_boot import KUBELET
from .test_namespace_deleted import WIRE, wired

POD = "openperouter-router-pod"
FRR = "openperouter-frr"
RELOADER = "openperouter-reloader"
#: The pod's restart alone returns before its containers are started.
UNITS = f"{POD} {FRR} {RELOADER}"
SOCKET = "/run/openperouter-router/reloader.sock"
NEXT = "localhost/openperouter-router:next"
#: Unpacking, starting containers: all of it emulated.
_SECONDS = 600
_IMAGE_SECONDS = 900


def router_image() -> Path:
    """Build the router's image from this checkout; return its archive."""
    builder = topology.CHECKOUT / "packaging/image/build_image.py"
    subprocess.run([sys.executable, str(builder), "openperouter-router"], check=True, timeout=_IMAGE_SECONDS)
    return topology.CHECKOUT / "build/image" / f"openperouter-router-{VERSION}.oci.tar"


def load_image(machine: Machine, archive: Path) -> None:
    """Copy the archive to the node and load it."""
    with tempfile.TemporaryDirectory(prefix="openperouter-image-") as name:
        shutil.copyfile(archive, Path(name) / "router.tar")
        machine.remote.copy_in(Path(name), "/root/image", seconds=_SECONDS)
    machine.remote.run(
        "podman load --quiet --input /root/image/router.tar && rm /root/image/router.tar", seconds=_SECONDS
    )


@pytest.fixture(scope="module")
def podman_machine() -> Iterator[Machine]:
    """A node whose FRR runs in containers, with the example configuration in force."""
    archive = router_image()
    with Machine.boot(ensure_image(PODMAN_NODE)) as machine:
        try:
            topology.install(machine)
            load_image(machine, archive)
            machine.remote.run("openperouter generate quadlet && systemctl daemon-reload")
            topology.start(machine)
            machine.remote.run("/usr/local/libexec/fabric/attach")
        except Exception:
            collect(machine, LOGS / "podman-start")
            raise
        yield machine


@pytest.fixture
def podman_node(podman_machine: Machine, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """The same, with evidence when a test fails."""
    failed = request.session.testsfailed
    yield podman_machine
    if request.session.testsfailed > failed:
        collect(podman_machine, LOGS / re.sub(r"[^\w.-]+", "-", request.node.name))


def forwards(node: Machine, *, seconds: float = 300) -> None:
    """Fail unless all that the demonstration checks works in time."""
    for check in CHECKS:
        verdict = check.wait(node, seconds=seconds)
        assert verdict.ok, f"{check.title}: {verdict.evidence}"


def image_of(node: Machine, container: str) -> str:
    """Return the ID of the image that a running container has."""
    return node.remote.run(f"podman inspect --format '{{{{.Image}}}}' {container}").stdout.strip()


def devices(node: Machine) -> set[str]:
    """Return the router's devices with their indices."""
    return set(re.findall(r"^(\d+: [^:@]+)", node.remote.run("ip -n perouter link").stdout, re.MULTILINE))


def first_process(node: Machine) -> str:
    """Return the PID of FRR's container as podman wrote it; empty while there is none."""
    return node.remote.run("cat /run/openperouter-router/frr.pid", check=False).stdout.strip()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.title)
def test_a_node_with_frr_in_containers_forwards(podman_node: Machine, check: Check) -> None:
    verdict = check.wait(podman_node, seconds=300)
    assert verdict.ok, verdict.evidence


def test_only_the_pods_frr_runs_and_the_units_are_those_that_were_generated(podman_node: Machine) -> None:
    assert property_of(podman_node, "ActiveState", "frr@perouter") == "inactive"
    # A start of the native one, as by a dependency, is skipped.
    podman_node.remote.run("systemctl start frr@perouter")
    assert property_of(podman_node, "ActiveState", "frr@perouter") == "inactive"
    units = (POD, FRR, RELOADER, "openperouter")
    assert [property_of(podman_node, "ActiveState", unit) for unit in units] == ["active"] * 4
    assert podman_node.remote.run("openperouter generate quadlet --check").returncode == 0


def test_the_containers_have_few_rights_and_a_root_that_is_read_only(podman_node: Machine) -> None:
    for container in (FRR, RELOADER):
        touched = podman_node.remote.run(f"podman exec {container} /bin/bash -c 'echo >/usr/evil'", check=False)
        assert touched.returncode != 0
        assert "Read-only file system" in touched.stderr
    pid = first_process(podman_node)
    privileges = podman_node.remote.run(f"grep -E '^(CapBnd|NoNewPrivs)' /proc/{pid}/status").stdout.split()
    assert privileges == ["CapBnd:", "00000000002034eb", "NoNewPrivs:", "1"]


def test_frrs_messages_are_in_the_journal_under_the_containers_unit(podman_node: Machine) -> None:
    said = podman_node.remote.run(f"journalctl --no-pager -q -o short -u {FRR}").stdout
    assert re.search(r" bgpd\[\d+\]: .*bgp_update_receive", said), said[-2000:]


def test_a_killed_frr_container_leaves_the_devices_and_comes_back_configured(podman_node: Machine) -> None:
    before, killed = devices(podman_node), first_process(podman_node)
    supervisor = property_of(podman_node, "MainPID")
    podman_node.remote.run(f"podman kill {FRR}")
    assert devices(podman_node) == before
    eventually(lambda: first_process(podman_node) not in {"", killed}, "the container is started again")
    forwards(podman_node)
    assert devices(podman_node) == before
    assert property_of(podman_node, "MainPID") == supervisor


def test_a_restarted_pod_has_its_sessions_back(podman_node: Machine) -> None:
    before, supervisor = devices(podman_node), property_of(podman_node, "MainPID")
    podman_node.remote.run(f"systemctl restart {UNITS}", seconds=_SECONDS)
    forwards(podman_node)
    assert devices(podman_node) == before
    assert property_of(podman_node, "MainPID") == supervisor


def test_a_reload_socket_that_is_gone_is_reported_and_back_with_the_reloader(podman_node: Machine) -> None:
    podman_node.remote.run(f"rm {SOCKET}")
    refused = podman_node.remote.run("openperouter vtysh -c 'show version'", check=False)
    assert refused.returncode != 0
    assert ping(FABRIC_HOST_V4)(podman_node).ok
    podman_node.remote.run(f"systemctl restart {RELOADER}", seconds=_SECONDS)
    eventually(lambda: podman_node.remote.run(f"test -S {SOCKET}", check=False).returncode == 0, "the socket is back")
    assert "10." in podman_node.remote.run("openperouter vtysh -c 'show version'").stdout
    forwards(podman_node)


def test_another_image_is_used_and_the_first_one_again(podman_node: Machine) -> None:
    first = image_of(podman_node, FRR)
    build = f"podman build --quiet --pull=never --tag {NEXT} --file - /root/image"
    podman_node.remote.run(build, stdin=f"FROM {DEFAULT_IMAGE}\nLABEL next=yes\n", seconds=_SECONDS)
    switch = f"openperouter generate quadlet --image {{}} && systemctl daemon-reload && systemctl restart {UNITS}"
    podman_node.remote.run(switch.format(NEXT), seconds=_SECONDS)
    upgraded = [image_of(podman_node, container) for container in (FRR, RELOADER)]
    forwards(podman_node)
    assert podman_node.remote.run("openperouter generate quadlet --check", check=False).returncode == 2
    podman_node.remote.run(switch.format(DEFAULT_IMAGE), seconds=_SECONDS)
    assert [image_of(podman_node, container) for container in (FRR, RELOADER)] == [first, first]
    assert upgraded[0] == upgraded[1] != first
    forwards(podman_node)


def test_a_deleted_namespace_is_back_with_the_pods_restart(podman_node: Machine) -> None:
    podman_node.remote.run("ip netns delete perouter")
    podman_node.remote.run(f"systemctl restart {UNITS}", seconds=_SECONDS)
    eventually(lambda: not wired(podman_node), "no process keeps the old namespace")
    podman_node.remote.run(WIRE)
    forwards(podman_node)


def test_the_pod_starts_before_the_kubelet_without_a_hand(podman_node: Machine) -> None:
    podman_node.remote.run("cat >/etc/systemd/system/kubelet.service", stdin=KUBELET)
    podman_node.remote.run("systemctl enable --quiet kubelet.service")
    podman_node.restart()
    eventually(lambda: active(podman_node), "the router is ready after the boot", seconds=_SECONDS)
    ready = int(property_of(podman_node, "ActiveEnterTimestampMonotonic"))
    eventually(lambda: property_of(podman_node, "MainPID", "kubelet") != "0", "the stand-in is started")
    assert int(property_of(podman_node, "ExecMainStartTimestampMonotonic", "kubelet")) >= ready > 0
    assert int(property_of(podman_node, "ActiveEnterTimestampMonotonic", FRR)) <= ready
    assert property_of(podman_node, "ActiveState", "frr@perouter") == "inactive"
    podman_node.remote.run("/usr/local/libexec/fabric/attach")
    forwards(podman_node)
    assert not podman_node.remote.run("systemctl --failed --no-legend --plain").stdout.strip()
    assert not [problem for problem in status(podman_node).get("problems", ()) if problem["severity"] == "error"]


def test_plain_units_start_the_pod_at_boot_as_well(podman_node: Machine) -> None:
    refused = podman_node.remote.run("openperouter generate systemd", check=False)
    assert (refused.returncode, "generate quadlet --remove" in refused.stderr) == (64, True)
    podman_node.remote.run("openperouter generate quadlet --remove && openperouter generate systemd")
    podman_node.restart()
    eventually(lambda: active(podman_node), "the router is ready after the boot", seconds=_SECONDS)
    units = (POD, FRR, RELOADER)
    assert [property_of(podman_node, "ActiveState", unit) for unit in units] == ["active"] * 3
    files = [property_of(podman_node, "FragmentPath", unit) for unit in units]
    assert files == [f"/etc/systemd/system/{unit}.service" for unit in units]
    assert property_of(podman_node, "ActiveState", "frr@perouter") == "inactive"
    assert podman_node.remote.run("openperouter generate systemd --check").returncode == 0
    podman_node.remote.run("/usr/local/libexec/fabric/attach")
    forwards(podman_node)
