"""Alert rules and dashboard: made of metrics that exist, tested by the real promtool, scraped by a real Prometheus."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import h11
import httpx
import pytest
import trio
import yaml

from actors.lib.metrics.descriptions import DESCRIPTIONS
from actors.lib.metrics.exposition import metrics_text
from actors.metrics_endpoint.actor import Certificates, responder
from actors.report.status_builder import build_status
from config.metrics_settings import MetricsSettings
from kubeserver.pki import Authority
from supervisor.operations.cluster.node_metrics import NodeMetrics
from supervisor.process.http_server import HttpServer, Response
from tests.actors.report.examples import inputs
from tests.packaging.programs import load

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "packaging/monitoring"
RULES = MONITORING / "openperouter-rules.yaml"
RUNBOOK = ROOT / "docs/alerts.md"
UNIT_TESTS = Path(__file__).with_name("alerts") / "rules_test.yaml"
PROGRAMS = Path(os.environ.get("OPENPEROUTER_CACHE", "/var/cache/openperouter-dev")) / "prometheus/usr/bin"
#: Scrapes after which the first one can be queried.
SCRAPES = 2
METRIC = re.compile(r"openperouter_(\w+)(?:\{([^}]*)\})?")

needs_prometheus = pytest.mark.skipif(
    not (PROGRAMS / "promtool").exists(), reason="no promtool: tests/harness/fetch-package.sh fetches it"
)


@cache
def rules() -> tuple[dict[str, Any], ...]:
    return tuple(rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"])


@cache
def queries() -> tuple[str, ...]:
    """Return the dashboard's expressions for all nodes."""
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return tuple(query.replace("$instance", ".*") for query in found)


def promtool(*arguments: str | Path, directory: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [PROGRAMS / "promtool", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False, cwd=directory)


def used(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each metric of an expression with the labels that it is selected by."""
    for name, selector in METRIC.findall(expression):
        yield name, set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)", selector)) - {"instance"}


@pytest.mark.parametrize("expression", [*(rule["expr"] for rule in rules()), *queries()])
def test_what_rules_and_dashboard_use_exists(expression: str) -> None:
    metrics = list(used(expression))
    assert metrics
    for name, labels in metrics:
        plain = name if name in DESCRIPTIONS else re.sub(r"_(bucket|sum|count)$", "", name)
        assert plain in DESCRIPTIONS, name
        assert labels <= set(DESCRIPTIONS[plain].labels), name
    known = {label for name, _ in metrics for label in DESCRIPTIONS[name.removesuffix("_bucket")].labels}
    for group in re.findall(r"by \(([^)]*)\)", expression):
        assert set(group.split(", ")) <= known | {"instance", "le"}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_what_an_alert_says_names_labels_that_it_has(rule: dict[str, Any]) -> None:
    text = " ".join(rule["annotations"].values())
    labels = {label for name, _ in used(rule["expr"]) for label in DESCRIPTIONS[name].labels} | {"instance"}
    for group in re.findall(r"by \(([^)]*)\)", rule["expr"]):
        labels &= set(group.split(", "))
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= labels
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}


def test_each_alert_has_a_section_of_what_to_do_and_names_it() -> None:
    titles, texts = zip(*re.findall(r"^## (\w+)\n\n(.*?)(?=^## |\Z)", RUNBOOK.read_text(), re.M | re.S), strict=True)
    assert titles == tuple(rule["alert"] for rule in rules())
    for rule, text in zip(rules(), texts, strict=True):
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"
        assert re.search(r"`[^`]+ [^`]+`", text), f"{rule['alert']}: no command to look with"
        assert len(text.split()) > 50, rule["alert"]


def test_the_generated_files_are_current() -> None:
    """Fix it with ``python3 packaging/monitoring/generate.py``."""
    generate = load("monitoring/generate.py")
    assert (MONITORING / "dashboard.json").read_text() == generate.dashboard()
    assert (MONITORING / "prometheus-rule.yaml").read_text() == generate.prometheus_rule()


def test_each_alert_is_seen_to_fire_and_not_to_fire() -> None:
    tests = [case for test in yaml.safe_load(UNIT_TESTS.read_text())["tests"] for case in test["alert_rule_test"]]
    names = {rule["alert"] for rule in rules()}
    assert {case["alertname"] for case in tests if case.get("exp_alerts")} == names
    assert {case["alertname"] for case in tests if not case.get("exp_alerts")} == names


@needs_prometheus
def test_promtool_accepts_the_rules_and_the_dashboards_expressions(tmp_path: Path) -> None:
    done = promtool("check", "rules", RULES, directory=tmp_path)
    assert done.returncode == 0, done.stderr
    recorded = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries())]
    (tmp_path / "dashboard.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    done = promtool("check", "rules", "dashboard.yaml", directory=tmp_path)
    assert done.returncode == 0, done.stderr


@needs_prometheus
def test_promtool_finds_the_alerts_as_they_are_expected(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    shutil.copy(UNIT_TESTS, tmp_path)
    done = promtool("test", "rules", UNIT_TESTS.name, directory=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    # The tests can fail: with another threshold, delay or severity they do.
    for right, wrong in (("> 300", "> 3000"), ("for: 10m", "for: 1h"), ("severity: critical", "severity: warning")):
        (tmp_path / RULES.name).write_text(RULES.read_text().replace(right, wrong))
        assert promtool("test", "rules", UNIT_TESTS.name, directory=tmp_path).returncode != 0, wrong


@needs_prometheus
def test_promtool_has_no_complaint_about_the_text(tmp_path: Path) -> None:
    done = promtool("check", "metrics", directory=tmp_path, stdin=metrics_text(build_status(inputs(), 2000.0)))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


class Page:
    """The metrics; counts how often they are read."""

    def __init__(self) -> None:
        self.enough = trio.Event()
        self._reads = 0

    def read(self) -> bytes:
        self._reads += 1
        if self._reads == SCRAPES:
            self.enough.set()
        return metrics_text(build_status(inputs(), 2000.0)).encode()


@needs_prometheus
async def test_a_real_prometheus_scrapes_the_endpoint_with_tls_and_a_pod(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    pair, client = authority.server("metrics"), authority.client("prometheus", "prometheus")
    settings = MetricsSettings(
        listen="https://127.0.0.1:9473",
        certificate=pair.certificate,
        key=pair.key,
        client_authority=authority.pair.certificate,
    )
    page = Page()
    async with trio.open_nursery() as nursery:
        server = HttpServer(responder(page.read), Certificates(settings).context)
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, server.handle, [listener])
        job: dict[str, Any] = {
            "job_name": "openperouter",
            "scheme": "https",
            "tls_config": {
                "ca_file": str(authority.pair.certificate),
                "cert_file": str(client.certificate),
                "key_file": str(client.key),
            },
            "static_configs": [{"targets": [f"127.0.0.1:{listener.socket.getsockname()[1]}"]}],
        }
        file = tmp_path / "openperouter.prom"
        file.write_bytes(page.read())
        pod = Page()

        async def counted(request: h11.Request) -> Response:
            pod.read()
            return await NodeMetrics(file, 0).respond(request)

        [of_pod] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, HttpServer(counted).handle, [of_pod])
        jobs = [job, pod_job(of_pod.socket.getsockname()[1])]
        answers = await prometheus(nursery, tmp_path, jobs, [page.enough, pod.enough])
        nursery.cancel_scope.cancel()
    ready = {one["metric"]["instance"]: one["value"][1] for one in answers["openperouter_ready"]}
    assert ready == {job["static_configs"][0]["targets"][0]: "1", "node-a": "1"}
    up = {one["metric"]["peer"]: one["value"][1] for one in answers["openperouter_bgp_session_up"]}
    assert up == {"192.168.11.2": "1", "172.27.10.2": "0"}


def pod_job(port: int) -> dict[str, Any]:
    """Return what Prometheus' operator makes of the PodMonitor, for a pod on node-a."""
    [endpoint] = yaml.safe_load((MONITORING / "pod-monitor.yaml").read_text())["spec"]["podMetricsEndpoints"]
    target = {"targets": [f"127.0.0.1:{port}"], "labels": {"__meta_kubernetes_pod_node_name": "node-a"}}
    relabelings = [
        {"source_labels": each["sourceLabels"], "target_label": each["targetLabel"]} for each in endpoint["relabelings"]
    ]
    return {
        "job_name": "pods",
        "metrics_path": endpoint["path"],
        "static_configs": [target],
        "relabel_configs": relabelings,
    }


async def prometheus(
    nursery: trio.Nursery, directory: Path, jobs: list[dict[str, Any]], scraped: list[trio.Event]
) -> dict[str, list[dict[str, Any]]]:
    """Run Prometheus with our rules on jobs; return its answers once it has scraped, to all that we ask."""
    # Its own port is chosen by the kernel; it takes no socket that is open.
    [probe] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = f"127.0.0.1:{probe.socket.getsockname()[1]}"
    await probe.aclose()
    configuration = {
        "global": {"scrape_interval": "5s", "scrape_timeout": "5s"},
        "rule_files": [str(RULES)],
        "scrape_configs": jobs,
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    command = [
        str(PROGRAMS / "prometheus"),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    await nursery.start(partial(trio.run_process, command, check=False))
    with trio.fail_after(240):
        for each in scraped:
            await each.wait()
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False, timeout=60) as client:
            # A page that a busy machine does not deliver in time was not scraped: the next one is.
            while not (found := await asked(client, len(jobs))):  # noqa: ASYNC110
                await trio.sleep(0.5)
    return found


async def asked(client: httpx.AsyncClient, jobs: int) -> dict[str, list[dict[str, Any]]]:
    """Return Prometheus' answer to each query, all for one moment; nothing if a job had not been scraped then.

    Series of a page that comes too late end at the time of its request, also if that is before the moment. Such a
    request is over before the next one: if all jobs have series in the first answer and in the last, they have in all.
    """
    moment = time.time()
    found: dict[str, list[dict[str, Any]]] = {}
    for query in ("openperouter_ready", "openperouter_bgp_session_up", *queries(), "openperouter_ready"):
        answer = (await client.get("/api/v1/query", params={"query": query, "time": moment})).json()
        assert answer["status"] == "success", answer
        found[query] = answer["data"]["result"]
        if len(found["openperouter_ready"]) < jobs:
            return {}
    return found
