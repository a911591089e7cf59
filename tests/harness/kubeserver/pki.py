"""The certificates of one server: its own authority, its own certificate, and one for each identity that talks to it.

The API server takes a client certificate's common name for the user and its organizations for the groups, so anybody
can be made up at any time.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .errors import ClusterError

#: What a server on the loopback is called; the last two are how QEMU guests with user networking reach it.
SERVER_NAMES: Final = ("IP:127.0.0.1", "DNS:localhost", "IP:10.0.2.2", "IP:10.0.3.2")
_DAYS: Final = "7"
_SECONDS: Final = 120
#: Nothing of the machine's own OpenSSL configuration: it adds extensions of its own.
_CONFIGURATION: Final = "[req]\ndistinguished_name = subject\n[subject]\n"
_AUTHORITY: Final = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
_LEAF: Final = ("basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates; everything is in ``directory``."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._configuration = directory / "openssl.cnf"
        self._configuration.write_text(_CONFIGURATION)
        self.pair = self._make("ca", "/CN=test cluster", _AUTHORITY)

    def server(self, name: str) -> Pair:
        """Return a server's certificate for the loopback."""
        extensions = (*_LEAF, "extendedKeyUsage=serverAuth", f"subjectAltName={','.join(SERVER_NAMES)}")
        return self._make(name, "/CN=kube-apiserver", extensions, signed=True)

    def client(self, name: str, user: str, groups: Iterable[str] = ()) -> Pair:
        """Return the certificate of a user who is in these groups."""
        subject = "".join(f"/O={_escaped(group)}" for group in groups) + f"/CN={_escaped(user)}"
        return self._make(name, subject, (*_LEAF, "extendedKeyUsage=clientAuth"), signed=True)

    def key(self, name: str) -> Path:
        """Return a bare key, such as the one that signs ServiceAccounts' tokens."""
        path = self._directory / f"{name}.key"
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path))
        return path

    def _make(self, name: str, subject: str, extensions: Sequence[str], *, signed: bool = False) -> Pair:
        pair = Pair(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        by = ["-CA", str(self.pair.certificate), "-CAkey", str(self.pair.key)] if signed else []
        self._openssl(
            *("req", "-x509", "-config", str(self._configuration), "-days", _DAYS, "-subj", subject, *by),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", str(pair.key), "-out", str(pair.certificate)),
            *(word for extension in extensions for word in ("-addext", extension)),
            *("-addext", "subjectKeyIdentifier=hash", "-addext", "authorityKeyIdentifier=keyid"),
        )
        return pair

    def _openssl(self, *arguments: str) -> None:
        done = subprocess.run(
            ["openssl", *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=self._directory
        )
        if done.returncode != 0:
            raise ClusterError(f"openssl {arguments[0]}: exit {done.returncode}\n{done.stderr[-1000:]}")


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("/", "\\/")
