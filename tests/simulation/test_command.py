"""The command of ``make soak``: episodes in several processes until it is stopped."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from tests.checks.sources import ROOT


@pytest.mark.timeout(600)
def test_a_soak_runs_until_it_is_stopped() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--first", "0", "--processes", "2"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as soak:
        assert soak.stdout is not None
        heading, block = soak.stdout.readline(), soak.stdout.readline()
        soak.send_signal(signal.SIGINT)
        soak.communicate()
    assert heading == "seeds from 0 on, 2 processes; Ctrl-C ends it\n"
    assert re.fullmatch(r"40 episodes, 0 failed, [\d.]+ a second\n", block)
    assert soak.returncode == 0
