"""What goes between two calls is missing, as if it had gone before them."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from actors.netlink.kernel import LinuxKernel
from actors.netlink.planning.observed import Namespace
from actors.netlink.wire import namespace
from actors.netlink.wire.namespace import NamespaceMissing


def test_a_device_that_goes_while_its_sysctl_is_read_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(descriptor: int, size: int) -> bytes:
        raise FileNotFoundError

    assert namespace._read("kernel.ostype") == "Linux"
    monkeypatch.setattr(os, "read", gone)
    assert namespace._read("kernel.ostype") is None


def test_a_namespace_that_goes_before_a_device_is_moved_there_is_missing(tmp_path: Path) -> None:
    router = SimpleNamespace(identity=(1, 2), is_current=lambda: True)
    kernel = LinuxKernel(tmp_path / "perouter", cast("Any", None))
    try:
        kernel._router = cast("Any", router)
        with pytest.raises(NamespaceMissing, match="netns perouter missing"):
            kernel._descriptor(Namespace.ROUTER).__enter__()
    finally:
        kernel._router = None
        kernel.close()
