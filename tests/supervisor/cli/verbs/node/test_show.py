"""``openperouter show``: readable, complete, and without any secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from supervisor.cli import main
from supervisor.operations.documents import without_secrets
from tests.supervisor.cli.examples import SECRETS, api_l3vni, remember_api


def show(settings: Path, *words: str) -> int:
    return main(["--settings", str(settings), "show", *words])


def test_desired_shows_the_state_and_where_it_is_configured(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(settings, "desired") == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert document["node_index"] == 3
    assert document["underlay"]["vteps"] == ["100.65.0.3/32"]
    assert document["l3vnis"][0]["origin"].endswith("openpe_l3vni.yaml:2:5")


def test_desired_as_json_is_the_same(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(settings, "desired")
    from_yaml = yaml.safe_load(capsys.readouterr().out)
    show(settings, "desired", "--json")
    assert json.loads(capsys.readouterr().out) == from_yaml


def test_config_shows_settings_and_files(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(settings, "config") == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert document["settings"]["runDir"] == str(settings.parent / "run")
    configs = settings.parent / "configs"
    assert document["files"][str(configs / "openpe_l3vni.yaml")] == {"l3vnis": [{"vni": 100, "vrf": "red"}]}


def test_the_intended_frr_configuration_can_be_shown_without_frr(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(settings, "frr", "--intended") == 0
    assert "neighbor 192.168.11.2 remote-as 64512" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [("desired",), ("desired", "--json"), ("config",), ("config", "--json"), ("frr", "--intended")],
)
def test_no_secret_is_shown(settings: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert show(settings, *words) == 0
    shown = capsys.readouterr()
    for secret in SECRETS:
        assert secret not in shown.out + shown.err
    assert "********" in shown.out


def test_a_broken_file_is_not_shown_since_a_secret_could_be_anywhere_in_it(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings.parent / "configs" / "openpe_underlay.yaml"
    file.write_text("password: [hunter2hunter2\n")
    assert show(settings, "config") == 0
    shown = capsys.readouterr().out
    assert "hunter2hunter2" not in shown
    assert "cannot be shown" in shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"Password": "x"}, {"Password": "********"}),
        ({"passwordSecret": "file-name"}, {"passwordSecret": "file-name"}),
        ({"a": [{"apiToken": {"deep": "x"}}]}, {"a": [{"apiToken": "********"}]}),
        ({"password": None}, {"password": None}),
        ({"text": " neighbor 1.2.3.4 password x"}, {"text": " neighbor 1.2.3.4 password ********"}),
        ({1: True}, {1: True}),
    ],
)
def test_secrets_are_found_by_key_and_in_frr_text(value: object, shown: object) -> None:
    assert without_secrets(value) == shown


@pytest.mark.parametrize(("subject", "code"), [("frr", 69), ("kernel", 69)])
def test_an_unavailable_dependency_is_one_message_and_no_traceback(
    settings: Path, capsys: pytest.CaptureFixture[str], subject: str, code: int
) -> None:
    assert show(settings, subject) == code
    error = capsys.readouterr().err
    assert error.startswith("openperouter: ")
    assert error.count("\n") == 1


def test_an_unusable_configuration_has_no_desired_state(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (settings.parent / "configs" / "openpe_underlay.yaml").write_text("underlays:\n  - asn: 0\n")
    assert show(settings, "desired") == 78
    assert "no usable configuration" in capsys.readouterr().err


def test_saved_api_objects_are_part_of_the_desired_state(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remember_api(settings.parent, api_l3vni("blue", 200), synced_at=1000.0)
    assert show(settings, "desired") == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert document["remembered"] == {"objects": 1, "synced_at": 1000.0}
    assert [vni["origin"].rpartition("/")[2] for vni in document["l3vnis"]] == ["openpe_l3vni.yaml:2:5", "blue@7"]


def test_a_damaged_store_of_last_good_files_hides_no_file(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = settings.parent / "state"
    state.mkdir(exist_ok=True)
    (state / "last-good.json").write_bytes(b"\xff\xfe")
    assert show(settings, "desired") == 0
    assert yaml.safe_load(capsys.readouterr().out)["underlay"]["vteps"] == ["100.65.0.3/32"]
