"""The webhook's own authority and serving certificate, and when they are renewed; pure apart from the random keys.

    stored certificates, trusted bundle, time ──> next_step ──> certificates to store

Replicas share one Secret. A new authority is trusted before it signs anything: first it is added to the bundle, and
once the API server has that bundle the new authority issues the serving certificate. So the API server can always
verify the certificate that is served.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE: Final = timedelta(days=1825)
SERVING_LIFE: Final = timedelta(days=60)
#: How long before its issue a certificate is valid: clocks differ.
_EARLIER: Final = timedelta(hours=1)
#: A certificate is renewed after this share of its lifetime.
_RENEWED_AFTER: Final = 2 / 3
_KEYS: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key")


@dataclass(frozen=True, slots=True)
class Stored:
    """The Secret's content, PEM: authorities, newest first, the newest one's key, serving certificate and key."""

    bundle: str
    authority_key: str
    certificate: str
    key: str

    def __repr__(self) -> str:
        return "Stored(...)"

    def as_data(self) -> dict[str, str]:
        """Return a Secret's data."""
        values = (self.bundle, self.authority_key, self.certificate, self.key)
        return {key: base64.b64encode(value.encode()).decode() for key, value in zip(_KEYS, values, strict=True)}


def stored_in(data: Mapping[str, object] | None) -> Stored | None:
    """Return the content of a Secret's data; None if it is incomplete or unusable."""
    try:
        found = Stored(*(base64.b64decode(str((data or {})[key]), validate=True).decode() for key in _KEYS))
        _Issuer.of(found)
        _leaf(found)
        load_pem_private_key(found.key.encode(), None)
    except (KeyError, binascii.Error, ValueError, TypeError):
        return None
    return found


def next_step(stored: Stored | None, trusted: str, names: Sequence[str], now: datetime) -> Stored | None:
    """Return what to store instead of ``stored``, None to keep it.

    ``trusted`` is the bundle that the API server has now, ``names`` are the names in the certificate.
    """
    if stored is None:
        issuer = _Issuer.make(now)
        return Stored(issuer.pem(), issuer.key_pem(), *issuer.issue(names, now))
    issuer, leaf = _Issuer.of(stored), _leaf(stored)
    if _is_due(issuer.certificate, now):
        newer = _Issuer.make(now)
        kept = [one for one in _certificates(stored.bundle) if one.not_valid_after_utc > now]
        return Stored(newer.pem() + "".join(map(_pem, kept[:2])), newer.key_pem(), stored.certificate, stored.key)
    is_trusted = _is_in(issuer.certificate, trusted)
    ours = issuer.has_issued(leaf)
    late = _is_due(leaf, now) or _names_of(leaf) != set(names)
    if (late and (ours or is_trusted)) or (not ours and is_trusted) or leaf.not_valid_after_utc <= now:
        return Stored(stored.bundle, stored.authority_key, *issuer.issue(names, now))
    return None


def expiry(stored: Stored) -> datetime:
    """Return when the serving certificate expires."""
    return _leaf(stored).not_valid_after_utc


@dataclass(frozen=True, slots=True)
class _Issuer:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def of(cls, stored: Stored) -> _Issuer:
        """Return the newest authority. Raises ValueError for one that is not usable."""
        key = load_pem_private_key(stored.authority_key.encode(), None)
        bundle = _certificates(stored.bundle)
        if not bundle or not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("no authority")
        newest = bundle[0]
        if _public(newest) != _public(key):
            raise ValueError("the key is not the authority's")
        return cls(newest, key)

    @classmethod
    def make(cls, now: datetime) -> _Issuer:
        key = ec.generate_private_key(ec.SECP256R1())
        # The subject differs, so that a client finds the issuer of a certificate among several authorities.
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"openperouter-webhook-{now:%Y%m%d%H%M%S}")])
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = _builder(name, name, key, now, AUTHORITY_LIFE).add_extension(identifier, critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        return cls(builder.add_extension(usage, critical=True).sign(key, hashes.SHA256()), key)

    def issue(self, names: Sequence[str], now: datetime) -> tuple[str, str]:
        """Return a serving certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "openperouter-webhook")])
        alternative = x509.SubjectAlternativeName([_general(name) for name in names])
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = _builder(subject, self.certificate.subject, key, now, SERVING_LIFE)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(alternative, critical=False).add_extension(identifier, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        return _pem(builder.sign(self.key, hashes.SHA256())), _key_pem(key)

    def has_issued(self, leaf: x509.Certificate) -> bool:
        try:
            leaf.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

    def pem(self) -> str:
        return _pem(self.certificate)

    def key_pem(self) -> str:
        return _key_pem(self.key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - _EARLIER).not_valid_after(now + life)


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether to renew it: long before its end, and where a clock that was ahead issued it, before its beginning."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now < begin or now >= begin + (end - begin) * _RENEWED_AFTER


def _certificates(bundle: str) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(bundle.encode()) if "BEGIN CERTIFICATE" in bundle else []


def _is_in(certificate: x509.Certificate, bundle: str) -> bool:
    """Whether a bundle has a certificate. One that cannot be read has none: the API server cannot read it either."""
    try:
        return certificate in _certificates(bundle)
    except ValueError:
        return False


def _leaf(stored: Stored) -> x509.Certificate:
    return x509.load_pem_x509_certificate(stored.certificate.encode())


def _public(owner: x509.Certificate | ec.EllipticCurvePrivateKey) -> bytes:
    return owner.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _names_of(leaf: x509.Certificate) -> set[str]:
    """Return its names; none where they cannot be read, so that it is issued again."""
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return set()
    return {str(one.value) for one in found}


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)
