"""Remarks on the files' copies in the API that this node did not write, or that have another name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.report.api_status import mirror_remarks
from actors.report.status_builder import build_status
from config.api import SOURCE_LABEL, STATIC_NODE_LABEL, ApiObject, ApiSnapshot
from config.outcomes import NodeIdentity, StaticSnapshot
from config.problems import Kind
from config.sources.mirror_objects import label_value, other_name
from tests.config.samples import l3vni

from .examples import inputs

LABELS = {SOURCE_LABEL: "static", STATIC_NODE_LABEL: "node"}
OLD = ApiObject(Kind.L3VNI, "ns", "static-node-old", labels=LABELS)
RED = replace(l3vni("red", 100), name="static-node-red")
FILES = StaticSnapshot(NodeIdentity("node", 0), (RED,))
COMMAND = "kubectl delete underlays,l3vnis,l2vnis,l3passthroughs,rawfrrconfigs {} -l " + f"{STATIC_NODE_LABEL}=node "


def remarks(*objects: ApiObject, mirrored: tuple[ApiObject, ...] = ()) -> list[str]:
    return list(mirror_remarks(ApiSnapshot(objects=objects, mirrored=mirrored), FILES))


def test_what_an_earlier_installation_left_is_named_with_what_removes_it() -> None:
    [remark] = remarks(OLD)
    assert "not written by this node" in remark
    assert "L3VNI ns/static-node-old." in remark
    assert COMMAND.format("-n ns") in remark


def test_many_are_one_remark() -> None:
    objects = [replace(OLD, name=f"static-node-{number}", namespace=f"ns-{number % 2}") for number in range(9)]
    [remark] = remarks(*objects)
    assert "and 6 more" in remark
    assert COMMAND.format("-A") in remark


@pytest.mark.parametrize(
    "one",
    [
        replace(OLD, labels={}),
        replace(OLD, labels=LABELS | {STATIC_NODE_LABEL: "other"}),
        replace(OLD, namespace=RED.namespace, name=RED.name),
    ],
)
def test_what_is_a_users_or_about_to_be_ours_is_no_remark(one: ApiObject) -> None:
    assert remarks(one) == []


def test_a_long_nodes_label_is_that_of_its_mirrors() -> None:
    files = StaticSnapshot(NodeIdentity("n" * 70, 0), ())
    one = replace(OLD, labels={STATIC_NODE_LABEL: label_value("n" * 70)})
    [remark] = mirror_remarks(ApiSnapshot(objects=(one,)), files)
    assert f"{STATIC_NODE_LABEL}={label_value('n' * 70)} " in remark


def test_a_mirror_under_another_name_is_named() -> None:
    mirror = replace(OLD, name=other_name(RED.name, "node"))
    assert remarks(mirrored=(replace(OLD, name=RED.name), mirror)) == [
        f"L3VNI static-node-red of this node's files has the name {mirror.name} in the API: static-node-red was taken"
    ]


def test_before_the_first_snapshots_there_is_no_remark() -> None:
    assert [list(mirror_remarks(*known)) for known in ((None, FILES), (ApiSnapshot(objects=(OLD,)), None))] == [[], []]


def test_it_is_in_the_status_and_degrades_nothing() -> None:
    status = build_status(replace(inputs(), api=ApiSnapshot(objects=(OLD,)), snapshot=FILES), 2000.0)
    assert [remark for remark in status.remarks if "static-node-old" in remark]
    assert (status.phase, status.ready, status.notes) == ("running", True, ())
