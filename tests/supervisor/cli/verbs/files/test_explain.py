"""``openperouter explain`` and ``schema``: what they print, to the letter."""

from __future__ import annotations

import json

import pytest

from supervisor.cli import main


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (
            "l3vnis.hostSession.hostASN",
            """\
l3vnis.hostSession.hostASN  in openpe_*.yaml
  AS number of the host's BGP speaker. Mutually exclusive with hostType.
  type:    integer
  limits:  at least 1, at most 4294967295
  since:   0.1.0
  example:
    l3vnis:
    - hostSession:
        hostASN: 64515
""",
        ),
        (
            "L3VNIS[].VxlanPort",
            """\
l3vnis.vxlanPort  in openpe_*.yaml
  UDP port of the tunnel.
  type:    integer
  default: 4789
  limits:  at least 1, at most 65535
  since:   0.1.0
  example:
    l3vnis:
    - vxlanPort: 4789
""",
        ),
        (
            "auditIntervalSeconds",
            """\
auditIntervalSeconds  in openperouter.yaml
  How often the kernel and FRR are checked for drift.
  type:    number
  default: 60.0
  limits:  at least 1, at most 86400
  since:   0.1.0
  example:
    auditIntervalSeconds: 60.0
""",
        ),
        (
            "tunnelEndpoint",
            """\
underlays.tunnelEndpoint  in openpe_*.yaml
  VXLAN tunnel endpoints; VNIs need one.
  type:    object
  since:   0.1.0
  keys:
    cidrs  One pool, or one per family.
""",
        ),
    ],
)
def test_a_key_is_explained(key: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", key]) == 0
    assert capsys.readouterr().out == expected


def test_the_end_of_several_paths_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "vni"]) == 0
    assert capsys.readouterr().out == (
        "vni is in several places:\n"
        "  l3vnis.vni: VXLAN network identifier, unique per node.\n"
        "  l2vnis.vni: VXLAN network identifier, unique per node.\n"
    )


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("l3vnis.hostSesion.hostASN", "did you mean l3vnis.hostSession.hostASN"),
        ("vxlanprot", "did you mean l3vnis.vxlanPort"),
        ("qqqqqq", "openperouter explain lists the outermost keys"),
    ],
)
def test_a_mistyped_key_gets_a_suggestion(key: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", key]) == 64
    assert capsys.readouterr().err.startswith(f"openperouter: there is no key {key}: {hint}")


def test_without_a_key_the_outermost_ones_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    shown = capsys.readouterr().out
    assert "underlays (openpe_*.yaml): The fabric side; at most one in all files.\n" in shown
    assert "nodeIndex (node-config.yaml): " in shown
    assert "autoApply (openperouter.yaml): " in shown


@pytest.mark.parametrize(
    ("file", "key"), [(None, "l3vnis"), ("router", "underlays"), ("node", "nodeIndex"), ("settings", "netns")]
)
def test_a_schema_is_one_json_document(file: str | None, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", *([file] if file else [])]) == 0
    assert key in json.loads(capsys.readouterr().out)["properties"]
