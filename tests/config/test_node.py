"""Node configuration and the derivation of an index."""

from __future__ import annotations

from ipaddress import ip_interface
from pathlib import Path

import pytest

from config.desired import IPInterface
from config.node import IndexUnknownError, NodeConfig, derive_index, load_node_config
from config.problems import errors


def load(tmp_path: Path, text: str) -> tuple[NodeConfig | None, list[str]]:
    path = tmp_path / "node-config.yaml"
    path.write_text(text)
    config, problems = load_node_config(path)
    return config, [problem.message for problem in problems]


def addresses(*texts: str) -> list[IPInterface]:
    return [ip_interface(text) for text in texts]


def test_an_explicit_index_of_zero_is_an_index(tmp_path: Path) -> None:
    config, problems = load(tmp_path, "nodeIndex: {index: 0}\nnodeName: other\nlogLevel: warn\n")
    assert config is not None
    assert not problems
    assert config.needs_interface is None
    identity = config.identify("host")
    assert (identity.name, identity.index, identity.log_level) == ("other", 0, "warning")


def test_name_and_level_default_to_the_hosts(tmp_path: Path) -> None:
    config, _ = load(tmp_path, "nodeIndex: {index: 3}\n")
    assert config is not None
    identity = config.identify("host", log_level="debug")
    assert (identity.name, identity.index, identity.log_level) == ("host", 3, "debug")


@pytest.mark.parametrize("text", ["", "nodeName: x\n", "nodeIndex: {}\n", "nodeIndex:\n"])
def test_no_index_means_zero_with_a_warning(tmp_path: Path, text: str) -> None:
    config, problems = load(tmp_path, text)
    assert config is not None
    assert config.identify("host").index == 0
    assert "not set, so it is 0" in problems[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodeIndex: {index: -1}", "must be at least 0"),
        ("nodeIndex: {index: 1.5}", "must be a whole number"),
        ("nodeIndex: {index: true}", "must be a whole number"),
        ("nodeIndex: {index: 0, interfaceName: eth0}", "at most one of index and interfaceName"),
        ("nodeIndex: {index: 4, interfaceName: eth0}", "at most one of index and interfaceName"),
        ("nodeIndex: {cidr: 10.0.0.0/8}", "cidr needs interfaceName"),
        ("nodeIndex: {index: 1, cidr: 10.0.0.0/8}", "cidr needs interfaceName"),
        ("nodeIndex: {interfaceName: eth0, cidr: nonsense}", "must be an address with a prefix length"),
        ("nodeIndex: {interfaceName: 'a b'}", "an interface name may only contain"),
        ("nodeName: 'a b'", "must be a host name"),
        ("logLevel: loud", "must be 'debug'"),
        ("nodeIdx: {}", "did you mean 'nodeIndex'?"),
        ("- 1", "must be a mapping"),
    ],
)
def test_a_wrong_node_configuration_is_refused(tmp_path: Path, text: str, message: str) -> None:
    config, problems = load(tmp_path, text)
    assert config is None
    assert message in problems[0]


def test_a_missing_file_is_a_clear_problem(tmp_path: Path) -> None:
    config, problems = load_node_config(tmp_path / "none.yaml")
    assert config is None
    assert str(errors(problems)[0]).startswith(f"{tmp_path}/none.yaml: error: does not exist")


@pytest.mark.parametrize(
    ("address", "index"),
    [
        ("10.1.2.3/8", 0x010203), ("10.1.2.3/16", 0x0203), ("10.1.2.3/24", 3), ("10.1.2.30/28", 14), ("10.1.2.3/32", 0),
        ("2001:db8::7/64", 7), ("2001:db8:0:0:1:2:3:4/64", 0x0001000200030004), ("2001:db8:0:1::4/32", 4),
    ],
)  # fmt: skip
def test_the_index_is_the_host_part_of_the_address(address: str, index: int) -> None:
    assert derive_index(addresses(address)) == index


def test_the_first_ipv4_address_wins_over_any_ipv6_one() -> None:
    assert derive_index(addresses("2001:db8::7/64", "10.0.0.5/24", "10.0.0.6/24")) == 5


def test_link_local_ipv6_addresses_are_passed_over() -> None:
    assert derive_index(addresses("fe80::1/64", "2001:db8::7/64")) == 7


def test_a_network_chooses_the_address_of_either_family() -> None:
    all_of_them = addresses("10.0.0.5/24", "10.9.0.6/24", "2001:db8::7/64")
    assert derive_index(all_of_them, "10.9.0.0/16") == 6
    assert derive_index(all_of_them, "2001:db8::/32") == 7


@pytest.mark.parametrize(
    ("given", "cidr", "message"),
    [
        ((), None, "has no address"),
        (("fe80::1/64",), None, "neither an IPv4 nor a global IPv6 address"),
        (("10.0.0.5/24",), "10.9.0.0/16", "no address in 10.9.0.0/16"),
    ],
)
def test_an_index_that_cannot_be_derived_names_the_interface(
    tmp_path: Path, given: tuple[str, ...], cidr: str | None, message: str
) -> None:
    config, _ = load(tmp_path, "nodeIndex: {interfaceName: eth7" + (f", cidr: {cidr}" if cidr else "") + "}\n")
    assert config is not None
    assert config.needs_interface == "eth7"
    with pytest.raises(IndexUnknownError, match=f"interface eth7: .*{message}"):
        config.identify("host", addresses(*given))
