"""Kubeconfigs as people, kubeadm, cloud tools and upstream's credentials proxy write them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import yaml

SERVER = "https://192.0.2.10:6443"
#: Planted: none of them may ever show up in a message.
TOKEN = "planted-token-4711"
PASSWORD = "planted-password-4711"
KEY = "-----BEGIN PRIVATE KEY-----\nplanted-key-4711\n-----END PRIVATE KEY-----\n"
PLANTED = (TOKEN, PASSWORD, "planted-key-4711", base64.b64encode(KEY.encode()).decode())
CA = "-----BEGIN CERTIFICATE-----\nY2E=\n-----END CERTIFICATE-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nY2xpZW50\n-----END CERTIFICATE-----\n"

Json = dict[str, Any]


def base64_of(text: str) -> str:
    """Return a text as ``*-data`` keys hold it."""
    return base64.b64encode(text.encode()).decode()


def kubeconfig(user: Json | None = None, cluster: Json | None = None, current: str = "x", **changes: Any) -> str:
    """Return a kubeconfig of one context; ``changes`` replaces whole keys."""
    data = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": SERVER, **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": TOKEN} if user is None else user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": current,
        **changes,
    }
    return yaml.safe_dump(data, sort_keys=False)


def hostbridge(directory: Path) -> Path:
    """Write what upstream's credentials proxy writes (reference 8.6): it names files by its own container's paths."""
    user, cluster = {"tokenFile": "/shared/token"}, {"certificate-authority": "/shared/ca.crt"}
    (directory / "kubeconfig").write_text(kubeconfig(user, cluster))
    (directory / "token").write_text(TOKEN)
    (directory / "ca.crt").write_text(CA)
    (directory / "namespace").write_text("openperouter-system")
    return directory / "kubeconfig"


def program(directory: Path, body: str) -> Json:
    """Write a credentials program, a shell script, and return the user that names it."""
    path = directory / "give-credentials"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "interactiveMode": "Never"}}


def credential(**status: Any) -> str:
    """Return what a credentials program prints, as a shell command."""
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"cat <<'END'\n{json.dumps(answer)}\nEND"


def jwt(**claims: Any) -> str:
    """Return a token with claims, as Kubernetes gives out, with a signature that no server accepts."""
    head, body = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims))
    return f"{head}.{body}.c2lnbmF0dXJl"
