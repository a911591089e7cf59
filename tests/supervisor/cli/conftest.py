"""Fixtures for the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.supervisor.cli.examples import L3VNI, UNDERLAY, write_settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings with a valid configuration beside them, and output without colour."""
    monkeypatch.setenv("NO_COLOR", "1")
    path = write_settings(tmp_path)
    for name, text in (("openpe_underlay.yaml", UNDERLAY), ("openpe_l3vni.yaml", L3VNI)):
        (tmp_path / "configs" / name).write_text(text)
        (tmp_path / "configs" / name).chmod(0o600)
    return path
