"""VXLAN from the passthrough is filtered: our table is made first, repaired and removed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from actors.netlink.actor import outcome_of
from actors.netlink.converge import converge
from actors.netlink.planning.observed import Namespace
from actors.netlink.planning.packet_filter import canonical, filter_objects
from tests.actors.netlink.builders import demo, l2vni, l3vni, lines, node, passthrough, state, without_underlay


def test_the_filter_is_there_before_the_passthrough() -> None:
    two = state(l3vnis=(replace(l3vni(), vxlan_port=4790),), l2vnis=(l2vni(),), passthrough=passthrough())
    found = lines(two, node())
    filtered = found.index("router: filter VXLAN ports 4789 4790 from the passthrough")
    assert filtered < next(number for number, line in enumerate(found) if "create veth pt-host" in line)


def test_who_needs_no_filter() -> None:
    for desired in (state(l3vnis=(l3vni(),)), state(passthrough=passthrough())):
        assert not [line for line in lines(desired, node()) if "filter" in line.replace("rp_filter", "")]


def test_the_table_is_repaired_and_removed_with_the_passthrough() -> None:
    kernel = node()
    assert converge(demo(), kernel).clean
    objects = filter_objects((4789,))
    assert kernel.filter == canonical(objects)
    for changed in ((), canonical(objects[:-1]), canonical([*objects, objects[-1]])):
        kernel.filter = changed
        assert lines(demo(), kernel) == ["router: filter VXLAN ports 4789 from the passthrough"]
        assert converge(demo(), kernel).clean
    assert converge(replace(demo(), passthrough=None), kernel).clean
    assert kernel.filter == ()
    assert converge(demo(), kernel).clean
    assert converge(without_underlay(demo()), kernel).clean
    assert kernel.filter == ()


def test_without_nftables_the_passthrough_is_in_force_and_named() -> None:
    kernel = node()
    kernel.filter_problem = "nft is not installed"
    result = converge(demo(), kernel)
    assert result.clean
    assert (Namespace.HOST, "pt-host") in kernel.links
    outcome = outcome_of(demo(), result)
    (failure,) = (one for one in outcome.failures if one.resource == passthrough().resource)
    assert failure.message.startswith("in force, but VXLAN packets from the host are not filtered: nft is not")


def test_handles_and_the_version_of_nft_do_not_count() -> None:
    objects = filter_objects((4789,))
    listed: list[dict[str, Any]] = [{"metainfo": {"version": "1.0.6"}}]
    listed += [{kind: {**body, "handle": 7} for kind, body in one.items()} for one in objects]
    assert canonical(json.loads(json.dumps(listed))) == canonical(objects)
