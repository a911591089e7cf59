"""The webhook as a process: its wiring, and its end by a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from actors.webhook.rotation import Storage
from config.api import ApiCredentials
from config.resolve.grants import Grants
from supervisor.operations.cluster.webhook import Options, Webhook, run_webhook
from supervisor.operations.exit_codes import CommandError

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = """
import sys
from pathlib import Path
from actors.webhook.rotation import Storage
from config.resolve.grants import Grants
from supervisor.logs.logger import configure
from supervisor.operations.cluster.webhook import Options, run_webhook
configure("info")
options = Options(0, Storage("openperouter-system", names=("localhost",)), Grants(), host="127.0.0.1")
sys.exit(run_webhook(options, Path(sys.argv[1])))
"""


def test_a_signal_ends_it_in_order_even_if_no_api_server_answers(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("token")
    (tmp_path / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n")
    environment = {**os.environ, "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = ""
        while "serving admission reviews" not in seen:
            line = process.stderr.readline()
            assert line, seen
            seen += line
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait() == 0, seen + rest
    assert "stopped" in rest
    assert "Traceback" not in seen + rest


def test_the_wiring_is_consistent_and_names_its_children() -> None:
    webhook = Webhook(Options(0, Storage("ns"), Grants()), lambda: ApiCredentials("https://192.0.2.1"))
    assert [spec.name for spec in webhook.children()] == ["server", "rotation", "follow", "account"]


def test_outside_of_a_pod_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CommandError, match="this is not a pod"):
        run_webhook(Options(0, Storage("ns"), Grants()))
