"""One router configuration file: what refuses the file, what refuses an entry."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.desired import Family, Secret
from config.models import L2Vni, L3Passthrough, L3Vni, RawFrrConfig, Underlay
from config.problems import Kind, Problem, Reason, Severity
from config.resources import Resource, Unusable
from config.sources.router_file import FileContent, parse_router_file

from ..samples import RED_FILE, UNDERLAY_FILE

PATH = Path("/etc/c/openpe_a.yaml")
PASSTHROUGH = (
    "bgppassthrough:\n  hostSession: {asn: %s, hostASN: 2, localCIDR: {ipv4: 192.0.2.0/24, ipv6: '2001:db8::/64'}}\n"
)


def parse(text: str, path: Path = PATH, mode: int = 0o600) -> FileContent:
    return parse_router_file(text.encode(), path, "node", mode=mode)


def resources_of(content: FileContent) -> tuple[Resource, ...]:
    return tuple(entry.resource for entry in content.entries)


def problems_of(content: FileContent) -> list[Problem]:
    return [*content.problems, *(problem for entry in content.entries for problem in entry.problems)]


def messages(content: FileContent) -> list[str]:
    return [str(problem).removeprefix(f"{content.path}:") for problem in problems_of(content)]


def test_defaults_are_applied_and_explicit_values_kept() -> None:
    content = parse(UNDERLAY_FILE + RED_FILE + "  - {name: b, vrf: blue, vni: 2, vxlanPort: 4790}\n")
    assert messages(content) == []
    fabric, red, blue = (resource.spec for resource in resources_of(content))
    assert isinstance(fabric, Underlay)
    assert isinstance(red, L3Vni)
    assert isinstance(blue, L3Vni)
    assert (fabric.router_id_cidr, red.vxlan_port, blue.vxlan_port) == ("10.0.0.0/24", 4789, 4790)
    assert [resource.name for resource in resources_of(content)] == [
        "static-node-underlay-0", "static-node-red", "static-node-b",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "# nothing\n", "underlays:\n", "l3vnis: []\nbgppassthrough: {}\nl3vpns:\n"])
def test_an_empty_file_is_good_and_has_nothing(text: str) -> None:
    content = parse(text)
    assert (content.usable, content.entries, content.problems) == (True, (), ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "error:"),
        ("- x\n", "1:1: error: must be a mapping: entries are below a key, such as underlays:"),
        ("l3vnis: []\nl2vniz: []\n", "2:1: error: l2vniz: unknown key; did you mean 'l2vnis'?"),
        ("l3vnis: 5\n", "1:9: error: l3vnis: must be a list"),
        ("l3vnis: {vrf: red}\n", "1:9: error: l3vnis: must be a list"),
        ("bgppassthrough: []\n", "1:17: error: bgppassthrough: must be a mapping"),
        ("l3vnis: []\nL3VNIs: []\n", "2:1: error: L3VNIs: given twice: also as 'l3vnis'"),
    ],
)
def test_a_doubtful_file_is_refused_as_a_whole(text: str, message: str) -> None:
    content = parse(text)
    assert not content.usable
    assert content.entries == ()
    assert message in "\n".join(messages(content))


def test_a_wrong_entry_refuses_only_itself_and_stays_visible() -> None:
    content = parse("l3vnis:\n  - {vrf: red, vni: 1}\n  - {vrf: blue, vni: 0, colour: blue}\n  - 7\n")
    assert content.usable
    assert [type(resource.spec) for resource in resources_of(content)] == [L3Vni, Unusable, Unusable]
    assert messages(content) == [
        "3:22: error: L3VNI blue: l3vnis[1].vni: must be at least 1",
        "3:25: error: L3VNI blue: l3vnis[1].colour: unknown key; known keys: allowedNamespaces, exportRTs, "
        "hostSession, importRTs, name, nodeSelector, underlayAddressFamily, vni, vrf, vxlanPort",
        "4:5: error: L3VNI l3vni-2: l3vnis[2]: must be a mapping (key: value)",
    ]


def test_a_wrong_underlay_says_what_stays() -> None:
    content = parse(UNDERLAY_FILE.replace("64514", "0"))
    assert isinstance(resources_of(content)[0].spec, Unusable)
    assert messages(content) == [
        "2:10: error: Underlay underlay-0: underlays[0].asn: must be at least 1 (the running configuration is kept)"
    ]


def test_top_level_keys_in_another_case_work_with_a_warning() -> None:
    content = parse("L3VNIs:\n  - {VRF: red, VNI: 1}\n")
    assert [resource.name for resource in resources_of(content)] == ["static-node-red"]
    assert {problem.severity for problem in problems_of(content)} == {Severity.WARNING}
    assert {problem.field for problem in problems_of(content)} == {"L3VNIs", "L3VNIs[0].VRF", "L3VNIs[0].VNI"}


def test_a_reference_stays_as_written_since_it_may_mean_an_object_of_the_api() -> None:
    (l2,) = resources_of(parse("l2vnis:\n  - {vni: 1, routingDomain: {type: L3VNI, l3vni: {name: Red_1}}}\n"))
    assert isinstance(l2.spec, L2Vni)
    assert l2.spec.routing_domain is not None
    assert l2.spec.routing_domain.l3vni is not None
    assert l2.spec.routing_domain.l3vni.name == "Red_1"


def test_a_passthrough_is_there_when_its_as_is() -> None:
    content = parse(PASSTHROUGH % 1)
    assert isinstance(resources_of(content)[0].spec, L3Passthrough)
    assert resources_of(content)[0].name == "static-node-l3passthrough"
    assert resources_of(parse("bgpPassthrough: {}\n")) == ()


def test_a_passthrough_with_as_zero_is_none_and_says_so() -> None:
    content = parse(PASSTHROUGH % 0)
    assert resources_of(content) == ()
    assert messages(content) == ["1:1: warning: bgppassthrough: ignored, because hostSession.asn is 0"]


def test_an_invalid_passthrough_still_shows_its_families() -> None:
    spec = resources_of(parse(PASSTHROUGH % "x"))[0].spec
    assert spec == Unusable(frozenset(Family))
    assert resources_of(parse("bgppassthrough: {hostSession: 3}\n"))[0].spec == Unusable()


def test_raw_snippets_are_numbered() -> None:
    content = parse("rawfrrconfigs:\n  - {rawConfig: a}\n  - {rawConfig: b, priority: 3}\n")
    assert [(one.name, one.spec.priority) for one in resources_of(content) if isinstance(one.spec, RawFrrConfig)] == [
        ("static-node-rawfrrconfig-0", 0),
        ("static-node-rawfrrconfig-1", 3),
    ]


def test_l3vpns_are_refused_without_hurting_the_rest() -> None:
    content = parse(RED_FILE + "l3vpns:\n  - {vrf: x}\n")
    assert [resource.kind for resource in resources_of(content)] == [Kind.L3VNI]
    assert [problem.reason for problem in content.problems] == [Reason.VALIDATION_FAILED]
    assert "L3VPNs are not supported yet in this version (the rest of the file is in force)" in messages(content)[0]


def test_a_node_selector_in_a_file_is_without_effect_and_says_so() -> None:
    content = parse("l3vnis:\n  - {vrf: red, vni: 1, nodeSelector: {matchLabels: {a: b}}}\n")
    assert resources_of(content)[0].spec.node_selector is None
    assert "has no effect in a file" in messages(content)[0]


def with_secret(tmp_path: Path, content: str | None) -> FileContent:
    if content is not None:
        (tmp_path / "secrets").mkdir()
        (tmp_path / "secrets" / "fabric").write_text(content)
        (tmp_path / "secrets" / "fabric").chmod(0o600)
    text = UNDERLAY_FILE.replace("address: 192.168.11.2", "address: 192.168.11.2\n        passwordSecret: fabric")
    return parse(text, tmp_path / "openpe_a.yaml")


def test_a_password_file_beside_the_configuration_is_read(tmp_path: Path) -> None:
    content = with_secret(tmp_path, "s3cret\n")
    assert messages(content) == []
    assert resources_of(content)[0].spec.neighbors[0].password == Secret("s3cret")
    assert "s3cret" not in repr(content)


@pytest.mark.parametrize(
    ("written", "file_name"), [("{name: fabric}", "fabric"), ("{name: fabric, key: tor-1}", "fabric.tor-1")]
)
def test_a_password_file_may_be_named_like_a_secret(tmp_path: Path, written: str, file_name: str) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / file_name).write_text("s3cret")
    (tmp_path / "secrets" / file_name).chmod(0o600)
    text = UNDERLAY_FILE.replace("address: 192.168.11.2", f"address: 192.168.11.2\n        passwordSecret: {written}")
    content = parse(text, tmp_path / "openpe_a.yaml")
    assert messages(content) == []
    assert resources_of(content)[0].spec.neighbors[0].password == Secret("s3cret")


@pytest.mark.parametrize("text", [None, "s3 cret"])
def test_an_underlay_without_its_password_is_unusable(tmp_path: Path, text: str | None) -> None:
    content = with_secret(tmp_path, text)
    assert isinstance(resources_of(content)[0].spec, Unusable)
    assert "10:25: error: Underlay underlay-0: underlays[0].neighbors[0].passwordSecret:" in messages(content)[0]
    assert "s3" not in repr(content).replace(str(tmp_path), "")


HOST_FILE = """\
l3vnis:
  - vrf: red
    vni: 100
    hostSession: {asn: 1, hostASN: 2, passwordSecret: host, localCIDR: {ipv4: 192.0.2.0/24}}
bgppassthrough:
  hostSession: {asn: 1, hostASN: 2, passwordSecret: host, localCIDR: {ipv4: 198.51.100.0/24}}
"""


def test_host_sessions_have_passwords_in_files_too(tmp_path: Path) -> None:
    lacking = parse(HOST_FILE, tmp_path / "openpe_a.yaml")
    assert [one.spec for one in resources_of(lacking)] == [Unusable(), Unusable(frozenset({Family.IPV4}))]
    assert [message.count("hostSession.passwordSecret: ") for message in messages(lacking)] == [1, 1]
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "host").write_text("s3cret\n")
    (tmp_path / "secrets" / "host").chmod(0o600)
    content = parse(HOST_FILE, tmp_path / "openpe_a.yaml")
    assert messages(content) == []
    assert [one.spec.host_session.password for one in resources_of(content)] == [Secret("s3cret")] * 2
    assert "s3cret" not in repr(content)


def test_a_password_in_a_file_that_others_can_read_has_a_warning() -> None:
    text = UNDERLAY_FILE.replace("address: 192.168.11.2", "address: 192.168.11.2\n        password: s3cret")
    assert messages(parse(text, mode=0o600)) == []
    (warning,) = messages(parse(text, mode=0o644))
    assert "warning" in warning
    assert "s3cret" not in warning


_KEYS = st.sampled_from(
    ["underlays", "l3vnis", "l2vnis", "bgppassthrough", "rawfrrconfigs", "l3vpns", "name", "vrf", "vni", "VNI", "asn",
     "hostSession", "localCIDR", "neighbors", "interfaces", "routingDomain", "gatewayIPs", "nodeSelector", "x"]
)  # fmt: skip
_VALUES = st.recursive(
    st.sampled_from(["~", "1", "'1'", "true", "red", "10.0.0.0/24", "64514:1", "[]", "{}", "-1", "1.5", "'!'"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(_KEYS, inner, max_size=4).map(
            lambda items: "{" + ", ".join(f"{key}: {value}" for key, value in items.items()) + "}"
        ),
    ),
    max_leaves=12,
)


@given(st.dictionaries(_KEYS, _VALUES, max_size=3))
def test_no_content_crashes_the_parser_and_every_problem_has_a_position(sections: dict[str, str]) -> None:
    content = parse("\n".join(f"{key}: {value}" for key, value in sections.items()))
    assert all(problem.origin.line > 0 and problem.origin.column > 0 for problem in problems_of(content))
    refused = [resource for resource in resources_of(content) if isinstance(resource.spec, Unusable)]
    reported = {problem.resource for problem in problems_of(content) if problem.severity is Severity.ERROR}
    assert all(resource.id in reported for resource in refused)


@pytest.mark.parametrize(
    "line",
    ["apiVersion: network.openperouter.io/v1alpha1", "version: v1alpha1", "apiVersion: null", "APIVERSION: v1alpha1"],
)
def test_a_file_may_name_its_schema(line: str) -> None:
    content = parse(f"{line}\n{UNDERLAY_FILE}")
    assert content.usable
    assert len(resources_of(content)) == len(resources_of(parse(UNDERLAY_FILE)))


def test_the_schemas_former_name_is_accepted_with_a_warning() -> None:
    content = parse(f"apiVersion: openpe.openperouter.github.io/v1alpha1\n{UNDERLAY_FILE}")
    assert content.usable
    assert (
        "1:13: warning: apiVersion: not used any more: write network.openperouter.io/v1alpha1" in messages(content)[0]
    )


def test_another_schema_is_refused() -> None:
    content = parse(f"version: v2\n{UNDERLAY_FILE}")
    assert not content.usable
    assert "error: version: must be network.openperouter.io/v1alpha1" in messages(content)[0]


def test_a_feature_of_a_later_version_is_refused_by_name_and_the_rest_of_the_underlay_counts() -> None:
    text = UNDERLAY_FILE.replace("  - asn: 64514\n", "  - asn: 64514\n    ISIS: {level: 1}\n    srv6: null\n", 1)
    assert text != UNDERLAY_FILE
    content = parse(text)
    assert resources_of(content)[0].spec == resources_of(parse(UNDERLAY_FILE))[0].spec
    (message,) = messages(content)
    assert "error: Underlay underlay-0: underlays[0].ISIS: not supported yet in this version" in message
    assert "the rest of the Underlay is in force" in message


@pytest.mark.parametrize(
    ("gateway", "warned"),
    [
        ("10.1.1.0/24", True),
        ("10.1.1.0/30", True),
        ("fd00:1::/64", True),
        ("fd00:1::/126", True),
        ("10.1.1.1/24", False),
        ("10.1.1.0/31", False),
        ("10.1.1.0/32", False),
        ("fd00:1::/127", False),
        ("fd00:1::/128", False),
        ("10.1.0.0/16", True),
        ("10.1.1.0/16", False),
    ],
)
def test_only_a_gateway_that_is_its_networks_address_has_a_warning(gateway: str, *, warned: bool) -> None:
    """A warning and not an error: Linux and upstream accept it, and a node must not lose its network by an update."""
    domain = "routingDomain: {type: L3VNI, l3vni: {name: red}}"
    content = parse(f"l2vnis:\n  - {{vni: 110, {domain}, gatewayIPs: ['{gateway}']}}\n")
    assert isinstance(resources_of(content)[0].spec, L2Vni)
    found = problems_of(content)
    assert [one.severity for one in found] == [Severity.WARNING] * warned
    assert all(f"is the network address of {gateway}; use a host address such as" in one.message for one in found)


def test_pools_of_a_session_in_the_newer_form_are_looked_at_too() -> None:
    content = parse(PASSTHROUGH.replace("localCIDR: {ipv4: 192.0.2.0/24, ipv6: '2001:db8::/64'}", "localCIDRs: %s") % (
        1, "['2001:db8::9/64', 192.0.2.0/24]"
    ))  # fmt: skip
    (message,) = messages(content)
    assert "bgppassthrough.hostSession.localCIDRs[0]: host bits are ignored: read as 2001:db8::/64" in message
    assert isinstance(resources_of(content)[0].spec, L3Passthrough)
