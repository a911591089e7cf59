"""Where the metrics' file is, and for whom."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.lib.metrics import textfile
from config.settings import Settings

INSTALLED = Settings()


def test_node_exporters_directory_is_used_where_it_is(tmp_path: Path) -> None:
    assert textfile.textfile(INSTALLED, tmp_path) == tmp_path / "openperouter.prom"
    assert textfile.textfile(INSTALLED, tmp_path / "absent") == Path("/run/openperouter/metrics/openperouter.prom")


def test_the_setting_decides(tmp_path: Path) -> None:
    chosen = tmp_path / "elsewhere" / "router.prom"
    assert textfile.textfile(Settings(metrics_file=chosen), tmp_path) == chosen
    assert textfile.candidates(Settings(metrics_file=chosen), tmp_path) == (chosen,)


def test_a_second_instance_does_not_replace_the_files_of_the_first(tmp_path: Path) -> None:
    other = Settings(run_dir=tmp_path / "run")
    assert textfile.candidates(other, tmp_path) == (tmp_path / "run" / "metrics" / "openperouter.prom",)
    assert textfile.textfile(other, tmp_path) == tmp_path / "run" / "metrics" / "openperouter.prom"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another group")
def test_the_group_of_the_directory_reads_it(tmp_path: Path) -> None:
    os.chown(tmp_path, 0, 12345)
    assert textfile.reader(tmp_path / "x.prom") == 12345


def test_a_missing_directory_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        textfile.reader(tmp_path / "absent" / "x.prom")
