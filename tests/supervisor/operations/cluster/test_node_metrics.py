"""A node's metrics from the daemon's file: the file's content, or why there is none; what is deployed fits together."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
import yaml

from config.settings import Settings
from supervisor.cli.program import main
from supervisor.operations import exit_codes
from supervisor.operations.cluster import node_metrics
from supervisor.operations.cluster.node_metrics import NodeMetrics
from supervisor.operations.exit_codes import CommandError

PACKAGING = Path(__file__).resolve().parents[4] / "packaging"
TEXT = "# HELP openperouter_ready x\n# TYPE openperouter_ready gauge\nopenperouter_ready 1.0\n"


def manifest(path: str) -> Any:
    return yaml.safe_load((PACKAGING / path).read_text())


@asynccontextmanager
async def serving(file: Path) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(NodeMetrics(file, 0, "127.0.0.1").serve)
        yield f"http://127.0.0.1:{port}"
        nursery.cancel_scope.cancel()


async def answer(file: Path, path: str = "/metrics") -> httpx.Response:
    async with serving(file) as base, httpx.AsyncClient(base_url=base, trust_env=False) as client:
        return await client.get(path)


async def test_the_file_is_served_as_it_is_now(tmp_path: Path) -> None:
    file = tmp_path / "openperouter.prom"
    file.write_text(TEXT)
    async with serving(file) as base, httpx.AsyncClient(base_url=base, trust_env=False) as client:
        first = await client.get("/metrics")
        new = tmp_path / "new"
        new.write_text(TEXT.replace("1.0", "0.0"))
        new.replace(file)
        second = await client.get("/metrics")
        elsewhere = await client.get("/")
    assert (first.status_code, first.text) == (200, TEXT)
    assert first.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert second.text.endswith("openperouter_ready 0.0\n")
    assert elsewhere.status_code == 404


async def test_without_a_file_the_answer_says_so_until_there_is_one(tmp_path: Path) -> None:
    file = tmp_path / "metrics" / "openperouter.prom"
    async with serving(file) as base, httpx.AsyncClient(base_url=base, trust_env=False) as client:
        absent = await client.get("/metrics")
        file.parent.mkdir()
        file.write_text(TEXT)
        assert (await client.get("/metrics")).text == TEXT
    assert absent.status_code == 503
    assert absent.text.startswith(f"{file}: is not there: openperouter has not run on this node")


async def test_what_is_no_file_or_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    refused = await answer(tmp_path / "fifo")
    assert (refused.status_code, refused.text) == (503, f"{tmp_path / 'fifo'}: is not a regular file\n")
    monkeypatch.setattr(node_metrics, "MOST_BYTES", len(TEXT))
    file = tmp_path / "openperouter.prom"
    file.write_text(TEXT)
    assert (await answer(file)).status_code == 200
    file.write_text(TEXT + "x")
    large = await answer(file)
    assert (large.status_code, large.text) == (503, f"{file}: has more than {len(TEXT)} bytes\n")


async def test_a_signal_ends_it(tmp_path: Path) -> None:
    async def serve(task_status: trio.TaskStatus[int]) -> None:
        codes.append(await NodeMetrics(tmp_path / "x", 0, "127.0.0.1").serve(task_status))

    codes: list[int] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        os.kill(os.getpid(), signal.SIGTERM)
    assert codes == [exit_codes.OK]


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    [taken] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with taken:
        port = taken.socket.getsockname()[1]
        with pytest.raises(CommandError, match=f"port {port}: .*in use"):
            await NodeMetrics(tmp_path / "x", port, "127.0.0.1").serve()


def test_an_unusable_port_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "--port", "0"]) == exit_codes.USAGE
    assert "--port: must be between 1 and 65535" in capsys.readouterr().err


def test_what_is_deployed_fits_the_daemon_the_program_and_itself() -> None:
    daemonset = manifest("kubernetes/metrics/daemonset.yaml")
    pod = daemonset["spec"]["template"]["spec"]
    [container] = pod["containers"]
    options = dict(each.split("=") for each in container["args"][1:])
    file = Path(options["--file"])
    # Where the installed daemon writes without node_exporter, and nothing else of it is mounted.
    assert file == Settings().run_dir / "metrics" / "openperouter.prom"
    [mount] = container["volumeMounts"]
    assert (mount["mountPath"], mount["readOnly"]) == (str(file.parent), True)
    assert pod["volumes"][0]["hostPath"]["path"] == str(file.parent)
    assert "hostNetwork" not in pod
    [port] = container["ports"]
    assert str(port["containerPort"]) == options["--port"]
    labels = daemonset["spec"]["template"]["metadata"]["labels"]
    policy = manifest("kubernetes/network/metrics.yaml")["spec"]
    monitor = manifest("monitoring/pod-monitor.yaml")["spec"]
    assert policy["podSelector"]["matchLabels"] == monitor["selector"]["matchLabels"] == labels
    assert policy["ingress"][0]["ports"] == [{"protocol": "TCP", "port": port["containerPort"]}]
    [endpoint] = monitor["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == (port["name"], "/metrics")
