"""``openperouter generate quadlet``: what is in the units, what is compared, and what is refused."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
import yaml

from config.settings import load_settings
from supervisor.cli.program import main
from supervisor.operations import exit_codes
from supervisor.operations.router.podman_units import (
    DAEMON_DROP_IN,
    DEFAULT_IMAGE,
    FRR,
    NATIVE_DROP_IN,
    POD,
    RELOADER,
    SETTINGS,
    Parameters,
    paths,
    texts,
)
from supervisor.operations.router.reloader import STOP_SECONDS
from supervisor.version import VERSION

PACKAGED_DROP_IN = Path(__file__).resolve().parents[5] / "packaging/systemd/frr@perouter.service.d/openperouter.conf"
UNITS = texts(Parameters())
CONTAINERS = (FRR, RELOADER)


class NodeRoot:
    """A directory that stands for a node's root."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._capsys = capsys

    def generate(self, *options: str) -> tuple[int, str]:
        """Run it; return the exit code and its output."""
        code = main(["generate", "quadlet", "--output", str(self.root), *options])
        return code, self._capsys.readouterr().out

    def read(self, name: str) -> str:
        return (self.root / name).read_text()


@pytest.fixture
def node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> NodeRoot:
    return NodeRoot(tmp_path, capsys)


def values(unit: str, key: str) -> list[str]:
    """Return a key's values, split at blanks, as systemd reads several lines of one key."""
    return [word for line in re.findall(rf"^{key}=(.*)$", UNITS[unit], re.MULTILINE) for word in line.split()]


def test_all_files_are_written_with_their_modes_and_a_second_run_changes_nothing(node: NodeRoot) -> None:
    code, said = node.generate()
    assert (code, said.count("written: ")) == (0, len(UNITS))
    assert {name: node.read(name) for name in paths()} == UNITS
    modes = {name: stat.S_IMODE((node.root / name).stat().st_mode) for name in paths()}
    assert modes == {name: 0o640 if name == SETTINGS else 0o644 for name in paths()}
    before = {name: (node.root / name).stat().st_ino for name in paths()}
    assert node.generate() == (0, "the units are as they should be\n")
    assert {name: (node.root / name).stat().st_ino for name in paths()} == before


def test_check_writes_nothing_and_shows_what_differs(node: NodeRoot) -> None:
    code, said = node.generate("--check")
    assert (code, said.count(" (missing)")) == (exit_codes.PENDING, len(UNITS))
    assert list(node.root.iterdir()) == []
    node.generate()
    assert node.generate("--check") == (0, "the units are as they should be\n")
    code, said = node.generate("--check", "--image", "registry.example/router:2")
    assert code == exit_codes.PENDING
    assert said.count(f"-Image={DEFAULT_IMAGE}") == said.count("+Image=registry.example/router:2") == 2
    assert UNITS[FRR] == node.read(FRR)


def test_another_image_and_the_first_one_again_change_both_containers_and_nothing_else(node: NodeRoot) -> None:
    node.generate()
    digest = "registry.example:5000/router@sha256:" + "0" * 64
    code, said = node.generate("--image", digest)
    assert (code, said.count("written: ")) == (0, 2)
    assert all(f"Image={digest}\n" in node.read(name) for name in CONTAINERS)
    node.generate()
    assert {name: node.read(name) for name in paths()} == UNITS


def test_the_settings_name_the_runtime_and_the_nodes_own_file(node: NodeRoot) -> None:
    node.generate("--node-config", "/srv/it's a node.yaml")
    wanted = {"runtime": "podman", "nodeConfigFile": "/srv/it's a node.yaml"}
    assert yaml.safe_load(node.read(SETTINGS)) == wanted
    node.generate()
    assert yaml.safe_load(node.read(SETTINGS)) == {"runtime": "podman"}


@pytest.mark.parametrize(
    "options",
    [
        ("--image", "router:1\nExecStartPre=/bin/evil"),
        ("--image", "router:%n"),
        ("--image", ""),
        ("--image=--privileged",),
        ("--node-config", "relative.yaml"),
        ("--node-config", "/etc/../evil"),
        ("--node-config", "/etc/a\nruntime: native"),
        ("--remove", "--check"),
        ("--node", "node-a"),
        ("--format", "cloud-init"),
    ],
)
def test_what_a_unit_cannot_have_is_refused_before_anything_is_written(
    node: NodeRoot, options: tuple[str, ...]
) -> None:
    assert node.generate(*options)[0] == exit_codes.USAGE
    assert list(node.root.iterdir()) == []


def test_an_inventory_needs_none_of_the_options_of_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "nodes", "--image", "router:1"]) == exit_codes.USAGE
    assert main(["generate", "nodes"]) == exit_codes.USAGE
    assert "needs INVENTORY and DIRECTORY" in capsys.readouterr().err


def test_remove_leaves_nothing_and_touches_no_file_of_others(node: NodeRoot) -> None:
    node.generate()
    (node.root / DAEMON_DROP_IN).write_text("[Unit]\n")
    assert node.generate("--remove")[0] == exit_codes.USAGE
    assert all((node.root / name).exists() for name in paths())
    node.generate()
    code, said = node.generate("--remove")
    assert (code, said.count("removed: ")) == (0, len(UNITS))
    assert not [path for path in node.root.rglob("*") if path.is_file()]
    assert node.generate("--remove") == (0, "there is nothing to remove\n")


@pytest.mark.parametrize("unit", CONTAINERS)
def test_a_container_never_pulls_and_has_only_the_rights_that_are_listed(unit: str) -> None:
    assert values(unit, "Pull") == ["never"]
    assert values(unit, "Image") == [f"localhost/openperouter-router:{VERSION}"]
    assert (values(unit, "ReadOnly"), values(unit, "NoNewPrivileges")) == (["true"], ["true"])
    assert values(unit, "DropCapability") == ["all"]
    assert values(unit, "LogDriver") == ["journald"]
    assert "--privileged" not in UNITS[unit]


def test_frr_has_the_capabilities_that_it_has_without_a_container() -> None:
    native = re.findall(r"^CapabilityBoundingSet=(.*)$", PACKAGED_DROP_IN.read_text(), re.MULTILINE)
    wanted = {word.removeprefix("CAP_") for line in native for word in line.split()}
    assert len(wanted) > 5
    assert set(values(FRR, "AddCapability")) == wanted
    assert set(values(RELOADER, "AddCapability")) < wanted


@pytest.mark.parametrize("unit", [POD, *CONTAINERS])
def test_the_router_starts_before_the_kubelet_and_waits_for_no_network(unit: str) -> None:
    assert {"kubelet.service", "network-online.target", "openperouter.service"} <= set(values(unit, "Before"))
    assert "network-online.target" not in {*values(unit, "After"), *values(unit, "Wants")}
    # podman's own default is to wait for it.
    assert values(unit, "DefaultDependencies") == ["false"]
    assert values(unit, "StartLimitIntervalSec") == ["0"]


@pytest.mark.parametrize("unit", CONTAINERS)
def test_systemd_waits_longer_than_podman_for_a_container_to_stop(unit: str) -> None:
    [stop], [timeout] = values(unit, "StopTimeout"), values(unit, "TimeoutStopSec")
    assert int(timeout.removesuffix("s")) > int(stop)


def test_podman_waits_longer_than_the_reloader_takes_to_end_its_work() -> None:
    assert int(values(RELOADER, "StopTimeout")[0]) > STOP_SECONDS


def test_the_written_setting_is_one_that_the_daemon_takes(node: NodeRoot) -> None:
    node.generate("--node-config", "/srv/node.yaml")
    settings, problems = load_settings(node.root / "etc/openperouter/openperouter.yaml", (node.root / SETTINGS).parent)
    assert not problems
    assert (settings.runtime, settings.node_config_file) == ("podman", Path("/srv/node.yaml"))
    # Which the units mount.
    assert f"Volume={settings.pod_run_dir}:{settings.pod_run_dir}\n" in UNITS[FRR]
    assert f"Volume={settings.frr_run_dir}:{settings.frr_run_dir}\n" in UNITS[RELOADER]


def test_the_pods_file_keeps_the_native_frr_from_starting() -> None:
    assert f"ConditionPathExists=!/{POD}\n" in UNITS[NATIVE_DROP_IN]
    started = {"openperouter-router-pod.service", "openperouter-frr.service", "openperouter-reloader.service"}
    assert set(values(DAEMON_DROP_IN, "Wants")) == set(values(DAEMON_DROP_IN, "After")) == started
