"""Reads one kubeconfig with the official client library: the body of a short-lived process.

The library knows contexts, files, inline data, credentials programs and cloud providers; it also costs 61 MiB, a third
of a second (six on an emulated machine), may run a program that hangs, and writes keys into temporary files. All of
that stays in a child, which :mod:`actors.lib.kube.credentials` starts and which prints one JSON document on its
standard output: the credentials, or one line that says what is wrong, and in both cases the files that mattered.

A message names files, keys and names. It never quotes a value, nor what a program printed: either may be a secret.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import logging
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from config.syntax.files import UnreadableFileError, read_bounded
from config.syntax.yaml_reader import MAX_BYTES, InvalidYamlError, parse_yaml

Json = dict[str, Any]

#: Keys that name files, in a cluster and in a user.
_CLUSTER_FILES: Final = ("certificate-authority",)
_USER_FILES: Final = ("client-certificate", "client-key", "tokenFile")
#: The key that holds the same inline, and then counts (for a token it is the file that counts).
_INLINE: Final = {name: f"{name}-data" for name in ("certificate-authority", "client-certificate", "client-key")}
_PRIVATE: Final = frozenset({"client-key", "tokenFile"})
_INSECURE: Final = "insecure-skip-tls-verify"
_PROGRAMS: Final = ("exec", "auth-provider")
#: What would silently mean something else here than to kubectl.
_UNSUPPORTED: Final = {
    "proxy-url": "a node reaches its API server directly",
    "as": "impersonation is not supported",
    "as-uid": "impersonation is not supported",
    "as-groups": "impersonation is not supported",
    "as-user-extra": "impersonation is not supported",
    "username": "Kubernetes takes no passwords since version 1.19; use a token or a certificate",
    "password": "Kubernetes takes no passwords since version 1.19; use a token or a certificate",
}
#: What the library says of a credentials program, and what we say: its own words may quote what the program printed.
_PROGRAM_FAULTS: Final = (
    (re.compile(r"exec: process returned (-?\d+)"), "it ended with code {}"),
    (re.compile(r"\[Errno \d+\] ([^:'\"]+)"), "{}"),
    (re.compile(r"exec: failed to decode"), "what it printed is not JSON"),
    (re.compile(r"exec: plugin api version"), "it answers in another API version than the kubeconfig asks for"),
    (re.compile(r"exec: malformed"), "its answer is not complete"),
    (re.compile(r"exec: missing"), "its answer has neither a token nor a certificate with a key"),
)


class UnusableError(Exception):
    """The kubeconfig gives no credentials. ``passing``: trying again may help though no file changes."""

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


def main() -> None:
    """Print the document; the arguments are the kubeconfig, a private directory, and whether programs may be run."""
    kubeconfig, scratch, programs = sys.argv[1:]
    with _own_output() as output:
        document = read(Path(kubeconfig), Path(scratch), programs=programs == "yes")
        output.write(json.dumps(document).encode())


@contextmanager
def _own_output() -> Iterator[Any]:
    """Keep standard output for the document: whatever else is printed goes nowhere."""
    with os.fdopen(os.dup(1), "wb") as output, Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        yield output


def read(kubeconfig: Path, scratch: Path, *, programs: bool) -> Json:
    """Return the document. Without ``programs`` none is run and keys are left alone: enough to look at the rest."""
    reading = _Reading(kubeconfig, scratch, programs=programs)
    try:
        document = reading.credentials()
    except UnusableError as error:
        document = {"error": f"{kubeconfig}{error}", "passing": error.passing}
    except Exception as error:  # noqa: BLE001 - the library fails in many ways on a file that means nothing to it
        document = {"error": f"{kubeconfig}: cannot be understood ({type(error).__name__})", "passing": False}
    return {**document, "files": reading.files, "private": reading.private}


def digest(path: Path) -> str:
    """Return what tells a file's content from any other; of one that cannot be read, why not."""
    try:
        content, _ = read_bounded(path, MAX_BYTES)
    except FileNotFoundError:
        return "missing"
    except UnreadableFileError as error:
        return error.reason
    return hashlib.sha256(content).hexdigest()


class _Reading:
    """One reading. ``files`` has the digest of each file that matters, taken before the library reads it."""

    def __init__(self, kubeconfig: Path, scratch: Path, *, programs: bool) -> None:
        self.kubeconfig = kubeconfig
        self.scratch = scratch
        self.programs = programs
        self.files: dict[str, str] = {}
        self.private = [str(kubeconfig)]
        self.program = ""

    def credentials(self) -> Json:
        """Return the active context's credentials. Raises :class:`UnusableError`, and whatever the library raises."""
        data = self._parsed()
        kube_config = _library()
        try:
            loader = kube_config.KubeConfigLoader(
                data, config_base_path=str(self.kubeconfig.parent), temp_file_path=str(self.scratch)
            )
            context = loader.current_context["context"]
            cluster = _named(data, "clusters", context.get("cluster"))
            user = _named(data, "users", context.get("user")) if context.get("user") else {}
            self._prepare(cluster, user)
            return self._loaded(loader, cluster, user)
        except kube_config.ConfigException as error:
            raise UnusableError(f": {_words(error)}", passing=bool(self.program)) from None

    def _parsed(self) -> Json:
        """Return the file's data."""
        self.files[str(self.kubeconfig)] = digest(self.kubeconfig)
        try:
            content, _ = read_bounded(self.kubeconfig, MAX_BYTES)
            data = parse_yaml(content, str(self.kubeconfig)).data()
        except FileNotFoundError:
            raise UnusableError(": is not there") from None
        except UnreadableFileError as error:
            raise UnusableError(f": {error.reason}") from None
        except InvalidYamlError as error:
            raise UnusableError(str(error.problems[0]).removeprefix(str(self.kubeconfig))) from None
        if not isinstance(data, dict) or not data:
            raise UnusableError(": is not a kubeconfig" if data else ": is empty")
        if not data.get("current-context"):
            raise UnusableError(": has no current-context")
        return data

    def _prepare(self, cluster: Json, user: Json) -> None:
        """Refuse what we would not follow, and have files looked for where they are."""
        if not cluster.get("server"):
            raise UnusableError(": the cluster of its current context has no server")
        if not isinstance(cluster.get(_INSECURE, False), bool):
            # The library would take any text for a yes.
            raise UnusableError(f": {_INSECURE} must be true or false")
        for key, reason in _UNSUPPORTED.items():
            if cluster.get(key) or user.get(key):
                raise UnusableError(f": {key}: {reason}")
        for entry, keys in ((cluster, _CLUSTER_FILES), (user, _USER_FILES)):
            for key in keys:
                self._place(entry, key)
        if user.get("tokenFile"):
            # The library prefers the token, Kubernetes' own clients the file, which is the one that is renewed.
            user.pop("token", None)
        self.program = _program(user)
        self._watch_program(user)
        if not self.programs:
            for key in (*_PROGRAMS, "client-key", "client-key-data"):
                user.pop(key, None)

    def _place(self, entry: Json, key: str) -> None:
        """Make a key name the file that is meant: as it says, else the one of that name beside the kubeconfig.

        A credentials proxy in a pod writes paths of its own file system (reference 8.6).
        """
        stated = entry.get(key)
        if not stated or entry.get(_INLINE.get(key, "")):
            entry.pop(key, None)
            return
        path = self.kubeconfig.parent / stated
        beside = self.kubeconfig.parent / path.name
        candidates = dict.fromkeys((path, beside))
        self.files |= {str(candidate): digest(candidate) for candidate in candidates}
        found = next((candidate for candidate in candidates if candidate.exists()), None)
        if found is None:
            # What is no path may be the token itself, in the wrong place.
            shown = stated if stated.startswith("/") else "a file"
            where = "which is not there" if path == beside else f"which is neither there nor in {beside.parent}"
            raise UnusableError(f": {key} names {shown}, {where}")
        if not stat.S_ISREG(found.stat().st_mode):
            raise UnusableError(f": {key} names {found}, which is not a regular file")
        entry[key] = str(found)
        if key in _PRIVATE:
            self.private.append(str(found))

    def _watch_program(self, user: Json) -> None:
        """Count the program that gives credentials among the files; one that is only a name is on the search path."""
        command = str((user.get("exec") or {}).get("command", ""))
        if "/" in command:
            path = self.kubeconfig.parent / command
            self.files[str(path)] = digest(path)

    def _loaded(self, loader: Any, cluster: Json, user: Json) -> Json:
        """Let the library do its work, and return what it found."""
        from kubernetes.client import Configuration  # type: ignore[import-untyped]

        configuration = Configuration()
        with _complaints() as complaints:
            self._load(loader, configuration, user)
        token = _token(configuration)
        has_certificate = bool(configuration.cert_file)
        self._check(user, token, has_certificate, complaints)
        expiry = vars(loader).get("expiry")
        return {
            "server": cluster["server"].rstrip("/"),
            "ca": _text(configuration.ssl_ca_cert, "certificate-authority"),
            "token": token,
            "client_certificate": _text(configuration.cert_file, "client-certificate"),
            "client_key": _text(configuration.key_file, "client-key"),
            "server_name": configuration.tls_server_name or "",
            "verify": bool(configuration.verify_ssl),
            "expires_at": expiry.timestamp() if expiry else None,
            "program": self.program,
        }

    def _load(self, loader: Any, configuration: Any, user: Json) -> None:
        provider = user.get("auth-provider")
        try:
            loader.load_and_set(configuration)
        except binascii.Error:
            raise UnusableError(": a value that should be base64 is not") from None
        except Exception as error:
            if not provider:
                raise
            reason = f": auth-provider {provider.get('name')} gave no credentials ({type(error).__name__})"
            raise UnusableError(reason, passing=True) from None

    def _check(self, user: Json, token: str, has_certificate: bool, complaints: list[str]) -> None:
        """Refuse to go on without what the user asks for: the server would take us for anybody."""
        if user.get("tokenFile") and not token:
            raise UnusableError(f": the token file {user['tokenFile']} is empty")
        if user.get("exec") and not token and not has_certificate:
            command = user["exec"].get("command", "")
            reason = _program_fault(complaints)
            told = f": the program {command} gives no credentials: {reason}; run it by hand to see more"
            raise UnusableError(told, passing=True)


def _library() -> Any:
    try:
        from kubernetes.config import kube_config  # type: ignore[import-untyped]
    except ImportError as error:
        name = (error.name or "kubernetes").partition(".")[0]
        raise UnusableError(f" cannot be read: the Python package '{name}' is not installed") from None
    return kube_config


def _token(configuration: Any) -> str:
    """Return the bearer token; where the library keeps it changed with version 37, what it would send did not."""
    configuration.refresh_api_key_hook = None  # else it asks an expired token's program again
    header = configuration.auth_settings().get("BearerToken", {}).get("value") or ""
    return str(header).removeprefix("Bearer ").strip()


def _named(data: Json, kind: str, name: object) -> Json:
    """Return the entry that the context names; the library takes a missing user for nobody."""
    for entry in data.get(kind) or ():
        if entry.get("name") == name:
            found = entry.get(kind.removesuffix("s"))
            if isinstance(found, dict):
                return found
    raise UnusableError(f": its current context names {name!r}, which is not among its {kind}")


def _program(user: Json) -> str:
    """Return the program or provider that is asked for credentials, empty when they are in files."""
    if user.get("tokenFile") or user.get("token"):
        return ""
    if user.get("exec"):
        return str(user["exec"].get("command") or "exec")
    return str(user["auth-provider"].get("name") or "auth-provider") if user.get("auth-provider") else ""


def _words(error: Exception) -> str:
    """Return the library's words where they name only keys and names."""
    text = " ".join(str(error).split()).removeprefix("Invalid kube-config file. ")
    known = ("Expected key ", "Expected object ", "Expected only one ", "File does not exist")
    return text if text.startswith(known) else "cannot be understood"


def _program_fault(complaints: list[str]) -> str:
    for complaint in complaints:
        for pattern, told in _PROGRAM_FAULTS:
            if match := pattern.match(complaint):
                return told.format(*match.groups())
    return "it cannot be run as the kubeconfig says"


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """Collect what the library logs: it does so with what a credentials program did wrong, and goes on without."""
    complaints: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            complaints.append(record.getMessage())

    root, collector = logging.getLogger(), Collector()
    root.addHandler(collector)
    try:
        yield complaints
    finally:
        root.removeHandler(collector)


def _text(path: str | None, key: str) -> str:
    """Return the text of a certificate or key, none for none. Comments in it may lose letters."""
    if not path:
        return ""
    try:
        text = read_bounded(Path(path), MAX_BYTES)[0].decode("ascii", errors="ignore")
    except (OSError, UnreadableFileError):
        text = ""
    if "-----BEGIN " not in text:
        raise UnusableError(f": its {key} is not a PEM text")
    return text
