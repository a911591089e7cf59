"""Removes secrets from any text.

Two filters, one after the other. Known secrets are replaced wherever they occur, also in the notations of our files,
of JSON, of URLs and of base64. What only looks like a secret, by the words before it, is replaced as well: FRR's
grammar, assignments of keys named like passwords, keys and tokens of Kubernetes. When in doubt it hides.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote

from config.syntax.frr_secrets import HIDDEN, redact

#: A shorter secret is replaced only as a whole word, or nothing would be left of the text.
SHORT: Final = 5

#: ``key: value``, ``key=value``, ``"key": "value"``: in YAML, JSON, environment files, sysctl and systemd's units.
_ASSIGNMENT: Final = re.compile(
    r"(?<![\w.-])(?P<key>[\w.-]*"
    r"(?:passw(?:or)?d|passphrase|secret|token|credential|api[_-]?key|private[_-]?key|key-?data|fastopen_key|rss_key|psk)"
    r"[\w.-]*)[\"']?[ \t]*(?P<sign>[:=])[ \t]*(?=\S)",
    re.IGNORECASE,
)
#: Keys that only name a file or an object which holds a secret.
_REFERENCE: Final = re.compile(r"password[-_]?secret(?:ref|name)?", re.IGNORECASE)
#: What a key in double quotes may have in JSON: only this value is hidden, so that the document stays readable.
_JSON_VALUE: Final = re.compile(r'"(?:[^"\\]|\\.)*"(?=\s*(?:[,}\]]|$))|[\w.+-]+(?=\s*(?:[,}\]]|$))')
#: A block scalar: the value of the key is on the following, deeper indented lines.
_BLOCK: Final = re.compile(r"^[|>][-+\d]*\s*(?:#.*)?$")
_PEM: Final = re.compile(r"-----BEGIN [A-Z ]*-----.*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL)
#: A JSON web token, as Kubernetes' service accounts have: three parts of base64url, the first an encoded ``{"``.
_JWT: Final = re.compile(r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?")
_BEARER: Final = re.compile(r"(?P<before>\b(?:bearer|basic)[ \t]+)(?P<value>[\w.~+/=-]{8,})", re.IGNORECASE)
_IN_URL: Final = re.compile(r"(?P<before>://[^/\s:@]*:)(?P<value>[^@\s/]+)(?=@)")


class Redactor:
    """Holds the known secrets; :meth:`clean` removes them and anything that looks like another."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if secret for form in _forms(secret)}
        # The longest first: a secret may be a part of another.
        self._known = sorted(forms, key=lambda form: (-len(form), form))

    def __repr__(self) -> str:
        return "Redactor(********)"

    def clean(self, text: str) -> str:
        """Return the text without secrets; lines stay lines."""
        # Known ones first: what looks like a secret hides the rest of its line only.
        found = text
        for form in self._known:
            # Searching first makes this quick: hardly any text has any of them.
            if form in found:
                found = _without(form, found)
        found = _PEM.sub(HIDDEN, found)
        found = _JWT.sub(HIDDEN, found)
        found = _BEARER.sub(_stars, found)
        found = _IN_URL.sub(_stars, found)
        return redact("\n".join(_lines(found)))


def _stars(match: re.Match[str]) -> str:
    return f"{match['before']}{HIDDEN}"


def _lines(text: str) -> Iterator[str]:
    """Yield each line without assigned secrets; lines that continue such an assignment are left out."""
    deeper_than: int | None = None
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip())
        if deeper_than is not None and (not line.strip() or indent > deeper_than):
            continue
        deeper_than = None
        shown: list[str] = []
        start = 0
        while match := _assignment(line, start):
            shown.append(line[start : match.end()])
            value = _JSON_VALUE.match(line, match.end()) if _is_json_key(match) else None
            if value is None:
                if match["sign"] == ":" and line[match.end()] in "|>" and _BLOCK.match(line[match.end() :]):
                    deeper_than = indent
                shown.append(HIDDEN)
                start = len(line)
                break
            shown.append(f'"{HIDDEN}"')
            start = value.end()
        yield "".join((*shown, line[start:]))


def _assignment(line: str, start: int) -> re.Match[str] | None:
    """Return the next assignment of what may be a secret."""
    found = _ASSIGNMENT.finditer(line, start)
    return next((one for one in found if not _REFERENCE.fullmatch(one["key"])), None)


def _is_json_key(match: re.Match[str]) -> bool:
    before, after = match.string[max(match.start() - 1, 0) : match.start()], match.string[match.end("key")]
    return before == after == '"' and match["sign"] == ":"


def _without(form: str, text: str) -> str:
    if len(form) >= SHORT:
        return text.replace(form, HIDDEN)
    return re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", HIDDEN, text)


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret in every notation that may occur in text."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield secret.replace("'", "''")
    yield repr(secret)[1:-1]
    yield quote(secret, safe="")
    if len(secret) >= SHORT:
        yield from _encoded(secret)
        yield secret.encode().hex()


def _encoded(secret: str) -> Iterator[str]:
    """Yield the base64 of a secret, with and without a line end, without the padding that may follow."""
    for text in (secret, f"{secret}\n"):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(text.encode()).decode().rstrip("=")
