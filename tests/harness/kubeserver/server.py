"""A Kubernetes API server of our own: etcd and kube-apiserver on the loopback, with nothing else of a cluster.

No controller runs by itself (see :mod:`.controllers`): a namespace that is deleted stays ``Terminating``, owner
references collect nothing, no ServiceAccount is made by itself. Nodes are objects that the tests write. Authorization
is Node and RBAC, as in a cluster made by kubeadm; who is who is said by client certificates, by ServiceAccounts'
tokens, or by the one token of ``admin`` (group ``system:masters``).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shutil
import signal
import socket
import ssl
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from . import build, etcd
from .daemon import Daemon
from .errors import ClusterError
from .pki import Authority, Pair

#: Ready 1.3 s after its start on an idle machine; the rest is for a busy one.
READY_SECONDS: Final = 300
_POLL_SECONDS: Final = 0.1
_PREFIX: Final = "kubeserver-"
#: Below Linux' range of ports for outgoing connections, so none of these takes a stopped server's port by chance.
_PORTS: Final = range(20000, 32000)
_AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


class ApiServer:
    """One server; its data and its address last from ``start`` to ``discard``, through any number of stops.

    ``logs`` is the directory where its words are kept: ``kube-apiserver.log``, ``etcd.log``, ``audit.log``.
    """

    def __init__(self, release: build.Release = build.NEWEST, *, logs: Path | None = None) -> None:
        self.release = release
        self.directory = _claim_directory()
        self.logs = logs or self.directory / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(self.directory / "pki")
        self.admin_token = secrets.token_urlsafe(24)
        self.port, self._etcd_port, self._peer_port = _free_ports(3)
        self._names = 0
        self._etcd = Daemon(self._etcd_command(), self.logs / "etcd.log")
        self._server = Daemon(self._server_command(), self.logs / "kube-apiserver.log")

    @property
    def url(self) -> str:
        """The server's address."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca(self) -> str:
        """The certificate that vouches for the server, as PEM."""
        return self.authority.pair.certificate.read_text()

    def start(self) -> None:
        """Start what does not run, and wait until it is ready: one to three seconds. Any thread may call it."""
        self._etcd.start()
        self._server.start()
        self.resume()
        deadline = time.monotonic() + READY_SECONDS
        while not self._is_ready():
            self._fail_if_dead_or_late(deadline)
            time.sleep(_POLL_SECONDS)

    def stop(self, number: int = signal.SIGKILL) -> None:
        """End kube-apiserver: connections break, new ones are refused. The data stay. Idempotent."""
        self._server.kill(number)

    def pause(self) -> None:
        """Let kube-apiserver stand still: connections stay and are silent, new ones are accepted and not answered."""
        self._server.pause()

    def resume(self) -> None:
        """Undo ``pause``."""
        self._server.signal(signal.SIGCONT)

    def discard(self) -> None:
        """End everything and delete the data; logs of the caller's own directory stay. Idempotent."""
        self._server.kill()
        self._etcd.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def client_certificate(self, user: str, groups: Iterable[str] = ()) -> Pair:
        """Return the certificate of a user who is in these groups; no user object is needed."""
        self._names += 1
        return self.authority.client(f"client-{self._names}", user, groups)

    def admin_kubeconfig(self) -> Path:
        """Write what kubectl and controllers need to be the administrator, for us alone, and return where."""
        cluster = {"server": self.url, "certificate-authority": str(self.authority.pair.certificate)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "admin",
            "contexts": [{"name": "admin", "context": {"cluster": "test", "user": "admin"}}],
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self.admin_token}}],
        }
        path = self.directory / "admin.kubeconfig"
        with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            json.dump(content, file)
        return path

    def compact(self) -> None:
        """Forget all history: pages of a list that was begun before, and watches from then, are gone (410)."""
        address = f"http://127.0.0.1:{self._etcd_port}/v3/kv"
        # A key that is not there: what is asked for is the revision in the header of the answer.
        header = _post(f"{address}/range", {"key": "AA=="})["header"]
        _post(f"{address}/compaction", {"revision": header["revision"], "physical": True})

    def audit(self) -> list[dict[str, Any]]:
        """Return what was asked of the server so far, oldest first: audit.k8s.io/v1 Events of level Metadata.

        Of interest are ``verb``, ``user.username``, ``objectRef`` and ``responseStatus.code``. An answered request is
        there when its answer arrives; a watch is there from its start (stage ResponseStarted) and again from its end.
        """
        return self.audit_from(0)[0]

    def audit_from(self, position: int) -> tuple[list[dict[str, Any]], int]:
        """Return what was asked after a position in the log, and the position after that."""
        path = self.logs / "audit.log"
        if not path.exists():
            return [], position
        with path.open("rb") as log:
            log.seek(position)
            # The server may be in the middle of a line.
            whole, end, _ = log.read().rpartition(b"\n")
        return [json.loads(line) for line in whole.splitlines()], position + len(whole + end)

    def _is_ready(self) -> bool:
        context = ssl.create_default_context(cadata=self.ca)
        request = urllib.request.Request(  # noqa: S310 - always https
            f"{self.url}/readyz", headers={"Authorization": f"Bearer {self.admin_token}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5, context=context) as answer:  # noqa: S310
                return bool(answer.read() == b"ok")
        except (urllib.error.URLError, OSError):
            return False

    def _fail_if_dead_or_late(self, deadline: float) -> None:
        for daemon in (self._etcd, self._server):
            if not daemon.running:
                raise ClusterError(f"{daemon.log.stem} ended\n{daemon.log.read_text(errors='replace')[-3000:]}")
        if time.monotonic() > deadline:
            log = self._server.log.read_text(errors="replace")[-3000:]
            raise ClusterError(f"kube-apiserver is not ready after {READY_SECONDS} s\n{log}")

    def _etcd_command(self) -> list[str]:
        clients, peers = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        return [
            *(str(etcd.ensure()), "--name", "default", "--data-dir", str(self.directory / "etcd")),
            *("--listen-client-urls", clients, "--advertise-client-urls", clients),
            *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
            *("--initial-cluster", f"default={peers}", "--logger", "zap", "--log-level", "warn"),
            # The data are thrown away: they need not survive the machine.
            "--unsafe-no-fsync",
        ]

    def _server_command(self) -> list[str]:
        [program] = build.ensure([build.api_server(self.release)])
        serving, signer = self.authority.server("server"), self.authority.key("service-accounts")
        tokens, policy = self.directory / "tokens.csv", self.directory / "audit-policy.json"
        tokens.write_text(f"{self.admin_token},admin,admin,system:masters\n")
        policy.write_text(json.dumps(_AUDIT_POLICY))
        options = {
            "etcd-servers": f"http://127.0.0.1:{self._etcd_port}",
            "bind-address": "127.0.0.1",
            "secure-port": self.port,
            # No client looks the server up in the cluster, so it needs no address of this machine.
            "advertise-address": "192.0.2.1",
            "endpoint-reconciler-type": "none",
            "tls-cert-file": serving.certificate,
            "tls-private-key-file": serving.key,
            "client-ca-file": self.authority.pair.certificate,
            "token-auth-file": tokens,
            "service-account-key-file": signer,
            "service-account-signing-key-file": signer,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-cluster-ip-range": "10.96.0.0/24",
            "authorization-mode": "Node,RBAC",
            # As kubeadm has it; the router's pod is privileged.
            "allow-privileged": "true",
            "audit-policy-file": policy,
            "audit-log-path": self.logs / "audit.log",
        }
        return [str(program), *(f"--{name}={value}" for name, value in options.items())]


@contextlib.contextmanager
def running(release: build.Release = build.NEWEST, *, logs: Path | None = None) -> Iterator[ApiServer]:
    """Yield a server that is ready, and discard it afterwards."""
    server = ApiServer(release, logs=logs)
    try:
        server.start()
        yield server
    finally:
        server.discard()


def _claim_directory() -> Path:
    """Make a directory for a server's data, and remove those that killed processes have left."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = left.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", owner).exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, data=json.dumps(body).encode())  # noqa: S310 - our own etcd
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return dict(json.loads(answer.read()))


def _free_ports(count: int) -> list[int]:
    """Return ports of the loopback that are free, all different."""
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            port = random.choice(_PORTS)  # noqa: S311 - not a secret
            probe = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                ports.append(port)
        return ports
