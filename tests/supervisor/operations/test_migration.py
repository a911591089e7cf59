"""Files are rewritten to today's spellings, with everything else in them as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.cli import main
from supervisor.operations.migration import MigrationError, migrated
from tests.config.sources.test_former_spellings import FORMER, TODAY, specs

COMMENTED = """\
apiVersion: openpe.openperouter.github.io/v1alpha1   # ours
# the fabric
underlays:
  - asn: 64514
    nics:          # both links
      - "eth#1"    # left
      # the other one
      - eth2

    # a leaf
    neighbors:
      - asn: 64512   # leaf
        address: 192.168.11.2
        password: hunter2hunter2
        ebgpMultiHop: true  # two hops
l2vnis:
  - vrf: red   # routed
    vni: 110
"""
REWRITTEN = """\
apiVersion: network.openperouter.io/v1alpha1   # ours
# the fabric
underlays:
  - asn: 64514
    # both links
    # left
    # the other one
    interfaces: [{type: NetworkDevice, networkDevice: {interfaceName: eth#1}}, {type: NetworkDevice, networkDevice: {interfaceName: eth2}}]

    # a leaf
    neighbors:
      - asn: 64512   # leaf
        address: 192.168.11.2
        password: hunter2hunter2
        properties: [{type: ebgpMultiHop}]  # two hops
l2vnis:
  - routingDomain: {type: L3VNI, l3vni: {name: red}}   # routed
    vni: 110
"""  # noqa: E501


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "openpe_a.yaml"
    path.write_text(COMMENTED)
    path.chmod(0o640)
    return path


def test_comments_and_everything_else_stay() -> None:
    assert migrated(COMMENTED.encode(), "x") == REWRITTEN
    assert migrated(REWRITTEN.encode(), "x") == REWRITTEN


def test_a_file_means_the_same_afterwards() -> None:
    assert specs(migrated(FORMER.encode(), "x")) == specs(FORMER) == specs(TODAY)


@pytest.mark.parametrize(
    "text",
    [
        "underlays:\n  - {nics: &nics [eth1], asn: 1}\nother: *nics\n",
        "underlays:\n  - &one {nics: [eth1], asn: 1}\n  - {<<: *one, asn: 2}\n",
    ],
)
def test_what_is_used_elsewhere_is_left_alone(text: str) -> None:
    with pytest.raises(MigrationError, match="by hand"):
        migrated(text.encode(), "x")


def test_the_verb_rewrites_files_in_place_and_keeps_their_mode(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = file.with_name("openpe_link.yaml")
    link.symlink_to(file)
    assert main(["migrate", str(link)]) == 0
    shown = capsys.readouterr().out
    assert "-    nics:" in shown
    assert "+        properties: [{type: ebgpMultiHop}]" in shown
    assert "hunter2" not in shown
    assert (link.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (True, REWRITTEN, 0o640)
    assert main(["migrate", str(file)]) == 0
    assert capsys.readouterr().out == ""


def test_check_changes_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--check", str(file)]) == 2
    assert "-    nics:" in capsys.readouterr().out
    assert file.read_text() == COMMENTED


def test_a_file_that_cannot_be_rewritten_does_not_stop_the_others(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = file.with_name("openpe_b.yaml")
    broken.write_text("underlays: [\n")
    assert main(["migrate", str(broken), str(file)]) == 78
    assert str(broken) in capsys.readouterr().err
    assert file.read_text() == REWRITTEN
    assert main(["migrate", os.devnull + "/none"]) != 0
