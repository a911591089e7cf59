"""The node's kubeconfig as ``hostbridge`` and ``join`` write it: one self-contained file.

Server, authority and token are in the same file, which is replaced atomically. So they always match, whenever the
writer dies, and no path in it can be one that exists only in a pod.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

import yaml

from config.api import ApiCredentials
from supervisor.process.atomic_file import remove_stale, write_atomic

#: It holds a token or a key: readable by root only.
MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
_NAME: Final = "openperouter"


def kubeconfig_text(credentials: ApiCredentials) -> str:
    """Return a self-contained kubeconfig. It is a secret."""
    cluster: dict[str, Any] = {"server": credentials.server}
    if credentials.ca:
        cluster["certificate-authority-data"] = _encoded(credentials.ca)
    if credentials.server_name:
        cluster["tls-server-name"] = credentials.server_name
    if not credentials.verify:
        cluster["insecure-skip-tls-verify"] = True
    user: dict[str, Any] = {}
    if credentials.token is not None:
        user["token"] = credentials.token.reveal()
    if credentials.client_certificate and credentials.client_key is not None:
        user["client-certificate-data"] = _encoded(credentials.client_certificate)
        user["client-key-data"] = _encoded(credentials.client_key.reveal())
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": _NAME, "user": user}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME}}],
        "current-context": _NAME,
    }
    return yaml.safe_dump(document, sort_keys=False)


def write_kubeconfig(path: Path, text: str) -> bool:
    """Replace the file unless it has this text already; return whether it was written. Raises ``OSError``.

    A missing directory is created, accessible to root only.
    """
    path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    remove_stale(path)
    present = path.read_bytes() if path.exists() else b""
    if present == text.encode() and path.stat().st_mode & 0o777 == MODE:
        return False
    write_atomic(path, text, mode=MODE)
    return True


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
