"""When tokens and certificates expire; malformed ones state nothing and raise nothing."""

from __future__ import annotations

import base64
import ssl
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.lib.kube.expiry import certificate_expiry, token_expiry
from tests.actors.lib.kube.kubeconfigs import jwt


@pytest.mark.parametrize("moment", [0, 1_800_000_000, 1_800_000_000.5])
def test_a_token_states_its_expiry(moment: float) -> None:
    assert token_expiry(jwt(exp=moment, sub="system:serviceaccount:a:b")) == moment


@pytest.mark.parametrize(
    "token",
    [
        "",
        "opaque",
        "a.b.c",
        "a.é.c",
        jwt(sub="indefinitely"),
        *(jwt(exp=end) for end in ("soon", True, None, -1, 10**400, 1e300, float("nan"), [1])),
        f"a.{base64.urlsafe_b64encode(b'[1]').decode()}.c",
        f"a.{base64.urlsafe_b64encode(b'[' * 100_000).decode()}.c",
    ],
)
def test_a_token_that_states_no_expiry(token: str) -> None:
    assert token_expiry(token) is None


@given(st.text())
def test_no_token_raises(text: str) -> None:
    for token in (text, f"a.{text}.c"):
        assert isinstance(token_expiry(token), float | None)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("certificate")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj"]
    command += ["/O=system:nodes/CN=system:node:a", "-days", "36500", "-keyout", "key", "-out", "certificate"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return (directory / "certificate").read_text()


def test_a_certificates_expiry_is_the_one_that_openssl_reads(pem: str, tmp_path: Path) -> None:
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-enddate"], input=pem, capture_output=True, text=True, check=True
    ).stdout
    expected = ssl.cert_time_to_seconds(shown.strip().removeprefix("notAfter="))
    # The moment is after 2049, so that this is the later of the two forms of time (RFC 5280, 4.1.2.5).
    assert expected > datetime(2050, 1, 1, tzinfo=UTC).timestamp()
    assert certificate_expiry(f"text before\n{pem}-----BEGIN PRIVATE KEY-----\n") == expected


def test_the_shorter_form_of_time() -> None:
    """kubeadm's certificates: one year."""

    def element(tag: int, *content: bytes) -> bytes:
        inside = b"".join(content)
        return bytes([tag, len(inside)]) + inside

    validity = element(0x30, element(0x17, b"250102030405Z"), element(0x17, b"260102030405Z"))
    before = (element(0xA0, b"\2\1\2"), element(2, b"\1"), element(0x30), element(0x30))
    der = element(0x30, element(0x30, *before, validity))
    expected = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
    assert certificate_expiry(ssl.DER_cert_to_PEM_cert(der)) == expected


@given(st.binary())
def test_no_certificate_raises(data: bytes) -> None:
    assert certificate_expiry(ssl.DER_cert_to_PEM_cert(data)) is None


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_no_damaged_certificate_raises(pem: str, place: int, value: int) -> None:
    der = bytearray(ssl.PEM_cert_to_DER_cert(pem))
    der[place % len(der)] = value
    found = certificate_expiry(ssl.DER_cert_to_PEM_cert(bytes(der)))
    assert found is None or isinstance(found, float)


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----", "nonsense"])
def test_what_is_no_certificate(text: str) -> None:
    assert certificate_expiry(text) is None
