"""The setting ``metrics``: what is accepted, and what the message says about the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.metrics_settings import Endpoint, endpoint_of
from config.settings import load_settings


@pytest.mark.parametrize(
    ("listen", "endpoint"),
    [
        ("unix:/run/openperouter/metrics.sock", Endpoint("unix", Path("/run/openperouter/metrics.sock"))),
        ("http://127.0.0.1:9473", Endpoint("http", host="127.0.0.1", port=9473)),
        ("http://[::1]:9473/", Endpoint("http", host="::1", port=9473)),
        ("https://[::]:9473", Endpoint("https", host="::", port=9473)),
        ("https://192.0.2.1:443", Endpoint("https", host="192.0.2.1", port=443)),
    ],
)
def test_what_is_accepted(listen: str, endpoint: Endpoint) -> None:
    assert endpoint_of(listen) == endpoint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listen: http://192.0.2.1:9473", "loopback"),
        ("listen: http://0.0.0.0:9473", "loopback"),
        ("listen: http://localhost:9473", "IP address"),
        ("listen: ':9473'", "unix:/PATH, http"),
        ("listen: http://127.0.0.1:0", "port"),
        ("listen: http://127.0.0.1:65536", "port"),
        ("listen: unix:metrics.sock", "absolute"),
        ("listen: unix:/run/../etc/x", "absolute"),
        ("listen: https://[::]:9473", "needs certificate and key"),
        ("{listen: 'http://127.0.0.1:1', key: /k}", "for listen: https"),
        ("{listen: 'https://[::]:1', certificate: c, key: /k}", "absolute"),
        ("{listn: x}", "listen"),
    ],
)
def test_what_is_refused_has_a_place_and_says_what_was_expected(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "openperouter.yaml"
    file.write_text(f"metrics:\n  {text}\n" if not text.startswith("{") else f"metrics: {text}\n")
    settings, problems = load_settings(file, tmp_path / "conf.d")
    assert any(message in problem.message and problem.origin.line for problem in problems), problems
    assert settings.metrics.listen is None
