"""``openperouter plan``: both differences, and exit codes for scripts."""

from __future__ import annotations

import json
import os
import time
from ipaddress import ip_network
from pathlib import Path

import pytest

import actors.frr.preview
import actors.netlink.preview
from actors.frr.preview import Preview
from actors.netlink.planning.steps import Plan, Step
from config.desired import DesiredState
from config.outcomes import Interruption
from config.resolve.host_networks import HostNetwork
from config.settings import Settings
from config.store.last_good import LastGood, to_json
from supervisor.cli import main
from supervisor.runtime.faults import DependencyFault
from tests.supervisor.cli.examples import SECRETS, UNDERLAY, api_l3vni, remember_api


def plan(settings: Path, *arguments: object) -> int:
    return main(["--settings", str(settings), "plan", *map(str, arguments)])


class Making(Step):
    """A step with a text."""

    def __str__(self) -> str:
        return "router: create vrf red"


def previews(monkeypatch: pytest.MonkeyPatch, frr: str, kernel: Plan, *interrupted: Interruption) -> list[DesiredState]:
    """Let FRR and the kernel answer with these differences; return the desired states that they get."""
    requested: list[DesiredState] = []

    async def preview_frr(desired: DesiredState, _settings: Settings) -> Preview:
        requested.append(desired)
        return Preview(tuple(frr.splitlines()), interrupted[:1])

    async def preview_kernel(desired: DesiredState, _settings: Settings) -> tuple[Plan, tuple[Interruption, ...]]:
        requested.append(desired)
        return kernel, interrupted[1:]

    monkeypatch.setattr(actors.frr.preview, "preview", preview_frr)
    monkeypatch.setattr(actors.netlink.preview, "preview_interruptions", preview_kernel)
    return requested


@pytest.mark.parametrize(
    ("differences", "code"),
    [
        (("", Plan()), 0),
        (("+ vrf red", Plan()), 2),
        (("", Plan((Making(),))), 2),
        (("+ vrf red", Plan((Making(),))), 2),
    ],
)
def test_the_exit_code_shows_whether_there_is_anything_to_do(
    settings: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    differences: tuple[str, Plan],
    code: int,
) -> None:
    frr, kernel = differences
    requested = previews(monkeypatch, frr, kernel)
    assert plan(settings) == code
    shown = capsys.readouterr().out
    ending = "interrupts:\n  nothing\n" if code else ""
    router_id = "router ID: 10.0.0.3 (routerIDScheme v2; v1: 10.0.0.4)"
    assert shown == f"{router_id}\nFRR:\n  {frr or 'nothing to do'}\nkernel:\n  {kernel.text}\n{ending}"
    assert [state.node_index for state in requested] == [3, 3]


def test_the_scheme_of_a_node_that_exists_is_shown_with_what_the_other_would_give(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    previews(monkeypatch, "", Plan())
    (settings.parent / "state" / "node.json").write_text('{"name": "node-a", "index": 3, "log_level": "info"}')
    assert plan(settings) == 0
    assert capsys.readouterr().out.startswith("router ID: 10.0.0.4 (routerIDScheme v1; v2: 10.0.0.3)\n")


def test_without_frr_the_plan_for_the_kernel_is_shown_all_the_same(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(_desired: DesiredState, _settings: Settings) -> Preview:
        raise DependencyFault("it hangs")

    previews(monkeypatch, "", Plan((Making(),)))
    monkeypatch.setattr(actors.frr.preview, "preview", silent)
    assert plan(settings) == 69
    shown = capsys.readouterr()
    assert "create vrf red" in shown.out
    assert "FRR is not available: it hangs" in shown.err


def test_an_unusable_underlay_changes_nothing_and_says_why(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (settings.parent / "configs" / "openpe_underlay.yaml").write_text("underlays:\n  - asn: 0\n")
    assert plan(settings) == 78
    assert "no usable configuration" in capsys.readouterr().err


def test_without_frr_and_namespace_it_says_so_and_leaks_nothing(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(settings) == 69
    shown = capsys.readouterr()
    assert "openperouter-not-there" in shown.err
    for secret in SECRETS:
        assert secret not in shown.out + shown.err


def test_saved_api_objects_are_part_of_the_plan(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = previews(monkeypatch, "", Plan())
    remember_api(settings.parent, api_l3vni("blue", 200), synced_at=time.time() - 250)
    assert plan(settings) == 0
    assert [vni.vrf for vni in requested[0].l3vnis] == ["red", "blue"]
    assert "with 1 saved API object, 4m1" in capsys.readouterr().err


def test_the_settings_say_which_saved_objects_count(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = previews(monkeypatch, "", Plan())
    remember_api(settings.parent, api_l3vni("blue", 200))
    settings.write_text(settings.read_text() + "maxResources: {l3vnis: 1}\n")
    assert plan(settings) == 0
    assert [vni.vrf for vni in requested[0].l3vnis] == ["red"]


def test_an_unusable_snapshot_is_reported(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = previews(monkeypatch, "", Plan())
    remember_api(settings.parent, api_l3vni("blue", 200), node="another")
    assert plan(settings) == 0
    assert [vni.vrf for vni in requested[0].l3vnis] == ["red"]
    assert "without API objects: " in capsys.readouterr().err


def test_files_that_wait_for_a_reload_are_planned(
    settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requested = previews(monkeypatch, "+ vrf green", Plan())
    settings.write_text(f"{settings.read_text()}autoApply: false\n")
    remember_in_force(settings)
    (settings.parent / "configs" / "openpe_green.yaml").write_text(GREEN)
    assert plan(settings) == 2
    assert [vni.vrf for vni in requested[0].l3vnis] == ["green", "red"]
    assert "+ vrf green" in capsys.readouterr().out


def remember_in_force(settings: Path) -> None:
    """Write what the daemon remembers of the files that are in force."""
    texts = {str(path): path.read_text() for path in (settings.parent / "configs").glob("openpe_*.yaml")}
    (settings.parent / "state" / "in-force.json").write_text(to_json(LastGood().with_texts(texts)))


GREEN = "l3vnis: [{name: green, vrf: green, vni: 300}]\n"
RESET = Interruption("session", "session 192.168.11.2 in VRF default", "is reset (other password)")
GONE = Interruption("vni", "L3VNI red (VNI 100)", "is removed")


def candidate(settings: Path, text: str = GREEN, name: str = "openpe_green.yaml") -> Path:
    directory = settings.parent / "new"
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text)
    return directory / name


def test_a_file_is_planned_with_those_in_force(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = previews(monkeypatch, "+ vrf green / vni 300", Plan((Making(),)), RESET, GONE)
    assert plan(settings, candidate(settings)) == 2
    assert [vni.vrf for vni in requested[0].l3vnis] == ["green", "red"]
    assert capsys.readouterr().out == (
        "adds openpe_green.yaml\n"
        "router ID: 10.0.0.3 (routerIDScheme v2; v1: 10.0.0.4)\n"
        "FRR:\n  + vrf green / vni 300\n"
        "kernel:\n  router: create vrf red\n"
        "interrupts:\n"
        "  session 192.168.11.2 in VRF default: is reset (other password)\n"
        "  L3VNI red (VNI 100): is removed\n"
    )
    assert sorted(path.name for path in (settings.parent / "configs").iterdir()) == [
        "openpe_l3vni.yaml",
        "openpe_underlay.yaml",
    ]


def test_a_directory_is_the_whole_configuration(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = previews(monkeypatch, "- vrf red", Plan())
    candidate(settings, UNDERLAY, "openpe_underlay.yaml")
    candidate(settings)
    assert plan(settings, settings.parent / "new") == 2
    assert [vni.vrf for vni in requested[0].l3vnis] == ["green"]
    assert capsys.readouterr().out.startswith("adds openpe_green.yaml; removes openpe_l3vni.yaml\n")


def test_files_with_errors_are_not_planned(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = previews(monkeypatch, "", Plan())
    wrong = candidate(settings, GREEN.replace("300", "many"))
    assert plan(settings, wrong) == 78
    shown = capsys.readouterr().out
    assert f"{wrong}:1:" in shown
    assert shown.endswith("not planned: the configuration has errors\n")
    assert plan(settings, wrong, "--json") == 78
    document = json.loads(capsys.readouterr().out)
    assert document["problems"][0]["path"] == str(wrong)
    assert document["frr"] is document["kernel"] is None
    assert requested == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads what the machine uses")
def test_tunnel_endpoints_that_take_a_network_of_the_node_are_not_planned(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = previews(monkeypatch, "", Plan())
    network = HostNetwork(ip_network("100.65.3.0/24"), "the host's route 100.65.3.0/24 dev eth0")
    monkeypatch.setattr(actors.netlink.preview, "host_networks", lambda settings: (network,))
    wide = candidate(settings, UNDERLAY.replace("100.65.0.0/24", "100.65.0.0/16"), "openpe_underlay.yaml")
    assert plan(settings, wide) == 78
    shown = capsys.readouterr().out
    assert f"{wide}:13:11: error" in shown
    assert "cidrs[0]: 100.65.0.0/16 contains the host's route 100.65.3.0/24 dev eth0" in shown
    assert requested == []
    # The range that the daemon has in force is no reason against a plan.
    kept = LastGood().with_texts({str(settings.parent / "configs" / wide.name): wide.read_text()})
    (settings.parent / "state" / "in-force.json").write_text(to_json(kept))
    assert plan(settings, wide) == 0
    assert [state.underlay.vtep_pools for state in requested if state.underlay] == [("100.65.0.0/16",)] * 2


def test_json_has_all_of_it(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    previews(monkeypatch, "+ vrf green / vni 300", Plan((Making(),)), RESET, GONE)
    assert plan(settings, candidate(settings), "--json") == 2
    document = json.loads(capsys.readouterr().out)
    del document["problems"]
    assert document == {
        "schemaVersion": 1,
        "files": "adds openpe_green.yaml",
        "routerID": "10.0.0.3 (routerIDScheme v2; v1: 10.0.0.4)",
        "frr": ["+ vrf green / vni 300"],
        "kernel": ["router: create vrf red"],
        "interrupts": [{"subject": one.subject, "name": one.name, "effect": one.effect} for one in (RESET, GONE)],
        "notes": [],
        "unavailable": {},
    }


def test_what_is_not_available_is_named_in_json(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(settings, candidate(settings), "--json") == 69
    document = json.loads(capsys.readouterr().out)
    assert "openperouter-not-there" in document["unavailable"]["kernel"]
    for secret in SECRETS:
        assert secret not in str(document)


@pytest.mark.parametrize(("name", "code"), [("openpe_none.yaml", 66), ("green.yaml", 64)])
def test_what_is_no_router_file_is_refused(
    settings: Path, capsys: pytest.CaptureFixture[str], name: str, code: int
) -> None:
    (settings.parent / "green.yaml").write_text(GREEN)
    assert plan(settings, settings.parent / name) == code
    assert name in capsys.readouterr().err
