"""Route targets that FRR derives stand for each AS, those that are configured for themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.health.route_targets import derived_targets, imports, keys
from config.desired import DesiredRawFRR
from config.problems import Kind, Origin, ResourceId
from tests.actors.health.examples import fabric


@pytest.mark.parametrize(
    ("own", "others", "derived", "imported"),
    [
        ("64514:100", "64514:100", False, True),
        ("64514:100", "64512:100", False, False),
        ("64514:100", "64512:100", True, True),
        ("64514:100", "64514:101", True, False),
        # Other encodings of an administrator: an AS of four bytes, an address.
        ("64514:100", "4200000000:100", True, False),
        ("64514:100", "192.0.2.1:100", True, False),
        ("4200000000:100", "4200000000:100", False, True),
        ("192.0.2.1:100", "192.0.2.1:100", False, True),
        ("65535:16777215", "1:16777215", True, True),
        ("65536:100", "65535:100", True, False),
    ],
)
def test_which_targets_are_imported(own: str, others: str, *, derived: bool, imported: bool) -> None:
    assert bool(imports([own], derived=derived) & set(keys([others]))) is imported


def test_targets_are_derived_where_none_is_configured_and_no_snippet_may_have_some() -> None:
    state = fabric()
    segments = frozenset(vni.vni for vni in state.l2vnis)
    assert segments
    assert derived_targets(state) == segments
    without = replace(state, l3vnis=tuple(replace(vni, import_rts=()) for vni in state.l3vnis))
    assert derived_targets(without) == segments | {100}
    snippet = DesiredRawFRR(ResourceId(Kind.RAW_FRR_CONFIG, "x", "raw", "raw"), Origin(), 0, "route-target import 1:2")
    assert derived_targets(replace(without, raw_frr=(snippet,))) == frozenset()
    assert derived_targets(None) == frozenset()
