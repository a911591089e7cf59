"""Names of resources from files."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.models import L3Vni
from config.problems import Kind, Origin, Severity
from config.resources import Resource, Unusable
from config.sources.naming import (
    Entry,
    L3VniEntry,
    RouterFile,
    dns_name,
    entry_suffix,
    resource_name,
    spec_of,
    unique_names,
)


def entry(name: str, kind: Kind = Kind.L3VNI, *, named: bool = False) -> Entry:
    return Entry(Resource(kind, "ns", name, Origin("f", 3, 5), Unusable(), f"label of {name}"), (), named)


def names(*files: tuple[str, list[Entry]]) -> list[list[str]]:
    return [[one.resource.name for one in renamed] for renamed in unique_names(files)]


@pytest.mark.parametrize(
    ("kind", "data", "suffix"),
    [
        (Kind.UNDERLAY, {}, ("underlay-2", False)),
        (Kind.RAW_FRR_CONFIG, {}, ("rawfrrconfig-2", False)),
        (Kind.L3PASSTHROUGH, {}, ("l3passthrough", False)),
        (Kind.L3VNI, {"name": "n", "vrf": "red", "vni": 1}, ("n", True)),
        (Kind.L3VNI, {"vrf": "red", "vni": 1}, ("red", False)),
        (Kind.L3VNI, {"vni": 1}, ("vni-1", False)),
        (Kind.L3VNI, {"name": "no/slash", "vrf": "red"}, ("red", False)),
        (Kind.L3VNI, None, ("l3vni-2", False)),
        (Kind.L2VNI, {"name": 7, "vni": 1}, ("7", True)),
        (Kind.L2VNI, {"vni": 1, "vrf": "red"}, ("vni-1", False)),
        (Kind.L2VNI, ["x"], ("l2vni-2", False)),
    ],
)
def test_an_entry_is_called_by_its_name_or_its_content(kind: Kind, data: Any, suffix: tuple[str, bool]) -> None:
    assert entry_suffix(kind, data, 2) == suffix


def test_upstreams_names_are_kept() -> None:
    assert resource_name("worker-1", "red") == "static-worker-1-red"


#: Kubernetes' own rule for the names of objects (IsDNS1123Subdomain).
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
NEARLY_NAMES = st.text(max_size=300) | st.text("aA.-_", max_size=300)


@given(NEARLY_NAMES, NEARLY_NAMES, NEARLY_NAMES)
def test_every_name_is_one_that_the_api_accepts(node: str, suffix: str, word: str) -> None:
    name = resource_name(node, suffix)
    (first,), (second,), (third,) = names((word, [entry(name)]), (word, [entry(name)]), (word, [entry(name)]))
    assert first == name == dns_name(name)
    assert all(SUBDOMAIN.fullmatch(one) and len(one) <= 253 for one in (first, second, third))


@pytest.mark.parametrize(
    ("text", "name"), [("a..b", "a.b"), ("a-.b", "a.b"), ("A_b", "a-b"), ("-", "x"), ("a.-.b", "a.b"), ("a--b", "a--b")]
)
def test_a_name_is_bent_no_more_than_it_must_be(text: str, name: str) -> None:
    assert dns_name(text) == name


def test_long_names_stay_apart() -> None:
    long = "n" * 250
    one, other = resource_name(long, "red"), resource_name(long, "blue")
    assert len(one) == len(other) == 253
    assert one != other


def test_one_name_in_two_files_gets_the_files_word() -> None:
    assert names(("a", [entry("x"), entry("y")]), ("b", [entry("x")]), ("c", [entry("x")])) == [
        ["x", "y"],
        ["x-b"],
        ["x-c"],
    ]


def test_one_name_twice_in_a_file_is_counted() -> None:
    assert names(("a", [entry("x")] * 4)) == [["x", "x-a", "x-a-2", "x-a-3"]]


def test_a_name_made_up_never_takes_one_that_is_there() -> None:
    assert names(("a", [entry("x"), entry("x-b")]), ("b", [entry("x")])) == [["x", "x-b"], ["x-b-2"]]


def test_kinds_have_names_of_their_own() -> None:
    assert names(("a", [entry("x"), entry("x", Kind.L2VNI)])) == [["x", "x"]]


def test_a_name_that_the_user_gave_twice_has_a_warning() -> None:
    _, ((second),) = unique_names([("a", [entry("x", named=True)]), ("b", [entry("x", named=True)])])
    (warning,) = second.problems
    assert (warning.severity, warning.name, warning.origin.line) == (Severity.WARNING, "label of x-b", 3)


def test_a_spec_has_neither_the_entrys_name_nor_a_selector() -> None:
    data = {"name": "n", "vrf": "red", "vni": 1, "nodeSelector": {"matchLabels": {"a": "b"}}}
    spec = spec_of(L3VniEntry.model_validate(data), L3Vni)
    assert spec == L3Vni.model_validate({"vrf": "red", "vni": 1})


def test_the_whole_file_has_a_model() -> None:
    assert set(RouterFile.model_fields) == {"underlays", "l3vnis", "l2vnis", "bgppassthrough", "rawfrrconfigs"}
