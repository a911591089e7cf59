"""At most one passthrough a node."""

from __future__ import annotations

from config.problems import Kind

from ..samples import in_force, l3vni, messages_about, passthrough, solve, underlay, unusable


def test_of_two_passthroughs_the_first_by_name_is_used_and_both_have_a_message() -> None:
    resolution = solve(underlay(), passthrough("b"), passthrough("a", ipv4="10.9.0.0/24"), l3vni("red", 1))
    assert in_force(resolution) == {"red", "a"}
    refused = "only one passthrough per node, and L3Passthrough a (f.yaml:1:1) is used"
    assert messages_about(resolution, "b") == refused
    assert (
        messages_about(resolution, "a")
        == f"L3Passthrough b (f.yaml:1:1) conflicts with this one and is ignored: {refused}"
    )


def test_a_passthrough_that_cannot_be_used_blocks_no_other() -> None:
    resolution = solve(underlay(), passthrough("a", ipv4="10.0.0.0/31"), passthrough("b"))
    assert in_force(resolution) == {"b"}
    assert "10.0.0.0/31 is too small for any node" in messages_about(resolution, "a")


def test_an_invalid_passthrough_does_not_count_as_a_second_one() -> None:
    assert in_force(solve(underlay(), passthrough("a"), unusable(Kind.L3PASSTHROUGH))) == {"a"}


def test_a_passthrough_runs_in_the_underlays_instance() -> None:
    resolution = solve(underlay(asn=65000), passthrough(asn=64514, hostASN=64514))
    assert resolution.desired is not None
    assert resolution.desired.passthrough is not None
    session = resolution.desired.passthrough.session
    assert (session.asn, session.remote_as, session.ebgp) == (65000, 64514, True)
    assert "whose AS is 65000" in messages_about(resolution, "pass")


def test_a_passthrough_with_the_underlays_as_has_no_warning() -> None:
    assert solve(underlay(asn=64514), passthrough(asn=64514)).problems == ()
