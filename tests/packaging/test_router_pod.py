"""The router's DaemonSet, and the script of its image, do what the package's units do.

tests/guest/test_daemon_in_a_pod.py runs them.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.settings import Settings
from supervisor.operations import exit_codes

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "packaging/systemd"
PREPARE = ROOT / "packaging/image/router/prepare-node"
SPEC = yaml.safe_load((ROOT / "packaging/kubernetes/router/daemonset.yaml").read_text())["spec"]["template"]["spec"]


def container(name: str) -> dict[str, Any]:
    """Return one of the pod's containers."""
    [found] = [one for one in (*SPEC["initContainers"], *SPEC["containers"]) if one["name"] == name]
    return dict(found)


def mounts(name: str) -> dict[str, str]:
    """Return where a container has which volume."""
    return {one["mountPath"]: one["name"] for one in container(name)["volumeMounts"]}


def directives(path: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", path.read_text(), re.MULTILINE)


def unescaped(command: str) -> str:
    """Return a command of a unit as systemd runs it (systemd.service(5), "Command lines")."""
    return command.replace("%%", "%").replace("$$", "$")


def test_the_namespace_is_made_as_the_unit_does_it() -> None:
    [script, loopback] = directives(UNITS / "openperouter-netns.service", "ExecStart")
    [commands] = re.findall(r"/bin/sh -c '(.*)'$", script)
    lines = PREPARE.read_text().splitlines()
    assert unescaped(commands) in lines
    assert loopback.removeprefix("/usr/sbin/") in lines


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ("namespace", []),
        ("nothing", ["netns add perouter"]),
        ("dead file", ["netns delete perouter", "netns add perouter"]),
    ],
)
def test_only_a_file_that_is_no_namespace_is_deleted(there: str, expected: list[str], tmp_path: Path) -> None:
    """``ip netns exec`` fails here, as it does on a machine without memory, or with as many mounts as it may have."""
    [script, _] = directives(UNITS / "openperouter-netns.service", "ExecStart")
    [commands] = re.findall(r"/bin/sh -c '(.*)'$", script)
    calls, ip, name = tmp_path / "calls", tmp_path / "ip", tmp_path / "perouter"
    ip.write_text(f'#!/bin/sh\n[ "$2" != exec ] || exit 1\necho "$@" >> {calls}\n')
    ip.chmod(0o755)
    if there == "namespace":
        name.symlink_to("/proc/self/ns/net")
    elif there == "dead file":
        name.touch()
    command = unescaped(commands).replace("/run/netns/perouter", str(name))
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run(["/bin/sh", "-c", command], check=False, env={"PATH": path}, timeout=60)
    assert done.returncode == 0
    assert (calls.read_text().splitlines() if calls.exists() else []) == expected


def test_frr_has_the_rights_that_its_unit_leaves_it() -> None:
    listed = " ".join(directives(UNITS / "frr@perouter.service.d/openperouter.conf", "CapabilityBoundingSet"))
    context = container("frr")["securityContext"]
    assert {f"CAP_{name}" for name in context["capabilities"]["add"]} == set(listed.split())
    assert context["capabilities"]["drop"] == ["ALL"]
    assert not context["allowPrivilegeEscalation"]
    assert "privileged" not in context


def test_each_directory_is_where_the_program_looks_for_it() -> None:
    settings = Settings()
    frr = str(settings.frr_etc_dir / settings.frr_pathspace), str(settings.frr_run_dir)
    hosts = {one["name"]: one["hostPath"]["path"] for one in SPEC["volumes"] if "hostPath" in one}
    own = (settings.state_dir, settings.run_dir, settings.credentials_dir, settings.node_config_file.parent)
    assert set(mounts("daemon")) == {"/run/netns", "/tmp", *frr, *map(str, own)}
    # The host has them at the same paths, so that one with the package continues where the pod ended, and the reverse.
    assert {path: hosts[name] for path, name in mounts("daemon").items() if name in hosts} == {
        path: path for path in ("/run/netns", *map(str, own))
    }
    assert {mounts("daemon")[path] for path in frr} == {mounts("frr")[path] for path in frr}
    assert mounts("daemon")[frr[0]] == mounts("prepare")[frr[0]]


def test_a_stop_has_the_time_that_the_unit_gives_it() -> None:
    assert directives(UNITS / "openperouter.service", "TimeoutStopSec") == [f"{SPEC['terminationGracePeriodSeconds']}s"]


def test_the_probes_know_the_commands_exit_codes() -> None:
    daemon = container("daemon")
    assert daemon["readinessProbe"]["exec"]["command"] == ["/usr/bin/openperouter", "status"]
    assert f"[ $? -ne {exit_codes.NO_ANSWER} ]" in daemon["livenessProbe"]["exec"]["command"][-1]
