"""Where the daemon's files are looked for, and that nothing slow is read for it without need."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.operations import paths
from supervisor.operations.paths import DEFAULT_RUN_DIR, run_dir


@pytest.mark.parametrize("name", ["openperouter.yaml", "conf.d/10-mine.yaml"])
def test_a_run_dir_that_is_set_counts(tmp_path: Path, name: str) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "openperouter.yaml").touch()
    (tmp_path / name).write_text("logLevel: info\nrunDir: /run/elsewhere  # moved\n")
    assert run_dir(tmp_path / "openperouter.yaml") == Path("/run/elsewhere")


@pytest.mark.parametrize(
    "text", ["# runDir: /run/elsewhere\n", "netns: perouter # with runDir, tied to the units\n", ""]
)
def test_a_comment_about_it_is_not_a_reason_to_read_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "openperouter.yaml").write_text(text)
    monkeypatch.delattr(paths, "load_usable_settings")
    assert run_dir(tmp_path / "openperouter.yaml") == DEFAULT_RUN_DIR
