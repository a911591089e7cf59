"""``ping``, ``trace`` and ``exec``: what they start, and where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli import main
from supervisor.operations.router import inside, path_probe
from supervisor.operations.router.path_probe import Hop, IcmpAnswer
from tests.supervisor.cli.examples import READY


class StartedError(Exception):
    """Stands for the program that replaces this process."""


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Path) -> list[list[str]]:
    """A router with a status, and the command lines that it is entered with."""
    found: list[list[str]] = []
    namespaces = tmp_path / "netns"
    namespaces.mkdir()
    (namespaces / "openperouter-not-there").touch()
    (settings.parent / "run" / "state.json").write_text(READY.to_json())

    def execvp(_program: str, argv: list[str]) -> None:
        found.append(argv)
        raise StartedError

    monkeypatch.setattr(inside, "NAMESPACES", namespaces)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("os.execvp", execvp)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/ping")
    monkeypatch.setattr("sys.excepthook", lambda *_: None)
    return found


IN = ["ip", "netns", "exec", "openperouter-not-there"]


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        (["ping", "192.0.2.1"], ["ping", "-c", "4", "--", "192.0.2.1"]),
        (["ping", "-c", "1", "--vrf", "100", "192.0.2.1"], ["ping", "-c", "1", "-I", "red", "--", "192.0.2.1"]),
        (
            ["ping", "--vrf", "blue", "--source", "192.0.2.9", "host.example"],
            ["ping", "-c", "4", "-I", "red", "-I", "192.0.2.9", "--", "host.example"],
        ),
        (["exec", "ip", "-br", "link"], ["ip", "-br", "link"]),
        (["exec", "--", "ss", "--vrf"], ["ss", "--vrf"]),
        (
            ["exec", "--vrf", "red", "curl", "-s", "http://192.0.2.1"],
            ["ip", "vrf", "exec", "red", "curl", "-s", "http://192.0.2.1"],
        ),
    ],
)
def test_the_command_starts_inside_the_router(
    settings: Path, started: list[list[str]], words: list[str], argv: list[str]
) -> None:
    verb, *others = words
    main([verb, "--settings", str(settings), *others])
    assert started == [[*IN, *argv]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ping", "-c", "0", "192.0.2.1"], "--count must be 1 to 100000"),
        (["ping", "--", "-f"], "-f is not an address"),
        (["ping", "--vrf", "rde", "192.0.2.1"], "there is no VRF or VNI rde in force: did you mean red?"),
        (["exec"], "give a command, such as: openperouter exec -- ip route"),
        (["exec", "--"], "give a command, such as: openperouter exec -- ip route"),
        (["trace", "host.example"], "host.example is not an IPv4 or IPv6 address"),
        (["trace", "-m", "0", "192.0.2.1"], "--hops must be 1 to 255"),
    ],
)
def test_wrong_usage_starts_nothing(
    settings: Path,
    started: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    verb, *others = words
    assert main([verb, "--settings", str(settings), *others]) == 64
    assert capsys.readouterr().err == f"openperouter: {message}\n"
    assert started == []


@pytest.mark.parametrize("words", [["ping", "192.0.2.1"], ["trace", "192.0.2.1"], ["exec", "true"]])
def test_without_the_namespace_each_says_so(
    settings: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    verb, *others = words
    assert main([verb, "--settings", str(settings), *others]) == 69
    assert "/run/netns/openperouter-not-there does not exist" in capsys.readouterr().err


def test_a_vrf_needs_a_status_of_the_daemon(
    settings: Path, started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    (settings.parent / "run" / "state.json").unlink()
    assert main(["ping", "--settings", str(settings), "--vrf", "red", "192.0.2.1"]) == 3
    assert "the daemon is not running" in capsys.readouterr().err
    assert started == []


def test_without_ping_the_package_is_named(
    settings: Path, started: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert main(["ping", "--settings", str(settings), "192.0.2.1"]) == 69
    assert "apt-get install iputils-ping" in capsys.readouterr().err
    assert started == []


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize(("reached", "code"), [(True, 0), (False, 1)])
def test_trace_enters_the_router_and_prints_each_hop(
    settings: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    reached: bool,
    code: int,
) -> None:
    entered: list[Path] = []
    asked: list[tuple[str, str, int]] = []

    def hops(target: object, vrf: str, most: int) -> Iterator[Hop]:
        asked.append((str(target), vrf, most))
        yield Hop(1, (IcmpAnswer("192.0.2.1", 0.001),))
        yield Hop(2, (IcmpAnswer("192.0.2.2", 0.001, final=reached, reached=reached),))

    monkeypatch.setattr("actors.netlink.wire.namespace.enter", entered.append)
    monkeypatch.setattr(path_probe, "hops", hops)
    assert main(["trace", "--settings", str(settings), "--vrf", "100", "192.0.2.2"]) == code
    assert [path.name for path in entered] == ["openperouter-not-there"]
    assert asked == [("192.0.2.2", "red", 30)]
    assert capsys.readouterr().out.splitlines() == [" 1  192.0.2.1  1.000 ms", " 2  192.0.2.2  1.000 ms"]
