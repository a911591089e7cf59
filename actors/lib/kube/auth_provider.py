"""The legacy auth providers of kubeconfigs (gcp, oidc and others), as a credential plugin that runs as a program.

kubectl dropped them with version 1.26. The official client library still refreshes their tokens; it takes 61 MiB and
seconds to import, and blocks, so it runs in a process of its own. Standard input: the ``auth-provider`` entry (JSON).
Standard output: an ExecCredential; with exit code 1 instead one line that says what is wrong and quotes no value.
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from typing import Any, Final

VERSION: Final = "client.authentication.k8s.io/v1"


def main() -> None:
    """Answer on standard output, where nothing that the library prints must appear."""
    provider = json.load(sys.stdin)
    try:
        with redirect_stdout(sys.stderr):
            status = _status(provider)
    except ImportError as error:
        sys.exit(_fail(f"the Python package '{(error.name or 'kubernetes').partition('.')[0]}' is not installed"))
    except Exception as error:  # noqa: BLE001 - the library fails in many ways on what it does not understand
        sys.exit(_fail(type(error).__name__))
    json.dump({"apiVersion": VERSION, "kind": "ExecCredential", "status": status}, sys.stdout)


def _status(provider: Any) -> dict[str, str]:
    from kubernetes.client import Configuration  # type: ignore[import-untyped]
    from kubernetes.config.kube_config import KubeConfigLoader  # type: ignore[import-untyped]

    loader = KubeConfigLoader(
        {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": {"server": "http://x"}}],
            "users": [{"name": "x", "user": {"auth-provider": provider}}],
        }
    )
    configuration = Configuration()
    loader.load_and_set(configuration)
    configuration.refresh_api_key_hook = None  # It would ask the provider again.
    # Where the library keeps the token changed with version 37; the header that it would send did not.
    header = str(configuration.auth_settings().get("BearerToken", {}).get("value") or "")
    expiry = vars(loader).get("expiry")
    ends = {"expirationTimestamp": expiry.isoformat()} if expiry else {}
    return {"token": header.removeprefix("Bearer ").strip(), **ends}


def _fail(reason: str) -> int:
    sys.stdout.write(reason + "\n")
    return 1


if __name__ == "__main__":
    main()
