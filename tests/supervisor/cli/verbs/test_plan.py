"""``openperouter plan``: both differences, and exit codes for scripts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import actors.frr.preview
import actors.netlink.preview
from actors.netlink.planning.steps import Plan, Step
from config.desired import DesiredState
from config.settings import Settings
from supervisor.cli import main
from supervisor.runtime.faults import DependencyFault
from tests.supervisor.cli.examples import SECRETS, api_l3vni, remember_api


def plan(settings: Path) -> int:
    return main(["--settings", str(settings), "plan"])


class Making(Step):
    """A step with a text."""

    def __str__(self) -> str:
        return "router: create vrf red"


def previews(monkeypatch: pytest.MonkeyPatch, frr: str, kernel: Plan) -> list[DesiredState]:
    """Let FRR and the kernel answer with these differences; return the desired states that they get."""
    requested: list[DesiredState] = []

    async def preview_frr(desired: DesiredState, _settings: Settings) -> str:
        requested.append(desired)
        return frr

    async def preview_kernel(desired: DesiredState, _settings: Settings) -> Plan:
        requested.append(desired)
        return kernel

    monkeypatch.setattr(actors.frr.preview, "preview", preview_frr)
    monkeypatch.setattr(actors.netlink.preview, "preview", preview_kernel)
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
    router_id, rest = shown.split("\n", 1)
    assert router_id == "router ID: 10.0.0.3 (routerIDScheme v2; v1: 10.0.0.4)"
    assert rest == f"FRR:\n  {frr or 'nothing to do'}\nkernel:\n  {kernel.text}\n"
    assert [state.node_index for state in requested] == [3, 3]


def test_without_frr_the_plan_for_the_kernel_is_shown_all_the_same(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(_desired: DesiredState, _settings: Settings) -> str:
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


def test_an_unusable_snapshot_is_reported(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = previews(monkeypatch, "", Plan())
    remember_api(settings.parent, api_l3vni("blue", 200), node="another")
    assert plan(settings) == 0
    assert [vni.vrf for vni in requested[0].l3vnis] == ["red"]
    assert "without API objects: " in capsys.readouterr().err
