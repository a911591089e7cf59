"""The metrics pod without a kubelet: the image that was built, with exactly the manifest's settings, under podman.

``make test-image`` builds the image and runs this as root. The pod has a network namespace of its own, as in a cluster,
and a Prometheus scrapes it with what the PodMonitor says. What a kubelet or Prometheus' operator make of the two
manifests is not tested here.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors.lib.metrics.exposition import metrics_text
from actors.lib.metrics.textfile import DIRECTORY_MODE, MODE
from config.status import Status
from guestvm.cache import cache_dir
from supervisor.version import VERSION
from tests.guest.commands import eventually

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.environ.get("OPENPEROUTER_IMAGE_TESTS") != "1", reason="needs the image: make test-image"),
]

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = ROOT / "build" / "image" / f"openperouter-{VERSION}.oci.tar"
MANIFEST = ROOT / "packaging" / "kubernetes" / "metrics" / "daemonset.yaml"
MONITOR = ROOT / "packaging" / "monitoring" / "pod-monitor.yaml"
#: Debian's packages, unpacked there; runc is what most kubelets' runtimes start containers with.
PROMETHEUS = cache_dir() / "prometheus/usr/bin/prometheus"
RUNC = cache_dir() / "runc/usr/sbin/runc"
#: podman's own are higher than a container on a machine of CI may have.
LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
NETNS = "openpe-image"
#: A pair of RFC 2544's addresses, which no one else uses.
HOST, POD = "198.18.99.1", "198.18.99.2"


def run(*command: str, check: bool = True) -> str:
    """Run a command and return what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class MetricsPod:
    """The container, and the node's directory that is mounted in it."""

    podman: tuple[str, ...]
    name: str
    directory: Path
    port: int

    def write(self, status: Status) -> None:
        """Write the file as the daemon does."""
        path = self.directory / "openperouter.prom"
        new = path.with_suffix(".new")
        new.touch(MODE)
        new.write_text(metrics_text(status))
        new.rename(path)

    def remove(self) -> None:
        """Remove the file, as on a node whose daemon has never run."""
        (self.directory / "openperouter.prom").unlink(missing_ok=True)

    def status(self) -> int:
        """Return the HTTP status of a request to it; 0: there is no answer."""
        try:
            with urllib.request.urlopen(f"http://{POD}:{self.port}/metrics", timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0


def container() -> dict[str, Any]:
    """Return the manifest's one container."""
    [one] = yaml.safe_load(MANIFEST.read_text())["spec"]["template"]["spec"]["containers"]
    return dict(one)


def options(directory: Path) -> list[str]:
    """Return podman's options for the manifest's settings; ``directory`` stands for the node's."""
    pod = yaml.safe_load(MANIFEST.read_text())["spec"]["template"]["spec"]
    one, context = container(), container()["securityContext"]
    assert context.keys() == {
        *("runAsUser", "runAsGroup", "allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities"),
        "seccompProfile",
    }
    assert context["readOnlyRootFilesystem"]
    assert not context["allowPrivilegeEscalation"]
    # podman's own profile is the default, as the runtime's is the kubelet's RuntimeDefault.
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    [volume], [mount] = pod["volumes"], one["volumeMounts"]
    assert volume["name"] == mount["name"]
    return [
        *("--user", f"{context['runAsUser']}:{context['runAsGroup']}", "--security-opt", "no-new-privileges"),
        *("--read-only", "--read-only-tmpfs=false"),
        *(f"--cap-drop={name}" for name in context["capabilities"]["drop"]),
        *("--volume", f"{directory}:{mount['mountPath']}:{'ro' if mount['readOnly'] else 'rw'}"),
        *("--memory", one["resources"]["limits"]["memory"].replace("Mi", "m")),
    ]


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    """The pod's network namespace, with a veth pair to this machine."""
    run("ip", "netns", "delete", NETNS, check=False)
    run("ip", "netns", "add", NETNS)
    run("ip", "link", "add", NETNS, "type", "veth", "peer", "name", "eth0", "netns", NETNS)
    run("ip", "address", "add", f"{HOST}/30", "dev", NETNS)
    run("ip", "link", "set", NETNS, "up")
    run("ip", "-n", NETNS, "address", "add", f"{POD}/30", "dev", "eth0")
    run("ip", "-n", NETNS, "link", "set", "eth0", "up")
    yield
    run("ip", "netns", "delete", NETNS)


@pytest.fixture(scope="module")
def pod(network: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetricsPod]:
    """The pod on a node whose daemon has not written anything yet."""
    directory = tmp_path_factory.mktemp("metrics")
    directory.chmod(DIRECTORY_MODE)
    storage = tmp_path_factory.mktemp("podman")
    podman = (
        *("podman", f"--root={storage}/root", f"--runroot={storage}/run"),
        *(f"--runtime={RUNC}", "--cgroup-manager=cgroupfs"),
    )
    image = run(*podman, "pull", "--quiet", f"oci-archive:{ARCHIVE}")
    [port] = [one["containerPort"] for one in container()["ports"]]
    one = MetricsPod(podman, NETNS, directory, port)
    name = ("--name", one.name, f"--network=ns:/run/netns/{NETNS}")
    run(*podman, "run", "--detach", *name, *LIMITS, *options(directory), image, *container()["args"])
    yield one
    run(*podman, "rm", "--force", "--time=0", one.name, check=False)
    run(*podman, "rmi", "--force", image, check=False)
    # Its mounts are gone; overlay's directories are not pytest's to delete.
    shutil.rmtree(storage, ignore_errors=True)


@pytest.fixture
def prometheus(pod: MetricsPod, tmp_path: Path) -> Iterator[Callable[[str], list[Any]]]:
    """A Prometheus that scrapes the pod as the PodMonitor says, but each second; call it with a query."""
    [endpoint] = yaml.safe_load(MONITOR.read_text())["spec"]["podMetricsEndpoints"]
    [port] = [one["containerPort"] for one in container()["ports"] if one["name"] == endpoint["port"]]
    scrape = {
        "job_name": "openperouter",
        "metrics_path": endpoint["path"],
        "scrape_interval": "1s",
        "static_configs": [{"targets": [f"{POD}:{port}"], "labels": {"instance": "node-a"}}],
    }
    config = tmp_path / "prometheus.yml"
    config.write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [str(PROMETHEUS), f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log)

    def query(text: str) -> list[Any]:
        try:
            with urllib.request.urlopen(f"http://{address}/api/v1/query?query={text}", timeout=10) as answer:
                return list(json.load(answer)["data"]["result"])
        except OSError:
            assert server.poll() is None, (tmp_path / "log").read_text()[-2000:]
            return []

    yield query
    server.terminate()
    server.wait(30)


def value(found: list[Any]) -> str:
    """Return the value of a query's only series, empty without one."""
    return str(found[0]["value"][1]) if len(found) == 1 else ""


def test_it_runs_with_no_rights_and_says_that_there_is_no_file(pod: MetricsPod) -> None:
    pod.remove()
    eventually(lambda: pod.status() == 503, "it answers 503")
    process = run(*pod.podman, "inspect", "--format", "{{.State.Pid}}", pod.name)
    fields = dict(line.split(":\t") for line in Path(f"/proc/{process}/status").read_text().splitlines())
    assert {fields[name] for name in ("CapEff", "CapPrm", "CapBnd")} == {"0" * 16}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert fields["Uid"].split()[:2] == ["0", "0"]


def test_prometheus_has_the_nodes_metrics(pod: MetricsPod, prometheus: Callable[[str], list[Any]]) -> None:
    pod.write(Status(ready=True))
    eventually(lambda: value(prometheus("openperouter_ready")) == "1", "Prometheus has the node's state")
    [series] = prometheus("openperouter_ready")
    assert series["metric"]["instance"] == "node-a"
    pod.write(Status(ready=False))
    eventually(lambda: value(prometheus("openperouter_ready")) == "0", "the new state")
    pod.remove()
    eventually(lambda: value(prometheus("up")) == "0", "a missing file is a failed scrape")


def test_it_ends_within_its_grace_period(pod: MetricsPod) -> None:
    grace = yaml.safe_load(MANIFEST.read_text())["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    run(*pod.podman, "stop", f"--time={grace}", pod.name)
    assert run(*pod.podman, "inspect", "--format", "{{.State.ExitCode}}", pod.name) == "0"
