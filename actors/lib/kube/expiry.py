"""When tokens and certificates expire, and for which node a token is, as far as they state it.

Nothing is verified here: the server does that. A token or certificate that cannot be decoded states nothing. The few
lines of DER are here because Python's ssl module decodes only certificates of a connection, and the daemon on a
node should not load python3-cryptography, megabytes of code, for one date: only the webhook does.
"""

from __future__ import annotations

import base64
import binascii
import json
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

#: DER tags (ITU-T X.690) up to a certificate's validity (RFC 5280, section 4.1).
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
#: The end of the year 9999, the last that datetime can represent.
_LAST: Final = 253402300799


def token_expiry(token: str) -> float | None:
    """Return when a JWT expires (its ``exp``, RFC 7519), in Unix seconds; None for one without, or no JWT."""
    seconds = _claims(token).get("exp")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= _LAST:
        return None
    return float(seconds)


def token_node(token: str) -> str | None:
    """Return the node to which a ServiceAccount's token is bound, "" for none; None for another kind of token."""
    about = _claims(token).get("kubernetes.io")
    if not isinstance(about, dict):
        return None
    node = about.get("node")
    return str(node.get("name") or "") if isinstance(node, dict) else ""


def _claims(token: str) -> dict[str, Any]:
    """Return what a JWT says, nothing for one that cannot be decoded."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def certificate_expiry(pem: str) -> float | None:
    """Return when a PEM text's first certificate expires (``notAfter``), in Unix seconds; None for what is not one."""
    begin = pem.find("-----BEGIN CERTIFICATE-----")
    end = pem.find("-----END CERTIFICATE-----", begin)
    if begin < 0 or end < 0:
        return None
    try:
        der = ssl.PEM_cert_to_DER_cert(pem[begin:end] + "-----END CERTIFICATE-----")
        return _not_after(der)
    except (ValueError, IndexError, StopIteration, binascii.Error):
        return None


def _not_after(der: bytes) -> float:
    certificate = next(_elements(der))[1]
    fields = [one for one in _elements(next(_elements(certificate))[1]) if one[0] != _VERSION]
    # Serial number, signature algorithm, issuer, validity.
    tag, validity = fields[3]
    if tag != _SEQUENCE:
        raise ValueError("no validity")
    _, (kind, moment) = _elements(validity)
    formats = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
    if kind not in formats:
        raise ValueError("no time")
    return datetime.strptime(moment.decode("ascii"), formats[kind]).replace(tzinfo=UTC).timestamp()


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the tag and content of each DER element. Raises :class:`IndexError` or :class:`ValueError` for others."""
    place = 0
    while place < len(data):
        tag, length, place = data[place], data[place + 1], place + 2
        if length & 0x80:
            size = length & 0x7F
            length, place = int.from_bytes(data[place : place + size], "big"), place + size
        if place + length > len(data):
            raise ValueError("an element is longer than its parent")
        yield tag, data[place : place + length]
        place += length
