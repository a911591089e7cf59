"""``openperouter validate``: every problem with its place, and the exit code that systemd knows too."""

from __future__ import annotations

import fcntl
import os
from ipaddress import ip_network
from pathlib import Path

import pytest

import actors.netlink.preview
from config.resolve.host_networks import HostNetwork
from config.store.last_good import LastGood, to_json
from supervisor.cli import main
from supervisor.process.instance_lock import single_instance
from tests.supervisor.cli.examples import UNDERLAY, api_l3vni, remember_api


def validate(settings: Path, *files: Path) -> int:
    return main(["--settings", str(settings), "validate", *map(str, files)])


def test_a_valid_configuration_is_counted(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(settings) == 0
    assert capsys.readouterr().out == "valid: 3 resources\n"


@pytest.mark.timeout(120)
def test_it_does_not_wait_for_a_daemon_that_is_changing_frr(settings: Path) -> None:
    run_dir = settings.parent / "run"
    with single_instance(run_dir), (run_dir / "frr.lock").open("w") as lock, (run_dir / "frr.turn").open("w") as turn:
        for held in (lock, turn):
            fcntl.flock(held, fcntl.LOCK_EX)
        assert validate(settings) == 0


def test_an_error_is_named_with_file_line_and_column(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = settings.parent / "configs" / "openpe_l3vni.yaml"
    file.write_text("l3vnis:\n  - vni: 100\n    vfr: red\n")
    assert validate(settings) == 78
    shown = capsys.readouterr().out
    assert f"{file}:3:5: error" in shown
    assert shown.splitlines()[-1].startswith("not valid: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads what the machine uses")
def test_tunnel_endpoints_are_compared_with_what_the_node_uses(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = HostNetwork(ip_network("100.65.0.0/25"), "the host's route 100.65.0.0/25 dev eth0")
    monkeypatch.setattr(actors.netlink.preview, "host_networks", lambda settings: (network,))
    assert validate(settings) == 78
    assert "cidrs[0]: 100.65.0.0/24 contains the host's route 100.65.0.0/25 dev eth0" in capsys.readouterr().out
    # What the daemon has in force stays in force.
    configs = settings.parent / "configs"
    texts = {str(path): path.read_text() for path in configs.glob("openpe_*.yaml")}
    (settings.parent / "state").mkdir(exist_ok=True)
    (settings.parent / "state" / "in-force.json").write_text(to_json(LastGood().with_texts(texts)))
    assert validate(settings) == 0
    assert "it is in force" in capsys.readouterr().out
    # A machine that is not a node has other networks than the nodes that a file is for.
    for path in (settings.parent / "node-config.yaml", settings.parent / "state" / "in-force.json"):
        path.unlink()
    assert validate(settings, *configs.glob("openpe_*.yaml")) == 0


def test_every_problem_of_every_file_is_printed(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configs = settings.parent / "configs"
    (configs / "openpe_a.yaml").write_text("l3vnis: 7\n")
    (configs / "openpe_b.yaml").write_text("{{{\n")
    (settings.parent / "node-config.yaml").write_text("nodeIndex:\n  index: -1\n")
    assert validate(settings) == 78
    shown = capsys.readouterr().out
    for path in (configs / "openpe_a.yaml", configs / "openpe_b.yaml", settings.parent / "node-config.yaml"):
        assert f"{path}:" in shown


def test_a_warning_is_printed_and_does_not_fail(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (settings.parent / "configs" / "openpe_underlay.yaml").chmod(0o644)
    assert validate(settings) == 0
    shown = capsys.readouterr().out
    assert "warning" in shown.splitlines()[0]
    assert shown.splitlines()[-1] == "valid: 3 resources, 1 warning"


def test_a_missing_node_configuration_is_an_error_once_there_is_something_to_configure(settings: Path) -> None:
    (settings.parent / "node-config.yaml").unlink()
    assert validate(settings) == 78
    for file in (settings.parent / "configs").iterdir():
        file.unlink()
    assert validate(settings) == 0


def test_broken_settings_are_an_error(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings.write_text(settings.read_text() + "runDri: /run/x\n")
    assert validate(settings) == 78
    assert f"{settings}:7:1" in capsys.readouterr().out


def test_named_files_are_checked_together_without_the_rest(
    settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (settings.parent / "configs" / "openpe_broken.yaml").write_text("{{{\n")
    file = tmp_path / "mine.yaml"
    file.write_text(UNDERLAY)
    file.chmod(0o600)
    assert validate(settings, file, settings.parent / "configs" / "openpe_l3vni.yaml") == 0
    assert capsys.readouterr().out == "valid: 3 resources\n"


def test_a_named_file_that_is_not_there_is_an_error(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(settings, settings.parent / "none.yaml") == 66
    assert "none.yaml: no such file" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "text"), [("node-config.yaml", "nodeIdx: 3\n"), ("openperouter.yaml", "netnss: x\n")])
def test_node_configuration_and_settings_are_recognised_by_their_names(
    settings: Path, tmp_path: Path, name: str, text: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / name).write_text(text)
    assert validate(settings, elsewhere / name) == 78


def test_validating_writes_nothing(settings: Path) -> None:
    validate(settings)
    assert list((settings.parent / "state").iterdir()) == []
    assert list((settings.parent / "run").iterdir()) == []


SEGMENT = "l2vnis:\n  - vni: 110\n    routingDomain: {type: L3VNI, l3vni: {name: blue}}\n"


@pytest.mark.parametrize("named", [(), ("openpe_segment.yaml", "openpe_underlay.yaml")], ids=["all", "named"])
def test_without_api_snapshot_a_network_that_may_be_the_apis_is_a_warning(
    settings: Path, capsys: pytest.CaptureFixture[str], named: tuple[str, ...]
) -> None:
    configs = settings.parent / "configs"
    (configs / "openpe_segment.yaml").write_text(SEGMENT)
    assert validate(settings, *(configs / name for name in named)) == 0
    assert 'the files have no L3VNI "blue": in force only when the API has one' in capsys.readouterr().out


def test_a_network_of_the_files_that_is_refused_is_an_error(settings: Path) -> None:
    (settings.parent / "configs" / "openpe_segment.yaml").write_text(
        SEGMENT + "l3vnis:\n  - {name: blue, vrf: toswitch1, vni: 7}\n"
    )
    assert validate(settings) == 78


@pytest.mark.parametrize(("name", "code"), [("blue", 0), ("green", 78)])
def test_a_network_is_looked_up_among_the_saved_api_objects(settings: Path, name: str, code: int) -> None:
    (settings.parent / "configs" / "openpe_segment.yaml").write_text(SEGMENT)
    remember_api(settings.parent, api_l3vni(name, 200))
    assert validate(settings) == code


def test_errors_of_api_objects_are_not_errors_of_files(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remember_api(settings.parent, api_l3vni("blue", 0), api_l3vni("green", 100))
    assert validate(settings) == 0
    shown = capsys.readouterr().out
    assert "blue" not in shown
    assert "L3VNI tenant/green conflicts with this one and is ignored" in shown
