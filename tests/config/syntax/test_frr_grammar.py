"""Which context a line of FRR text belongs to, whatever its indentation."""

from __future__ import annotations

from config.syntax.frr_grammar import scan, walk


def contexts(text: str) -> list[tuple[tuple[str, ...], str]]:
    return [(line.path, line.text) for line in scan(text)]


def test_lines_belong_to_the_innermost_open_context() -> None:
    text = """\
router bgp 1
 address-family l2vpn evpn
  vni 10
   rd 1.1.1.1:1
  exit-vni
  advertise-all-vni
 exit-address-family
 neighbor 1.1.1.1 remote-as 2
exit
hostname x
"""
    bgp = ("router bgp 1",)
    evpn = (*bgp, "address-family l2vpn evpn")
    assert contexts(text) == [
        (bgp, "router bgp 1"),
        (evpn, "address-family l2vpn evpn"),
        ((*evpn, "vni 10"), "vni 10"),
        ((*evpn, "vni 10"), "rd 1.1.1.1:1"),
        (evpn, "advertise-all-vni"),
        (bgp, "neighbor 1.1.1.1 remote-as 2"),
        ((), "hostname x"),
    ]


def test_a_vni_in_a_vrf_is_a_line_and_not_a_context() -> None:
    assert contexts("vrf red\n vni 100\nexit-vrf\n")[1] == (("vrf red",), "vni 100")


def test_an_opening_without_an_exit_before_it_belongs_to_the_context_that_has_it() -> None:
    assert contexts("route-map a permit 1\n match metric 1\nroute-map b permit 2\nvrf red\n")[2:] == [
        (("route-map b permit 2",), "route-map b permit 2"),
        (("vrf red",), "vrf red"),
    ]
    inner = contexts("router bgp 1\n address-family ipv4 unicast\n address-family ipv6 unicast\n")
    assert inner[-1][0] == ("router bgp 1", "address-family ipv6 unicast")


def test_a_top_level_line_after_an_unclosed_context_is_at_the_top_level() -> None:
    assert contexts("router bgp 1\nip prefix-list a seq 5 permit any\n")[-1][0] == ()


def test_comments_blank_lines_and_closers_are_no_lines_and_spaces_do_not_count() -> None:
    assert contexts("! x\n\n#y\nlog   syslog\terrors \nend\n") == [((), "log syslog errors")]


def depth(text: str) -> int:
    """Return how many contexts are open at the end."""
    return [depth for depth, _ in walk(text)][-1]


def test_lines_that_only_begin_like_an_opener_open_nothing() -> None:
    for text in ("route-map optimization", "segment-routing-x", "router-id 1.1.1.1", "bfdd x", "vrfs"):
        assert depth(text) == 0, text


def test_open_contexts_are_counted() -> None:
    assert depth("router bgp 1\n address-family ipv4 unicast\n") == 2
    assert depth("router bgp 1\n address-family ipv4 unicast\n exit-address-family\n") == 1
    assert depth("router bgp 1\nexit\nexit\n") == 0
