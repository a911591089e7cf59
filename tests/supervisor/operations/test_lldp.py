"""LLDP neighbours: lldpd's own answer, answers that are none, and machines without lldpd."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supervisor.operations import lldp
from supervisor.operations.lldp import LldpNeighbor, neighbors, parse

#: lldpd 1.0.16 with two links to another lldpd, as ``lldpcli -f json0 show neighbors`` printed it.
CAPTURED = (Path(__file__).parents[1] / "cli" / "golden" / "lldpcli.json").read_text()
LEAF = [
    LldpNeighbor("eth1", "leaf-1", "swp1", ("192.168.11.2",)),
    LldpNeighbor("eth2", "leaf-1", "swp2", ("192.168.11.2",)),
]


def test_a_neighbour_is_its_system_its_port_and_its_addresses() -> None:
    assert parse(CAPTURED) == LEAF
    assert str(LEAF[0]) == "leaf-1 port swp1, 192.168.11.2"
    assert str(LldpNeighbor("eth1")) == "unnamed"


def test_no_neighbour_is_an_object_without_any() -> None:
    assert parse('{"lldp": [{}]}') == []


@pytest.mark.parametrize(
    "text",
    ["", "[]", "not json", "null", '{"lldp": {}}', '{"lldp": [{"interface": [{}, 3, {"name": 7}]}]}', '{"lldp": [3]}'],
)
def test_what_is_no_answer_has_no_neighbour(text: str) -> None:
    assert parse(text) == []


def test_what_is_missing_or_cannot_be_printed_is_left_out() -> None:
    port = {"id": [{"type": "mac", "value": "02:00:00:00:00:01"}]}
    chassis = {"name": [{"value": "x\u001b[31m"}], "mgmt-ip": [{"value": "fe80::1"}, {"value": "nonsense"}]}
    document = {"lldp": [{"interface": [{"name": "eth1", "chassis": [chassis], "port": [port]}]}]}
    assert parse(json.dumps(document)) == [LldpNeighbor("eth1", "", "02:00:00:00:00:01")]


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = tmp_path / "lldpcli"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(lldp, "COMMAND", (str(path), "-f", "json0", "show", "neighbors"))


def test_lldpd_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answer").write_text(CAPTURED)
    program(tmp_path, monkeypatch, f'[ "$*" = "-f json0 show neighbors" ] && cat {tmp_path}/answer')
    assert neighbors() == LEAF


@pytest.mark.parametrize(
    "script", ["echo '[WARN] unable to connect to socket' >&2; exit 1", "exec sleep 60", "printf '\\377'"]
)
def test_an_lldpd_that_does_not_answer_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(lldp, "SECONDS", 0.2 if "sleep" in script else 30.0)
    program(tmp_path, monkeypatch, script)
    assert neighbors() == []


def test_without_lldpd_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lldp, "COMMAND", ("/no-such-lldpcli",))
    assert neighbors() == []
