"""A program nft that does not work is a filter that is unavailable, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from actors.netlink.wire import nftables
from actors.netlink.wire.nftables import FilterUnavailableError, read_table, replace_table
from actors.netlink.wire.socket import KernelRefusal


class Here:
    """A handle of this process's namespace."""

    def call(self, function: Callable[[Any], Any]) -> Any:
        return function(None)


HERE = cast("Any", Here())


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, mode: int = 0o755) -> None:
    path = tmp_path / "nft"
    path.write_text(text)
    path.chmod(mode)
    monkeypatch.setattr(nftables, "NFT", str(path))


@pytest.mark.parametrize(
    ("text", "mode", "expected"),
    [
        ("#!/bin/sh\n", 0o644, "nft does not start: Permission denied"),
        ("not a program", 0o755, "nft does not start: Exec format error"),
        ("#!/bin/sh\necho Segmentation fault\n", 0o755, "nft: its answer is not JSON as documented"),
        ("#!/bin/sh\necho '{}'\n", 0o755, "nft: its answer is not JSON as documented"),
        ("#!/bin/sh\necho '{\"nftables\": [1]}'\n", 0o755, "nft: its answer is not JSON as documented"),
        ("#!/bin/sh\nprintf '\\377'\n", 0o755, "nft: its answer is not JSON as documented"),
        ("#!/bin/sh\nprintf '\\377' >&2; exit 1\n", 0o755, "nft: \N{REPLACEMENT CHARACTER}"),
    ],
)
def test_a_broken_program_is_an_unavailable_filter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, mode: int, expected: str
) -> None:
    program(tmp_path, monkeypatch, text, mode)
    with pytest.raises(FilterUnavailableError) as problem:
        read_table(HERE)
    assert str(problem.value) == expected


def test_a_program_that_does_not_start_refuses_a_replacement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "", 0o644)
    with pytest.raises(KernelRefusal, match="nft does not start: Permission denied"):
        replace_table(HERE, [])
    monkeypatch.setattr(nftables, "NFT", str(tmp_path / "absent"))
    with pytest.raises(KernelRefusal, match="apt-get install nftables"):
        replace_table(HERE, [])
