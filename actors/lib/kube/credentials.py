"""From a kubeconfig to credentials, without the official client library in this process.

The library works in a child (:mod:`actors.lib.kube.kubeconfig_reader`) with a deadline, whose answer comes over a pipe.
Errors are one line that names the file and what to mend, and hold no secret, whatever the child did.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from config.api import ApiCredentials
from config.desired import Secret
from config.settings import Settings
from supervisor.process.subprocesses import CommandMissing, CommandTimeout, CommandTooTalkative, Completed, run_command
from supervisor.runtime.faults import DependencyFault

from .expiry import certificate_expiry, token_expiry
from .kubeconfig_reader import digest

#: For one reading: six seconds of import on an emulated machine, and a credentials program that asks a cloud.
LOADING_SECONDS: Final = 60.0
#: Credentials that a program made are renewed this long before they end, or at half their life.
EARLY_SECONDS: Final = 30.0
#: Where our modules are: a checkout, or /usr/share/openperouter.
ROOT: Final = Path(__file__).resolve().parents[3]
SCRATCH_PREFIX: Final = "credentials-"
#: As ``/usr/bin/openperouter`` does it: isolated from the environment and the working directory, our modules first.
_START: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from actors.lib.kube.kubeconfig_reader import main; main()"
)
_TOKEN: Final = re.compile(r"[!-~]+")


class LoadingError(DependencyFault):
    """There are no usable credentials in it; the text says why, in one line.

    ``files`` as in :class:`Loaded`. ``passing``: trying again may help though no file changes.
    """

    def __init__(self, message: str, *, files: Mapping[Path, str], passing: bool = False) -> None:
        super().__init__(message)
        self.files = files
        self.passing = passing


@dataclass(frozen=True, slots=True)
class Loaded:
    """Credentials, and what they depend on.

    ``files`` has what :func:`actors.lib.kube.kubeconfig_reader.digest` said, when they were read, of every file that
    matters, those that are not there included; ``private`` are those with a secret in them. ``program`` is what was
    asked for the credentials: they may change without any file changing.
    """

    credentials: ApiCredentials
    files: Mapping[Path, str] = field(default_factory=dict)
    private: tuple[Path, ...] = ()
    program: str = ""


def kubeconfig_path(settings: Settings) -> Path:
    """Return where this node's kubeconfig is, or will be."""
    return settings.kubeconfig or settings.credentials_dir / "kubeconfig"


async def load(
    kubeconfig: Path,
    *,
    scratch: Path | None = None,
    programs: bool = True,
    seconds: float = LOADING_SECONDS,
    wall: Callable[[], float] = time.time,
) -> Loaded:
    """Read a kubeconfig. Raises :class:`LoadingError`.

    Keys may be in files for a moment, below ``scratch`` (None: the system's temporary directory), which should be in
    memory. ``programs`` False runs no program and leaves keys alone: to look at the rest.
    """
    with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=scratch) as directory:
        words = (str(kubeconfig), directory, "yes" if programs else "no")
        argv = (sys.executable, "-I", "-c", _START, str(ROOT), *words)
        try:
            done = await run_command(argv, seconds=seconds)
        except CommandTimeout:
            told = f"{kubeconfig}: reading it took longer than {seconds:g} s: a program that it names hangs"
            raise _silent(kubeconfig, told) from None
        except (CommandMissing, CommandTooTalkative) as error:
            raise _silent(kubeconfig, f"{kubeconfig}: cannot be read: {error}") from None
    return _understood(kubeconfig, done, wall())


def remove_stale(scratch: Path) -> None:
    """Remove what a killed process left in ``scratch``."""
    for directory in scratch.glob(f"{SCRATCH_PREFIX}*"):
        for file in directory.iterdir():
            file.unlink(missing_ok=True)
        directory.rmdir()


def _silent(kubeconfig: Path, message: str) -> LoadingError:
    """Return the error of a child that did not say which files matter."""
    return LoadingError(message, files={kubeconfig: digest(kubeconfig)}, passing=True)


def _understood(kubeconfig: Path, done: Completed, now: float) -> Loaded:
    try:
        document = json.loads(done.stdout) if done.returncode == 0 else None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        # Its standard error may hold anything.
        told = f"{kubeconfig}: cannot be read: the process that reads it failed ({_ending(done.returncode)})"
        raise _silent(kubeconfig, told)
    files = {Path(path): found for path, found in document["files"].items()}
    if "error" in document:
        raise LoadingError(document["error"], files=files, passing=document["passing"])
    complaint = _complaint(document)
    if complaint:
        raise LoadingError(f"{kubeconfig}: {complaint}", files=files)
    private = tuple(Path(path) for path in document["private"])
    return Loaded(_credentials(kubeconfig, document, now), files, private, document["program"])


def _ending(returncode: int) -> str:
    return f"signal {-returncode}" if returncode < 0 else f"exit code {returncode}"


def _complaint(document: Mapping[str, Any]) -> str:
    """Say what is wrong with values that a request would be made of, without quoting them."""
    if document["token"] and not _TOKEN.fullmatch(document["token"]):
        return "the token has characters that no token has"
    if bool(document["client_key"]) > bool(document["client_certificate"]):
        return "a client-key without a client-certificate"
    try:
        server = urlsplit(document["server"])
        port = server.port
    except ValueError:
        return "server is not a URL"
    return _server_complaint(server, port)


def _server_complaint(server: SplitResult, port: int | None) -> str:
    if server.scheme not in ("https", "http") or not server.hostname or port == 0:
        return "server must be https://HOST[:PORT]"
    if server.username or server.password:
        return "server must not have a user or password in it"
    if server.query or server.fragment or not server.geturl().isascii() or not server.geturl().isprintable():
        return "server is not a plain URL"
    return ""


def _credentials(kubeconfig: Path, document: Mapping[str, Any], now: float) -> ApiCredentials:
    token, key = document["token"], document["client_key"]
    return ApiCredentials(
        server=document["server"],
        source=str(kubeconfig),
        ca=document["ca"],
        token=Secret(token) if token else None,
        client_certificate=document["client_certificate"],
        client_key=Secret(key) if key else None,
        server_name=document["server_name"],
        verify=document["verify"],
        expires_at=_expiry(document, now),
    )


def _expiry(document: Mapping[str, Any], now: float) -> float | None:
    """Return when to load again: when something in it ends; earlier when a program can be asked for something newer."""
    said = (
        document["expires_at"],
        token_expiry(document["token"]),
        certificate_expiry(document["client_certificate"]),
    )
    end = min((moment for moment in said if moment is not None), default=None)
    if end is None or not document["program"]:
        return end
    return end - min(EARLY_SECONDS, max(0.0, (end - now) / 2))
