"""From pydantic's complaints to problems with positions."""

from __future__ import annotations

from config.models import L3Vni, Underlay
from config.problems import Problem, Severity, errors
from config.syntax.model_errors import suggestion, validate
from config.syntax.yaml_reader import parse_yaml

from ..samples import UNDERLAY_FILE


def check(model: type[L3Vni] | type[Underlay], text: str) -> tuple[object, tuple[Problem, ...]]:
    document = parse_yaml(text.encode(), "f")
    return validate(model, document.data(), document)


def messages(text: str) -> list[str]:
    return [f"{problem.origin}: {problem.field}: {problem.message}" for problem in check(L3Vni, text)[1]]


def test_a_fault_deep_inside_has_its_line_column_and_path() -> None:
    text = "vrf: red\nvni: 1\nhostSession:\n  asn: 0\n  hostASN: 2\n  localCIDR: {ipv4: 10.0.0.0/24}\n"
    assert messages(text) == ["f:4:8: hostSession.asn: must be at least 1"]


def test_a_missing_field_points_to_the_mapping_that_lacks_it() -> None:
    assert messages("vrf: red\n") == ["f:1:1: vni: required, but missing"]


def test_an_unknown_key_points_to_the_key_and_names_the_closest() -> None:
    assert messages("vrf: red\nvni: 1\nhostSesion: {}\n") == [
        "f:3:1: hostSesion: unknown key; did you mean 'hostSession'?"
    ]


def test_a_far_fetched_key_gets_the_list_of_keys() -> None:
    assert suggestion("zzz", ("vrf", "vni")) == "known keys: vni, vrf"


def test_python_names_of_fields_are_unknown_keys() -> None:
    assert "did you mean 'vxlanPort'?" in messages("vrf: red\nvni: 1\nvxlan_port: 4789\n")[0]


def test_keys_in_another_case_are_taken_at_every_level_with_a_warning() -> None:
    text = "VRF: red\nVni: 1\nHostSession:\n  ASN: 1\n  hostAsn: 2\n  localcidr: {IPv4: 10.0.0.0/24}\n"
    model, problems = check(L3Vni, text)
    assert isinstance(model, L3Vni)
    assert model.host_session is not None
    assert model.host_session.pools[0] == "10.0.0.0/24"
    assert all(problem.severity is Severity.WARNING for problem in problems)
    assert {problem.field for problem in problems} == {
        "VRF", "Vni", "HostSession", "hostSession.ASN", "hostSession.hostAsn", "hostSession.localcidr",
        "hostSession.localCIDR.IPv4",
    }  # fmt: skip


def test_a_key_given_in_two_cases_is_an_error() -> None:
    model, problems = check(L3Vni, "vrf: red\nVRF: blue\nvni: 1\n")
    assert model is None
    assert [problem.message for problem in errors(problems)] == ["also given as 'vrf'"]


def test_octal_looking_numbers_are_refused_with_a_hint() -> None:
    hint = "write it in plain decimal, without leading zeros, signs, underscores or colons"
    assert messages("vrf: red\nvni: 0100\n") == [f"f:2:6: vni: must be a whole number; {hint}"]


def test_a_quoted_number_is_not_a_number() -> None:
    assert messages("vrf: red\nvni: '100'\n") == ["f:2:6: vni: must be a number: remove the quotes"]


def test_a_boolean_where_text_is_wanted_asks_for_quotes() -> None:
    assert messages("vrf: true\nvni: 1\n") == ["f:1:6: vrf: must be a string; put it in quotes"]


def test_base_60_looking_route_targets_are_text() -> None:
    model, problems = check(L3Vni, "vrf: off\nvni: 1\nexportRTs: [22:22, 64514:100]\n")
    assert not problems
    assert isinstance(model, L3Vni)
    assert model.vrf == "off"
    assert model.export_rts == ("22:22", "64514:100")


def test_no_message_shows_a_password() -> None:
    text = UNDERLAY_FILE.split("\n", 1)[1].replace("  - asn: 64514", "    asn: 64514", 1)
    bad = text.replace("address: 192.168.11.2", "address: 192.168.11.2\n        password: 'hunter 2'\n        port: x")
    problems = check(Underlay, bad)[1]
    assert len(problems) == 2
    assert not any("hunter" in repr(problem) for problem in problems)


def test_a_value_without_content_counts_as_not_given() -> None:
    model, problems = check(L3Vni, "vrf: red\nvni: 1\nhostSession:\n")
    assert not problems
    assert isinstance(model, L3Vni)
    assert model.host_session is None
