"""Who the node is, also when the file is broken or the interface late."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from actors.static_config.node_identity import STORE, Addresses, Identification, identify, read_identity
from config.desired import IPInterface
from config.outcomes import NodeIdentity

KNOWN = NodeIdentity("node-a", 7, "info")


def at(address: str) -> Addresses:
    def addresses(name: str) -> tuple[IPInterface, ...]:
        return (IPv4Interface(address),) if name == "eth9" else ()

    return addresses


def nowhere(name: str) -> tuple[IPInterface, ...]:
    return ()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "node-config.yaml"


def read(file: Path, text: str, addresses: Addresses = nowhere, known: NodeIdentity | None = None) -> Identification:
    file.write_text(text)
    return identify(file, "host-name", "info", addresses, known)


def test_an_explicit_index_and_the_host_name_make_an_identity(file: Path) -> None:
    found = read(file, "nodeIndex: {index: 3}\n")
    assert found.node == NodeIdentity("host-name", 3, "info", "v2")
    assert found.problems == ()


@pytest.mark.parametrize(
    ("known", "written", "scheme"),
    [
        (None, "", "v2"),
        (None, "routerIDScheme: v1\n", "v1"),
        (KNOWN, "", "v1"),
        (KNOWN, "routerIDScheme: v2\n", "v2"),
        (replace(KNOWN, router_id_scheme="v2"), "", "v2"),
    ],
)
def test_the_router_ids_scheme_is_the_files_else_the_nodes_own(
    file: Path, known: NodeIdentity | None, written: str, scheme: str
) -> None:
    found = read(file, f"nodeIndex: {{index: 3}}\n{written}", known=known)
    assert found.node is not None
    assert found.node.router_id_scheme == scheme


@pytest.mark.parametrize(
    ("known", "written", "scheme"), [(None, "", "v2"), (None, "routerIDScheme: v1\n", "v1"), (KNOWN, "", "v1")]
)
def test_the_scheme_is_remembered_when_the_file_says_nothing_of_it(
    file: Path, known: NodeIdentity | None, written: str, scheme: str
) -> None:
    first = read(file, f"nodeIndex: {{index: 3}}\n{written}", known=known)
    assert first.node is not None
    saved = file.with_name("node.json")
    saved.write_text(STORE.encode(first.node))
    again = read(file, "nodeIndex: {index: 3}\n", known=read_identity(saved))
    assert again.node is not None
    assert again.node.router_id_scheme == scheme


def test_a_node_of_a_version_that_knew_one_scheme_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text('{"name": "node-a", "index": 3, "log_level": "info"}')
    known = read_identity(tmp_path / "node.json")
    assert known is not None
    assert known.router_id_scheme == "v1"


def test_an_interface_gives_the_host_part_as_index(file: Path) -> None:
    found = read(file, "nodeIndex: {interfaceName: eth9}\n", at("192.0.2.12/24"))
    assert found.node is not None
    assert found.node.index == 12


def test_a_broken_file_keeps_the_known_identity_and_says_so(file: Path) -> None:
    found = read(file, "nodeIndex: {index: -1}\n", known=KNOWN)
    assert found.node == KNOWN
    assert "index 7 stay in force" in str(found.problems[0])
    assert str(file) in str(found.problems[0])


def test_a_missing_file_without_memory_leaves_the_node_unknown(tmp_path: Path) -> None:
    found = identify(tmp_path / "none.yaml", "host-name", "info", nowhere, None)
    assert found.node is None
    assert found.problems


def test_a_late_interface_keeps_the_known_index_and_is_waited_for(file: Path) -> None:
    found = read(file, "nodeIndex: {interfaceName: eth9}\n", nowhere, KNOWN)
    assert found.node == KNOWN
    assert found.waiting_for == "eth9"


def test_an_identity_survives_on_disk(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text(STORE.encode(KNOWN))
    assert read_identity(tmp_path / "identity.json") == KNOWN


def test_an_identity_is_read_and_written_as_it_always_was(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text('{"name": "node-a", "index": 3, "log_level": "debugging"}\n')
    assert read_identity(tmp_path / "identity.json") == NodeIdentity("node-a", 3, "debugging")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"name": "a"}', '{"name": "a", "index": -1, "log_level": "info"}', "[" * 100_000, "\xff"],
    ids=["empty", "half", "list", "partial", "negative", "deep", "binary"],
)
def test_a_damaged_identity_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "identity.json").write_bytes(text.encode("latin-1"))
    assert read_identity(tmp_path / "identity.json") is None
