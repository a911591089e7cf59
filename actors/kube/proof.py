"""Telling what this node wrote to the API from what somebody labelled to look so.

A mirrored object carries a keyed digest of its identity. The key never leaves the node, so nobody else can make one; a
copy is worth nothing under another name. An object without it is a user's, whatever its labels say.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Final

from config.api import PROOF_ANNOTATION, ApiObject
from config.desired import ResourceId
from supervisor.atomic_file import write_atomic

KEY_FILE: Final = "mirror-key"
_KEY_BYTES: Final = 32


def mirror_key(state_dir: Path) -> bytes:
    """Return this node's key, making it (mode 0600) where there is none or a damaged one. Raises :class:`OSError`."""
    path = state_dir / KEY_FILE
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        key = b""
    if len(key) != _KEY_BYTES:
        key = secrets.token_bytes(_KEY_BYTES)
        write_atomic(path, key, mode=0o600)
    return key


def proof(key: bytes, resource: ResourceId) -> str:
    """Return what proves that the holder of the key wrote the object of this identity."""
    text = f"{resource.kind}/{resource.namespace}/{resource.name}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def is_ours(key: bytes, candidate: ApiObject) -> bool:
    """Whether this node wrote the object."""
    given = candidate.annotations.get(PROOF_ANNOTATION, "")
    return hmac.compare_digest(given.encode(), proof(key, candidate.id).encode())
