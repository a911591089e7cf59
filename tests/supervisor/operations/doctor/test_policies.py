"""What the doctor concludes from the API server's answers; tests/cluster/test_node_isolation.py asks real ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from config.settings import Settings
from supervisor.operations.doctor import Level, judge
from supervisor.operations.doctor.policies import Policies, read_policies
from tests.actors.lib.kube.kubeconfigs import base64_of, kubeconfig, program
from tests.supervisor.operations.doctor.healthy_machine import HEALTHY


@pytest.mark.parametrize(
    ("refused", "level", "message"),
    [
        ({"Nodes": True, "Events": True}, Level.OK, "refuses writes to other nodes' objects: Events, Nodes"),
        (
            {"Nodes": True, "Events": False},
            Level.ERROR,
            "accepts writes to other nodes' objects with this node's token: Events",
        ),
    ],
)
def test_one_write_that_is_accepted_is_an_error(refused: Mapping[str, bool], level: Level, message: str) -> None:
    found = [one for one in judge(replace(HEALTHY, policies=Policies(refused))) if one.topic == "policies"]
    assert [one.level for one in found] == [level]
    assert message in found[0].message
    assert bool(found[0].fix) is (level is Level.ERROR)


def test_a_token_that_is_too_wide_is_a_warning() -> None:
    policies = Policies({"Nodes": True}, ("read all Secrets of the cluster", "create Pods"))
    found = [one for one in judge(replace(HEALTHY, policies=policies)) if one.topic == "policies"]
    assert [one.level for one in found] == [Level.OK, Level.WARNING]
    assert "what no node needs: read all Secrets of the cluster, create Pods" in found[1].message
    assert found[1].fix


def test_without_an_answer_there_is_nothing_to_report() -> None:
    assert not [one for one in judge(replace(HEALTHY, policies=Policies())) if one.topic == "policies"]


async def test_nothing_is_asked_without_credentials_or_with_a_programs(tmp_path: Path) -> None:
    settings = Settings(credentials_dir=tmp_path, kubeconfig_programs=True, kubeconfig_without_authority=True)
    assert await read_policies(settings) == Policies()
    write(tmp_path, f"touch {tmp_path / 'ran'}")
    assert await read_policies(settings) == Policies()
    assert not (tmp_path / "ran").exists()


def write(directory: Path, body: str) -> None:
    (directory / "kubeconfig").write_text(kubeconfig(program(directory, body)))


async def test_a_server_that_does_not_answer_is_nothing_to_report(tmp_path: Path) -> None:
    cluster = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    put(tmp_path, kubeconfig({"token": base64_of("x")}, cluster))
    assert await read_policies(Settings(credentials_dir=tmp_path)) == Policies()


def put(directory: Path, text: str) -> None:
    (directory / "kubeconfig").write_text(text)
