"""``openperouter logs``: which units, options and journal fields journalctl is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.cli import main
from supervisor.cli.verbs.node.logs import matches
from tests.supervisor.cli.examples import READY

UNITS = ["--unit=openperouter.service", "--unit=openperouter-netns.service", "--unit=frr@perouter.service"]


class StartedError(Exception):
    """Stands for the program that replaces this process."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines that are started."""
    found: list[list[str]] = []

    def execvp(_program: str, argv: list[str]) -> None:
        found.append(argv)
        raise StartedError

    monkeypatch.setattr("os.execvp", execvp)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("sys.excepthook", lambda *_: None)
    return found


@pytest.mark.parametrize(
    ("words", "options", "selected"),
    [
        ([], ["--lines=100"], []),
        (["-f", "-n", "0"], ["--lines=0", "--follow"], []),
        (["--since", "yesterday", "-n", "5"], ["--since=yesterday", "--lines=5"], []),
        (["--since=-1h"], ["--since=-1h"], []),
        (["--since", "1h", "-p", "warning", "-x"], ["--since=-1h", "--priority=warning", "--catalog"], []),
        (["--actor", "health"], ["--lines=100"], ["ACTOR=health"]),
    ],
)
def test_journalctl_gets_the_units_and_options(
    settings: Path, started: list[list[str]], words: list[str], options: list[str], selected: list[str]
) -> None:
    main(["logs", "--settings", str(settings), *words])
    assert started == [["journalctl", *options, *UNITS, *selected]]


def test_with_podman_the_pods_units_take_the_place_of_frrs(settings: Path, started: list[list[str]]) -> None:
    settings.write_text(f"{settings.read_text()}runtime: podman\n")
    main(["logs", "--settings", str(settings)])
    units = [f"--unit=openperouter-{name}.service" for name in ("router-pod", "frr", "reloader")]
    assert started == [["journalctl", "--lines=100", *UNITS[:2], *units]]


def test_a_name_selects_by_the_fields_of_any_sort_of_thing(settings: Path, started: list[list[str]]) -> None:
    main(["logs", "--settings", str(settings), "192.0.2.1", "--actor", "health"])
    [argv] = started
    selected = " ".join(argv[argv.index(UNITS[-1]) + 1 :]).split(" + ")
    assert "PEER=192.0.2.1 ACTOR=health" in selected
    assert "NAME=192.0.2.1 ACTOR=health" in selected


def test_the_status_knows_a_vnis_other_names(settings: Path, started: list[list[str]]) -> None:
    (settings.parent / "run" / "state.json").write_text(READY.to_json())
    main(["logs", "--settings", str(settings), "100"])
    [argv] = started
    assert {"RESOURCE=L3VNI red", "NAME=red", "VRF=red", "VNI=100"} <= set(argv)


def test_a_segment_does_not_bring_the_lines_of_its_vrf() -> None:
    found = matches("blue", READY)
    assert {"RESOURCE=L2VNI ns/blue", "NAME=ns/blue", "VNI=110"} <= set(found)
    assert "VRF=red" not in found
    assert len(found) == len(set(found))


def test_without_a_status_the_name_alone_has_to_do() -> None:
    assert "VNI=100" in matches("100", None)
    assert "VNI=red" not in matches("red", None)
    assert "RESOURCE=L3VNI red" in matches("red", None)


@pytest.mark.parametrize("words", [["-n", "-1"]])
def test_wrong_usage_starts_nothing(settings: Path, started: list[list[str]], words: list[str]) -> None:
    assert main(["logs", "--settings", str(settings), *words]) == 64
    assert started == []


def test_without_systemd_it_says_so(
    settings: Path, started: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert main(["logs", "--settings", str(settings)]) == 69
    assert "there is no journalctl" in capsys.readouterr().err
    assert started == []
