"""The life of the webhook's certificates, day by day, and what a client that has the bundle accepts."""

from __future__ import annotations

import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtensionOID

from actors.webhook.certificates import SERVING_LIFE, Stored, expiry, next_step, stored_in
from actors.webhook.server import serving_context

NAMES = ("openperouter-webhook.openperouter-system.svc",)
NOW = datetime.now(UTC).replace(microsecond=0)


def begun(now: datetime = NOW) -> Stored:
    made = next_step(None, "", NAMES, now)
    assert made is not None
    return made


def accepted(stored: Stored, bundle: str, name: str = NAMES[0]) -> bool:
    """Whether a client that trusts a bundle accepts the server, by a handshake in memory."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cadata=bundle)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    server = serving_context(stored).wrap_bio(outgoing, incoming, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return client.version() is not None and client.getpeercert() is not None


def test_what_is_issued_is_accepted_under_its_names_only() -> None:
    stored = begun()
    assert accepted(stored, stored.bundle)
    assert not accepted(stored, stored.bundle, "another.svc")
    assert not accepted(stored, begun().bundle)


def test_nothing_is_done_while_all_is_young() -> None:
    stored = begun()
    for days in range(0, 40, 5):
        assert next_step(stored, stored.bundle, NAMES, NOW + timedelta(days=days)) is None


def test_the_serving_certificate_is_renewed_long_before_its_end_by_the_same_authority() -> None:
    stored = begun()
    later = NOW + SERVING_LIFE * 0.7
    renewed = next_step(stored, stored.bundle, NAMES, later)
    assert renewed is not None
    assert renewed.bundle == stored.bundle
    assert expiry(renewed) == later + SERVING_LIFE
    assert next_step(renewed, renewed.bundle, NAMES, later) is None


def test_other_names_get_another_certificate() -> None:
    stored = begun()
    renewed = next_step(stored, stored.bundle, ("10.0.0.1",), NOW)
    assert renewed is not None
    assert next_step(renewed, renewed.bundle, ("10.0.0.1",), NOW) is None


def test_a_new_authority_is_trusted_before_it_signs() -> None:
    stored = begun(NOW - timedelta(days=1250))
    served = next_step(stored, stored.bundle, NAMES, NOW - timedelta(days=45))
    assert served is not None
    joined = next_step(served, served.bundle, NAMES, NOW)
    assert joined is not None
    assert joined.certificate == served.certificate
    assert joined.bundle.endswith(stored.bundle)
    assert accepted(joined, stored.bundle)
    assert accepted(joined, joined.bundle)
    # The API server has only the old bundle: nothing is signed by the new authority yet.
    assert next_step(joined, stored.bundle, NAMES, NOW) is None
    last = next_step(joined, joined.bundle, NAMES, NOW)
    assert last is not None
    assert accepted(last, joined.bundle)
    assert not accepted(last, stored.bundle)
    assert next_step(last, last.bundle, NAMES, NOW) is None


@pytest.mark.parametrize("ahead", [timedelta(days=1), timedelta(days=50), timedelta(days=300), timedelta(days=1500)])
def test_what_a_clock_that_was_ahead_has_left_is_replaced(ahead: timedelta) -> None:
    stored = begun(NOW - timedelta(days=1))
    for now in (NOW + ahead, NOW + ahead, NOW, NOW):
        stored = next_step(stored, stored.bundle, NAMES, now) or stored
    assert accepted(stored, stored.bundle)
    assert next_step(stored, stored.bundle, NAMES, NOW) is None


def test_what_was_first_issued_by_a_clock_that_was_ahead_is_replaced() -> None:
    stored = begun(NOW + timedelta(days=1))
    for _ in range(2):
        stored = next_step(stored, stored.bundle, NAMES, NOW) or stored
    assert accepted(stored, stored.bundle)
    assert next_step(stored, stored.bundle, NAMES, NOW) is None


@pytest.mark.parametrize("key", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
@pytest.mark.parametrize("value", [None, "", "%%%", "bm90IFBFTQ=="])
def test_an_incomplete_or_broken_secret_is_none(key: str, value: str | None) -> None:
    data: dict[str, object] = dict(begun().as_data())
    assert stored_in(data) is not None
    if value is None:
        del data[key]
    else:
        data[key] = value
    assert stored_in(data) is None


@pytest.mark.parametrize("days", [0, 50])
def test_a_trusted_bundle_that_cannot_be_read_counts_as_empty(days: int) -> None:
    stored, now = begun(), NOW + timedelta(days=days)
    broken = "-----BEGIN CERTIFICATE-----\nbm9uc2Vuc2U=\n-----END CERTIFICATE-----\n"
    assert (next_step(stored, broken, NAMES, now) is None) == (next_step(stored, "", NAMES, now) is None)


@pytest.mark.parametrize("names", [None, b"", b"nonsense"])
def test_a_stored_certificate_without_readable_names_is_issued_again_by_the_same_authority(names: bytes | None) -> None:
    stored = begun()
    authority = load_pem_private_key(stored.authority_key.encode(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    assert isinstance(authority, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(stored.bundle.encode()).subject
    builder = x509.CertificateBuilder(issuer, x509.Name([]), key.public_key(), 1, NOW, NOW + SERVING_LIFE)
    if names is not None:
        unreadable = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, names)
        builder = builder.add_extension(unreadable, critical=False)
    certificate = builder.sign(authority, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    kept = stored_in(replace(stored, certificate=certificate, key=pem).as_data())
    renewed = next_step(kept, stored.bundle, NAMES, NOW)
    assert renewed is not None
    assert renewed.bundle == stored.bundle
    assert accepted(renewed, stored.bundle)


def test_the_key_of_another_authority_is_not_used() -> None:
    assert stored_in({**begun().as_data(), "ca.key": begun().as_data()["ca.key"]}) is None


def test_keys_are_not_shown() -> None:
    assert "PRIVATE" not in repr(begun())
