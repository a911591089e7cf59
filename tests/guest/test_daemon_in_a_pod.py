"""The daemon and FRR as the shipped DaemonSet's pod, on a booted node that has nothing of ours but its configuration.

Debian's podman plays the manifest as "openperouter manifests router" prints it, where a cluster's kubelet would. The
order of the tests is that of the pod's life, and at the end the node is as it was before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import yaml

from demo import topology
from demo.checks import CHECKS, FABRIC_HOST_V4, Check, ping
from guestvm.image import ensure_image
from guestvm.logs import collect
from guestvm.machine import Machine
from guestvm.tree import PODMAN_NODE
from supervisor.operations.cluster.manifests import manifests
from supervisor.operations.router.podman_units import DEFAULT_IMAGE

from .commands import eventually, no_ping_lost, property_of
from .evidence import LOGS
from .test_podman import load_image, router_image

#: As podman names them.
DAEMON, FRR = "openperouter-router-pod-daemon", "openperouter-router-pod-frr"
PATCH = topology.CHECKOUT / "packaging/kubernetes/router/teardown.yaml"
PLAY = "podman kube play --quiet -"
DOWN = "podman kube down --force -"
#: Starting containers, all of it emulated.
_SECONDS = 600
#: What is asked from outside of the pod; FRR's own view of it is in "openperouter status".
OUTSIDE = [check for check in CHECKS if check.title.startswith(("host BGP session", "fabric's route", "ping"))]


def manifest() -> str:
    """Return the DaemonSet as it is shipped, with the image that the node has."""
    return manifests(("router",), DEFAULT_IMAGE)


def patched() -> str:
    """Return the DaemonSet as kubectl makes it of the shipped patch, whose operations replace or remove."""
    found = yaml.safe_load(manifest())
    for operation in yaml.safe_load(PATCH.read_text()):
        *way, last = [int(word) if word.isdigit() else word for word in operation["path"].split("/")[1:]]
        place = found
        for word in way:
            place = place[word]
        del place[last]
        if operation["op"] == "replace":
            place[last] = operation["value"]
    return yaml.safe_dump(found)


def inside(node: Machine, command: str, *, check: bool = True) -> str:
    """Run a command in the daemon's container; return what it prints."""
    return node.remote.run(f"podman exec {DAEMON} {command}", seconds=300, check=check).stdout


def process(node: Machine, container: str) -> str:
    """Return the PID of a container's first process; empty or 0 while it does not run."""
    done = node.remote.run(f"podman inspect --format '{{{{.State.Pid}}}}' {container}", check=False)
    return done.stdout.strip()


def healthy(node: Machine) -> bool:
    """Say whether the readiness probe's command succeeds."""
    return (
        node.remote.run(f"podman exec {DAEMON} /usr/bin/openperouter status", seconds=300, check=False).returncode == 0
    )


def times_ready(node: Machine) -> int:
    """Return how often the daemon has become ready since its container was made."""
    return int(node.remote.run(f"podman logs {DAEMON} 2>&1 | grep -c ' systemd: ready '", check=False).stdout or 0)


def forwards(node: Machine) -> None:
    """Fail unless all that is seen from outside works in time."""
    for check in OUTSIDE:
        verdict = check.wait(node, seconds=300)
        assert verdict.ok, f"{check.title}: {verdict.evidence}"


def traces(node: Machine) -> str:
    """Return what of a router there is on the node: devices with their addresses, namespaces, filters, files, pods."""
    commands = (
        "ip -o link | sed -E 's/^[0-9]+: ([^:@]*).*/\\1/' | grep -v tonear | sort",
        "ip -o address show dev toswitch1 | grep -o 'inet .*'",
        "ip netns list | sed 's/ .*//' | sort",
        "nft list ruleset",
        "ls -d /run/openperouter* /var/lib/openperouter* /var/lib/hostbridge /etc/frr/perouter 2>/dev/null || true",
        "podman ps --all --quiet; podman pod ps --quiet; podman volume ls --quiet",
    )
    return node.remote.run("; ".join(commands)).stdout


@pytest.fixture(scope="module")
def pod_machine() -> Iterator[Machine]:
    """A node with the fabric, the router's image and the example configuration, where the pod was started."""
    archive = router_image()
    with Machine.boot(ensure_image(PODMAN_NODE)) as machine:
        try:
            topology.lay_fabric(machine)
            load_image(machine, archive)
            machine.remote.run("rm -r /root/image")
            topology.copy_configuration(machine)
            machine.remote.run("cat >/root/before", stdin=traces(machine))
            machine.remote.run(PLAY, stdin=manifest(), seconds=_SECONDS)
            bridge = "test -d /sys/class/net/br-hs-210"
            eventually(lambda: machine.remote.run(bridge, check=False).returncode == 0, "the segment's bridge is there")
            machine.remote.run("/usr/local/libexec/fabric/attach")
        except Exception:
            collect(machine, LOGS / "pod-start")
            raise
        yield machine


@pytest.fixture
def pod_node(pod_machine: Machine, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """The same, with evidence when a test fails."""
    failed = request.session.testsfailed
    yield pod_machine
    if request.session.testsfailed > failed:
        logs = LOGS / re.sub(r"[^\w.-]+", "-", request.node.name)
        collect(pod_machine, logs)
        for container in (DAEMON, FRR):
            said = pod_machine.remote.run(f"podman logs {container} 2>&1", check=False).stdout
            (logs / f"{container}.txt").write_text(said)


@pytest.mark.parametrize("check", OUTSIDE, ids=lambda check: check.title)
def test_a_node_without_the_package_forwards(pod_node: Machine, check: Check) -> None:
    verdict = check.wait(pod_node, seconds=300)
    assert verdict.ok, verdict.evidence


def test_the_daemon_is_ready_and_no_unit_of_ours_is_there(pod_node: Machine) -> None:
    eventually(lambda: healthy(pod_node), "the readiness probe succeeds")
    live = f"podman healthcheck run {DAEMON}"
    eventually(lambda: pod_node.remote.run(live, seconds=300, check=False).returncode == 0, "it is alive by its probe")
    units = pod_node.remote.run("systemctl list-unit-files --no-legend 'openperouter*'", check=False).stdout
    assert not units.strip()
    assert property_of(pod_node, "ActiveState", "frr@perouter") == "inactive"


def test_logs_are_lines_and_the_doctor_finds_nothing_that_systemd_would_be_needed_for(pod_node: Machine) -> None:
    said = pod_node.remote.run(f"podman logs {DAEMON} 2>&1").stdout
    assert re.search(r"^\d\d:\d\d:\d\d\.\d{3} info    systemd: ready", said, re.MULTILINE), said[-2000:]
    assert " BGP: " in pod_node.remote.run(f"podman logs {FRR} 2>&1").stdout
    found = inside(pod_node, "openperouter doctor", check=False)
    assert "ok       frr-running" in found
    assert "could not be examined" not in found
    assert not re.search(r"^error ", found, re.MULTILINE), found


def test_frr_has_few_rights_in_the_routers_namespace(pod_node: Machine) -> None:
    pid = process(pod_node, FRR)
    privileges = pod_node.remote.run(f"grep -E '^(CapBnd|NoNewPrivs)' /proc/{pid}/status").stdout.split()
    assert privileges == ["CapBnd:", "00000000002034eb", "NoNewPrivs:", "1"]
    pod_node.remote.run(f"test /proc/{pid}/ns/net -ef /run/netns/perouter")


def test_a_killed_daemon_is_back_and_no_ping_is_lost(pod_node: Machine) -> None:
    forwards(pod_node)
    killed, frr, starts = process(pod_node, DAEMON), process(pod_node, FRR), times_ready(pod_node)
    # Its log is what costs an emulated machine least: FRR has to keep its sessions meanwhile.
    with no_ping_lost(pod_node, FABRIC_HOST_V4):
        pod_node.remote.run(f"kill -9 {killed}")
        eventually(lambda: times_ready(pod_node) > starts, "the daemon is ready again", seconds=_SECONDS)
    assert process(pod_node, DAEMON) not in {"", "0", killed}
    assert process(pod_node, FRR) == frr


def test_a_deleted_pod_leaves_the_devices_and_a_new_one_forwards(pod_node: Machine) -> None:
    before = pod_node.remote.run("ip -n perouter -o link | cut -d@ -f1").stdout
    pod_node.remote.run(DOWN, stdin=manifest(), seconds=_SECONDS)
    assert pod_node.remote.run("ip -n perouter -o link | cut -d@ -f1").stdout == before
    pod_node.remote.run(PLAY, stdin=manifest(), seconds=_SECONDS)
    forwards(pod_node)
    eventually(lambda: healthy(pod_node), "the daemon is ready")


def test_the_teardown_of_the_documentation_leaves_nothing(pod_node: Machine) -> None:
    assert ping(FABRIC_HOST_V4)(pod_node).ok
    pod_node.remote.run(DOWN, stdin=manifest(), seconds=_SECONDS)
    pod_node.remote.run(PLAY, stdin=patched(), seconds=_SECONDS)
    # Running, so the init container before it has succeeded.
    eventually(lambda: process(pod_node, DAEMON) not in {"", "0"}, "the router is taken down")
    pod_node.remote.run(DOWN, stdin=patched(), seconds=_SECONDS)
    pod_node.remote.run("rm -r /var/lib/openperouter /run/openperouter; rmdir /var/lib/hostbridge")
    assert traces(pod_node) == pod_node.remote.run("cat /root/before").stdout
