"""Golden files show every stanza; properties show that no value can become a command and no secret gets out.

``GOLDEN_UPDATE=1 pytest tests/actors/frr/render`` writes the golden files again; read the difference before
committing it. Each of them is loaded into real FRR by ``tests/frr``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.frr.diff.difference import difference, intended, parse
from actors.frr.render.render import UnsafeToken, render, token
from actors.frr.render.template_context import rd_numbers
from config.desired import EndpointKind, Secret

from ..cases import CASES, HOSTNAME, l3vni, neighbor, raw, state, underlay

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("name", CASES)
def test_the_configuration_of_each_case_equals_its_golden_file(name: str) -> None:
    golden = GOLDEN / f"{name}.conf"
    text = render(CASES[name], hostname=HOSTNAME).text
    if os.environ.get("GOLDEN_UPDATE"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_there_is_no_golden_file_without_a_case() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_rendered_configuration_read_back_unchanged_is_no_difference(name: str) -> None:
    rendered = render(CASES[name], hostname=HOSTNAME)
    assert not difference(intended(rendered), parse(rendered.text))


def test_the_listen_limit_can_be_chosen_and_is_absent_at_frrs_default() -> None:
    assert "bgp listen limit 1000\n" in render(CASES["listen_range"], hostname=HOSTNAME, listen_limit=1000).text
    assert "listen limit" not in render(CASES["listen_range"], hostname=HOSTNAME, listen_limit=100).text
    assert "listen limit" not in render(CASES["basic"], hostname=HOSTNAME, listen_limit=1000).text


def test_a_snippet_that_leaves_contexts_open_is_closed_before_the_next_one() -> None:
    desired = state(
        raw_frr=(
            raw("open", "router bgp 1\n address-family ipv4 unicast\n  network 10.0.0.0/8"),
            raw("next", "hostname x"),
        )
    )
    assert "network 10.0.0.0/8\nexit\nexit\n!\n!\nhostname x\n" in render(desired, hostname=HOSTNAME).text


def test_the_redacted_text_differs_only_in_the_secrets() -> None:
    rendered = render(CASES["timers_port_password"], hostname=HOSTNAME)
    assert rendered.text.replace("s3cret|?!#%&", "********") == rendered.redacted != rendered.text


def test_a_secret_in_a_raw_snippet_is_redacted() -> None:
    desired = state(raw_frr=(raw("pw", "router bgp 1\n neighbor 10.0.0.1 password topsecret\nexit"),))
    assert "topsecret" not in render(desired, hostname=HOSTNAME).redacted


def test_parts_of_a_rendered_configuration_do_not_show_themselves() -> None:
    assert "s3cret" not in repr(render(CASES["timers_port_password"], hostname=HOSTNAME))


WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(WORDS)
def test_a_token_is_the_value_itself_or_refused(text: str) -> None:
    try:
        assert token(text) == text
    except UnsafeToken:
        return
    assert len(text.split()) == 1
    assert len(text.splitlines()) == 1


@given(interface=WORDS, vrf=WORDS, target=WORDS, hostname=WORDS)
def test_no_value_adds_a_line(interface: str, vrf: str, target: str, hostname: str) -> None:
    def build(interface: str, vrf: str, target: str, hostname: str) -> list[str]:
        desired = state(
            underlay=underlay(neighbor(interface, endpoint_kind=EndpointKind.INTERFACE)),
            l3vnis=(l3vni(vrf, import_rts=(target,)),),
        )
        return render(desired, hostname=hostname).text.splitlines()

    try:
        hostile = build(interface, vrf, target, hostname)
    except UnsafeToken:
        return
    plain = build("swp1", "red", "1:1", "node1")
    assert [line.split()[:1] for line in hostile] == [line.split()[:1] for line in plain]
    assert [len(line.split()) for line in hostile] == [len(line.split()) for line in plain]


@given(st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=8, max_size=40))
def test_a_password_is_in_the_text_and_never_in_the_redacted_text(password: str) -> None:
    desired = state(underlay=underlay(replace(neighbor(), password=Secret(f"pw{password}"))))
    if not password.isprintable() or password.split() != [password]:
        with pytest.raises(UnsafeToken) as refusal:
            render(desired, hostname=HOSTNAME)
        assert f"pw{password}" not in str(refusal.value)
        return
    rendered = render(desired, hostname=HOSTNAME)
    assert f" password pw{password}\n" in rendered.text
    # With the prefix: a password may be a word that stands there anyway.
    assert f"pw{password}" not in rendered.redacted


@given(st.sets(st.integers(1, 16777215), max_size=60))
def test_route_distinguisher_numbers_are_unique_stable_and_fit(vnis: set[int]) -> None:
    numbers = rd_numbers(vnis)
    assert set(numbers) == vnis
    assert len(set(numbers.values())) == len(vnis)
    assert all(0 < number <= 65535 for number in numbers.values())
    assert all(numbers[vni] == vni for vni in vnis if vni <= 65535)


def test_folded_route_distinguisher_numbers_step_aside() -> None:
    assert rd_numbers([65536, 2, 131071]) == {2: 2, 65536: 3, 131071: 4}
