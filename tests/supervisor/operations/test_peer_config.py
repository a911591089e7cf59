"""What the host's speaker needs, to the letter, and what is not a session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from config.syntax.frr_grammar import scan
from supervisor.cli import main
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.peer_config import peer_config
from tests.actors.frr.cases import CASES

ORIGIN = "/etc/openperouter/configs/openpe_node.yaml:3:1"


def test_a_plain_session_is_written_for_each_speaker() -> None:
    assert (
        peer_config(CASES["basic"], "red")
        == f"""\
# L3VNI red on node1, configured in {ORIGIN}
# host-e-100: host 172.27.10.2/24, router 172.27.10.1 AS 64514
# allowas-in, allow local as: for the routes of other nodes' hosts, which have AS 64515 too

# FRR
router bgp 64515
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 neighbor 172.27.10.1 remote-as 64514
 address-family ipv4 unicast
  neighbor 172.27.10.1 activate
  neighbor 172.27.10.1 allowas-in 1
 exit-address-family
exit

# BIRD 2
protocol bgp red_ipv4 {{
  local 172.27.10.2 as 64515;
  neighbor 172.27.10.1 as 64514;
  allow local as 1;
  ipv4 {{ import all; export all; }};
}}

# MetalLB
---
apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata:
  name: red-ipv4
  namespace: metallb-system
spec:
  myASN: 64515
  peerASN: 64514
  peerAddress: 172.27.10.1"""
    )


def test_a_guarded_session_has_its_guards_and_never_its_password() -> None:
    text = peer_config(CASES["guarded_host_sessions"], "100")
    assert "# PASSWORD: the one of L3VNI red" in text
    assert " neighbor 172.27.10.1 password PASSWORD\n neighbor 172.27.10.1 ttl-security hops 1\n" in text
    assert '  password "PASSWORD";\n  ttl security on;\n  allow local as 1;\n  ipv6' in text
    assert "# ttlSecurityHops: a BGPPeer of MetalLB has none, and its session stays down\n" in text
    assert "  passwordSecret:\n    name: red-ipv6-password" in text
    assert "s3cret" not in text


def test_a_session_in_a_vrf_of_the_host_names_it_for_each_speaker() -> None:
    [red] = CASES["basic"].l3vnis
    assert red.session is not None
    inside = replace(CASES["basic"], l3vnis=(replace(red, session=replace(red.session, host_vrf=True)),))
    text = peer_config(inside, "red")
    assert "router bgp 64515 vrf host-v-100\n" in text
    assert 'protocol bgp red_ipv4 {\n  vrf "host-v-100";\n' in text
    assert text.endswith("\n  vrf: host-v-100")
    assert "host-v-100" not in peer_config(CASES["basic"], "red")


@pytest.mark.parametrize("name", ["basic", "dual_stack", "guarded_host_sessions", "internal"])
def test_frrs_part_is_read_by_its_grammar(name: str) -> None:
    text = peer_config(CASES[name], "red").partition("# FRR\n")[2].partition("# BIRD")[0]
    lines = list(scan(text))
    assert lines
    assert all(line.context == () or line.context[0].startswith("router bgp ") for line in lines)


def test_an_as_that_the_host_may_choose_is_named() -> None:
    [red] = CASES["basic"].l3vnis
    assert red.session is not None
    chosen = replace(CASES["basic"], l3vnis=(replace(red, session=replace(red.session, remote_as="external")),))
    text = peer_config(chosen, "red")
    assert "# HOST-AS: any AS number but 64514\n" in text
    assert "router bgp HOST-AS\n" in text


def test_the_passthrough_has_a_session_too() -> None:
    assert "# pt-host: host 172.27.10.2/24, router 172.27.10.1 AS 64514" in peer_config(
        CASES["passthrough_dual"], "passthrough"
    )


@pytest.mark.parametrize(
    ("case", "name", "message"),
    [
        ("basic", "blue", "there is no L3VNI blue; sessions with the host: red"),
        ("no_vnis", "passthrough", "there is no L3VNI passthrough; sessions with the host: none"),
        ("l3vni_without_session", "red", "L3VNI red has no hostSession"),
    ],
)
def test_what_has_no_session_is_refused(case: str, name: str, message: str) -> None:
    with pytest.raises(CommandError, match=message) as refused:
        peer_config(CASES[case], name)
    assert refused.value.exit_code == 64


@pytest.mark.parametrize(
    ("words", "message"),
    [(("peer-config",), "give a NAME to peer-config"), (("frr", "red"), "frr takes no NAME")],
)
def test_only_peer_config_takes_a_name(
    tmp_path: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "openperouter.yaml").write_text("")
    assert main(["--settings", str(tmp_path / "openperouter.yaml"), "show", *words]) == 64
    assert capsys.readouterr().err == f"openperouter: {message}\n"
