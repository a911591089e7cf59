"""Sign what this node writes to the API, so that an object that is only labelled alike is not mistaken for it.

A mirrored object carries a keyed digest of its identity. The key never leaves the node, so no one else can make one; a
copy is not valid under another name. An object without it is a user's, whatever its labels say.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from config.api import PROOF_ANNOTATION, ApiObject
from config.problems import ResourceId
from supervisor.process.atomic_file import write_atomic

KEY_FILE: Final = "mirror-key"
_KEY_BYTES: Final = 32


def mirror_key(state_dir: Path) -> bytes:
    """Return this node's key; create it (mode 0600) where there is none or a damaged one. Raises :class:`OSError`.

    Concurrent callers, in this process or another, get the same key.
    """
    path = state_dir / KEY_FILE
    if key := _read(path):
        return key
    with _locked(state_dir):
        # Another process may have created it meanwhile.
        key = _read(path)
        if not key:
            key = secrets.token_bytes(_KEY_BYTES)
            write_atomic(path, key, mode=0o600)
        return key


def _read(path: Path) -> bytes:
    """Return the key in a file, empty when there is none in it."""
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return b""
    return key if len(key) == _KEY_BYTES else b""


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold a lock on a directory, which leaves no file behind and ends with the process."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def proof(key: bytes, resource: ResourceId) -> str:
    """Return the signature of an object's identity."""
    text = f"{resource.kind}/{resource.namespace}/{resource.name}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def is_ours(key: bytes, candidate: ApiObject) -> bool:
    """Whether this node wrote the object."""
    given = candidate.annotations.get(PROOF_ANNOTATION, "")
    return hmac.compare_digest(given.encode(), proof(key, candidate.id).encode())
