"""``openperouter init``: from options or answers to files that are valid, planned against a kernel, and tried."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import actors.netlink.preview
from actors.netlink.planning.observed import Link, Namespace
from config.settings import Settings
from supervisor.cli import main
from supervisor.cli.verbs.files import init as init_verb
from supervisor.cli.verbs.files import try_
from supervisor.cli.verbs.files.init import Nic, Questions, nics_with_carrier
from supervisor.operations import lldp
from supervisor.operations.lldp import LldpNeighbor
from tests.fakes.kernel import FakeKernel
from tests.supervisor.cli.examples import write_settings

CHECKOUT = Path(__file__).parents[5]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with nothing but settings, an FRR without configuration, and a kernel with a NIC."""
    monkeypatch.setenv("NO_COLOR", "1")
    settings = write_settings(tmp_path)
    (tmp_path / "node-config.yaml").unlink()
    vtysh = tmp_path / "no-vtysh"
    vtysh.write_text("#!/bin/sh\necho 'frr version 10.3'\n")
    vtysh.chmod(0o755)
    kernel = FakeKernel()
    kernel.add(Namespace.HOST, Link(0, "eth1", up=True))

    async def with_kernel(_settings: Settings, function: Callable[[Any], Any]) -> Any:
        return function(kernel)

    monkeypatch.setattr(actors.netlink.preview, "_with_kernel", with_kernel)
    return settings


def init(settings: Path, *words: object) -> int:
    return main(["--settings", str(settings), "init", *map(str, words)])


def staged(settings: Path) -> Path:
    return settings.parent / "staged"


NO_NETWORK = "is not a network, such as 192.0.2.0/24 or 2001:db8::/64"
UNASKED = " (without a terminal nothing can be asked); nothing is written"
ALL = ("--nic", "eth1", "--asn", "64514", "--unnumbered", "--index", "3", "--tenant", "red:100")


def test_options_become_files_that_are_valid_and_planned(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(node, *ALL, "--tenant-pool", "192.168.100.0/24", staged(node)) == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if "error" in line or "warning" in line] == []
    assert "+ router bgp 64514 / neighbor eth1 interface remote-as external" in shown
    assert "NIC eth1: moves into the router" in shown
    assert "router: create vrf red" in shown
    assert shown.endswith(f"nothing is in force yet; next: openperouter try {staged(node)}\n")
    assert yaml.safe_load((staged(node) / "openpe_underlay.yaml").read_text()) == {
        "underlays": [
            {
                "asn": 64514,
                "interfaces": [{"type": "NetworkDevice", "networkDevice": {"interfaceName": "eth1"}}],
                "neighbors": [{"type": "External", "interface": "eth1"}],
                "tunnelEndpoint": {"cidrs": ["100.65.0.0/16"]},
            }
        ]
    }
    assert yaml.safe_load((staged(node) / "openpe_red.yaml").read_text()) == {
        "l3vnis": [
            {
                "name": "red",
                "vrf": "red",
                "vni": 100,
                "hostSession": {"asn": 64514, "hostASN": 64515, "localCIDR": {"ipv4": "192.168.100.0/24"}},
            }
        ]
    }
    assert yaml.safe_load((node.parent / "node-config.yaml").read_text()) == {"nodeIndex": {"index": 3}}
    assert list((node.parent / "configs").iterdir()) == []


def test_quiet_writes_and_prints_errors_only(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(node, *ALL, "-q", staged(node)) == 0
    assert capsys.readouterr() == ("", "")
    assert (staged(node) / "openpe_red.yaml").exists()
    (node.parent / "node-config.yaml").unlink()
    assert init(node, *ALL, "--quiet", "--pool", "224.0.0.0/24", node.parent / "other") == 78
    [line] = capsys.readouterr().out.splitlines()
    assert ": error: " in line


def test_numbered_neighbours_have_their_as(node: Path) -> None:
    words = ("--nic", "eth1", "--asn", "64514", "--neighbor", "192.0.2.1", "--neighbor", "192.0.2.3")
    assert init(node, *words, "--neighbor-asn", "64512", "--index", "0", staged(node)) == 0
    [underlay] = yaml.safe_load((staged(node) / "openpe_underlay.yaml").read_text())["underlays"]
    assert underlay["neighbors"] == [
        {"asn": 64512, "address": "192.0.2.1"},
        {"asn": 64512, "address": "192.0.2.3"},
    ]
    assert [path.name for path in staged(node).iterdir()] == ["openpe_underlay.yaml"]


def test_what_the_models_refuse_is_reported_with_its_place(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(node, *ALL, "--pool", "224.0.0.0/24", staged(node)) == 78
    shown = capsys.readouterr().out
    assert f"{staged(node)}/openpe_underlay.yaml:" in shown
    assert shown.endswith(
        f"not planned: the configuration has errors\n\ncorrect the files, then: openperouter try {staged(node)}\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            (),
            "give --nic, --asn, --index, --neighbor or --unnumbered" + UNASKED,
        ),
        (
            ("--nic", "eth1", "--asn", "1", "--unnumbered"),
            "give --index" + UNASKED,
        ),
        ((*ALL[:-1], "red"), "--tenant: red: a tenant is NAME:VNI, such as red:100"),
        (
            (*ALL[:-1], "underlay:100"),
            "--tenant: underlay:100: openpe_underlay.yaml is the underlay's file; take another name, such as red:100",
        ),
        ((*ALL[:-1], "../x:1"), "--tenant: ../x:1: a tenant is NAME:VNI, such as red:100"),
        ((*ALL, "--pool", "192.0.2.0"), f"--pool: 192.0.2.0 {NO_NETWORK}"),
        ((*ALL, "--tenant-pool", "red"), f"--tenant-pool: red {NO_NETWORK}"),
        (
            ("--nic", "eth1", "--asn", "1", "--neighbor", "leaf1"),
            "--neighbor: leaf1 is not an address, such as 192.0.2.1 or 2001:db8::1",
        ),
    ],
)
def test_what_is_missing_or_wrong_is_named_and_nothing_is_written(
    node: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(node, *words, staged(node)) == 64
    assert capsys.readouterr().err == f"openperouter: {message}\n"
    assert not staged(node).exists()
    assert not (node.parent / "node-config.yaml").exists()


def test_a_configured_router_is_left_alone(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = node.parent / "configs" / "openpe_a.yaml"
    there.write_text("")
    assert init(node, *ALL, staged(node)) == 64
    assert f"{there} configures the router already" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["configs", "state"])
def test_the_watched_directory_and_one_with_files_are_refused(node: Path, where: str) -> None:
    (node.parent / "state" / "file").write_text("")
    assert init(node, *ALL, node.parent / where) == 64


def test_a_node_configuration_that_is_there_stays(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (node.parent / "node-config.yaml").write_text("nodeIndex: {index: 7}\n")
    assert init(node, *ALL, staged(node)) == 64
    assert "exists: --index would not change it" in capsys.readouterr().err
    words = [word for word in ALL if word not in ("--index", "3")]
    assert init(node, *words, staged(node)) == 0
    assert "100.65.0.7/32" in capsys.readouterr().out


def test_with_try_the_files_are_tried(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    def try_files(_settings: Settings, _file: Path, paths: list[Path]) -> int:
        tried.extend(paths)
        return 1

    monkeypatch.setattr(try_, "try_files", try_files)
    assert init(node, *ALL, "--try", staged(node)) == 1
    assert tried == [staged(node)]


def test_only_interfaces_with_a_link_are_offered(tmp_path: Path) -> None:
    for name, carrier in (("eth0", "1"), ("eth1", "1"), ("eth2", "0"), ("lo", "1"), ("host-e-100", "1"), ("br0", "1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "carrier").write_text(f"{carrier}\n")
    (tmp_path / "down").mkdir()
    (tmp_path / "br0" / "bridge").mkdir()
    routes = tmp_path.with_name("route")
    routes.write_text("Iface\tDestination\tGateway\neth0\t00000000\t0102A8C0\neth1\t0002A8C0\t00000000\n")
    found = nics_with_carrier(tmp_path, routes)
    assert found == [Nic("eth0", default_route=True), Nic("eth1")]
    assert str(found[0]) == "eth0 (has the host's default route: your connection may need it)"


def test_a_wrong_number_is_asked_for_again(capsys: pytest.CaptureFixture[str]) -> None:
    answers: Iterator[str] = iter(["", "AS1", "64514"])
    questions = Questions(on_terminal=True, ask=lambda _: next(answers))
    assert questions.number(None, "--asn", "AS") == 64514
    assert "'AS1' is not a whole number" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "wrong", "usable"),
    [
        ("pool", "0", "100.65.0.0/16"),
        ("neighbor", "192.0.2.1 leaf", "192.0.2.1 192.0.2.3"),
        ("tenant", "red", "red:100"),
        ("tenant", "underlay:100", "Underlay2:100"),
    ],
)
def test_an_answer_that_cannot_be_used_is_asked_for_again(
    option: str, wrong: str, usable: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: Iterator[str] = iter([wrong, usable])
    questions = Questions(on_terminal=True, ask=lambda _: next(answers))
    check = {
        "pool": init_verb._wrong_network,
        "neighbor": init_verb._wrong_addresses,
        "tenant": init_verb._wrong_tenant,
    }
    assert questions.answer(None, f"--{option}", "what", None, check[option]) == usable
    assert "such as" in capsys.readouterr().out


def test_on_a_terminal_it_asks(node: Path) -> None:
    """A process of its own with a terminal, where neither kernel nor FRR can be asked: the files are written anyway."""
    (node.parent / "no-vtysh").unlink()
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "supervisor", "--settings", str(node), "init", str(staged(node))]
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, cwd=CHECKOUT) as process:
        os.close(follower)
        read = b""
        for question, answer in (
            (b"NICs to the fabric", b"eth1"),
            (b"AS number", b"64514"),
            (b"Address of the leaf", b""),
            (b"Pool of tunnel endpoints", b"0"),
            (b"Pool of tunnel endpoints", b""),
            (b"index", b"3"),
            (b"First tenant", b"red:100"),
            (b"session with the host", b""),
        ):
            seen = b""
            while question not in seen or not seen.endswith(b": "):
                seen += os.read(leader, 1024)
            read += seen
            os.write(leader, answer + b"\n")
        assert process.wait(60) == 69
    os.close(leader)
    assert b"NICs with a carrier" in read or b"no NIC has a carrier" in read
    assert sorted(path.name for path in staged(node).iterdir()) == ["openpe_red.yaml", "openpe_underlay.yaml"]


def test_options_win_over_questions() -> None:
    questions = Questions(on_terminal=True, ask=pytest.fail)
    assert questions.number(5, "--index", "index") == 5


def test_a_negative_index_is_refused_by_its_model(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in ALL if word not in ("--index", "3")]
    assert init(node, *words, "--index", "-1", staged(node)) == 78
    assert "node-config.yaml:2:10: error: nodeIndex.index: must be at least 0" in capsys.readouterr().out


def test_on_a_terminal_the_switch_at_each_nic_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = [LldpNeighbor(name, "leaf-1", f"swp{name[-1]}", ("192.0.2.1",)) for name in ("eth0", "eth1", "eth9")]
    nics = [Nic("eth0", default_route=True), Nic("eth1"), Nic("eth2")]
    monkeypatch.setattr(lldp, "neighbors", lambda: known)
    monkeypatch.setattr(init_verb, "nics_with_carrier", lambda: nics)
    asked: list[str] = []

    def take_the_default(question: str) -> str:
        asked.append(question)
        return ""

    # One that the host needs is not proposed.
    assert init_verb._choose_nics(Questions(on_terminal=True, ask=take_the_default)) == ["eth1"]
    assert asked == ["NICs to the fabric, which move into the router [eth1]: "]
    assert capsys.readouterr().out.splitlines() == [
        "NICs with a carrier:",
        "  eth0 (has the host's default route: your connection may need it), to leaf-1 port swp0, 192.0.2.1 (LLDP)",
        "  eth1, to leaf-1 port swp1, 192.0.2.1 (LLDP)",
        "  eth2",
    ]


def test_elsewhere_no_nic_is_taken_from_lldp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lldp, "neighbors", lambda: [LldpNeighbor("eth1")])
    monkeypatch.setattr(init_verb, "nics_with_carrier", lambda: [Nic("eth1")])
    questions = Questions(on_terminal=False)
    assert init_verb._choose_nics(questions) == []
    assert questions.missing == ["--nic"]
