"""Read a kubeconfig: which API server, with which credentials, and until when.

:func:`load` parses the file, follows its current context to a cluster and a user, and collects the certificates, keys
and tokens that they hold inline or name as files. A user's credential plugin (``exec``) runs in a process group of its
own, with a deadline; a legacy ``auth-provider`` runs the same way, see :mod:`.auth_provider`. The result is
:class:`Loaded`: the credentials, and the files on which they depend. What kubectl would do and this program does not
(a proxy, impersonation) is refused rather than ignored.

A kubeconfig is input of the users who may write its directory, and this process is root. Nothing in it makes the
process read a file outside that directory, run a program, send credentials unencrypted, or accept a server for which no
named authority vouches, unless :class:`Trust` says so.

A :class:`LoadingError` is one line that names files, keys and names. It never quotes a value, nor what a plugin
printed: either may be a secret.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from config.api import ApiCredentials
from config.desired import Secret
from config.settings import Settings
from config.syntax.files import UnreadableFileError, read_bounded
from config.syntax.yaml_reader import MAX_BYTES, InvalidYamlError, parse_yaml
from supervisor.process.subprocesses import CommandMissing, CommandTimeout, CommandTooTalkative, Completed, run_command
from supervisor.runtime.faults import DependencyFault

from . import auth_provider
from .expiry import certificate_expiry, token_expiry

Json = dict[str, Any]

#: For a credential plugin, which may ask a cloud.
PLUGIN_SECONDS: Final = 60.0
#: A plugin's credentials are renewed this long before they expire, or at half their life.
EARLY_SECONDS: Final = 30.0
#: The service manager's: a plugin must not report on our behalf.
_NOT_INHERITED: Final = frozenset({"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"})
_TOKEN: Final = re.compile(r"[!-~]+")
_INSECURE: Final = "insecure-skip-tls-verify"
_PRIVATE_FILES: Final = frozenset({"client-key", "tokenFile"})
#: What would silently mean something else here than to kubectl.
_UNSUPPORTED: Final = {
    "proxy-url": "not supported: a node reaches its API server directly",
    "as": "impersonation is not supported",
    "as-uid": "impersonation is not supported",
    "as-groups": "impersonation is not supported",
    "as-user-extra": "impersonation is not supported",
    "username": "Kubernetes has not accepted passwords since version 1.19; use a token or a certificate",
    "password": "Kubernetes has not accepted passwords since version 1.19; use a token or a certificate",
}


@dataclass(frozen=True, slots=True)
class Trust:
    """What the settings let a kubeconfig do.

    ``programs``: name a program that gives the credentials. ``elsewhere``: name files outside its own directory. Both
    hold only where no one but root can write the kubeconfig. ``any_authority``: name no certificate authority.
    """

    programs: bool = False
    elsewhere: bool = False
    any_authority: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Trust:
        """Return what the settings say: a kubeconfig that they name is the administrator's own."""
        return cls(
            programs=settings.kubeconfig_programs,
            elsewhere=settings.kubeconfig is not None,
            any_authority=settings.kubeconfig_without_authority,
        )


class LoadingError(DependencyFault):
    """The kubeconfig gives no usable credentials; the text says why, in one line.

    ``files`` as in :class:`Loaded`. ``passing``: another attempt may help although no file changes.
    """

    def __init__(self, message: str, *, files: Mapping[Path, str], passing: bool = False) -> None:
        super().__init__(message)
        self.files = files
        self.passing = passing


class _UnusableError(Exception):
    """Why a kubeconfig returned no credentials; the text follows the file's name."""

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


@dataclass(frozen=True, slots=True)
class Loaded:
    """Credentials, and what they depend on.

    ``files`` has the :func:`digest`, taken before it was read, of every file that matters, absent ones included;
    ``private`` are those that hold a secret. ``program`` is the plugin that gave the credentials: they may change
    although no file does.
    """

    credentials: ApiCredentials
    files: Mapping[Path, str] = field(default_factory=dict)
    private: tuple[Path, ...] = ()
    program: str = ""


@dataclass(frozen=True, slots=True)
class _Plugin:
    """A command that prints an ExecCredential of API version ``version``; ``title`` names it in messages."""

    name: str
    title: str
    argv: tuple[str, ...]
    version: str
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: str | None = None


_NO_TRUST: Final = Trust()


def kubeconfig_path(settings: Settings) -> Path:
    """Return where this node's kubeconfig is, or will be."""
    return settings.kubeconfig or settings.credentials_dir / "kubeconfig"


def digest(path: Path) -> str:
    """Return a file's fingerprint; of one that cannot be read, the reason."""
    try:
        content, _ = read_bounded(path, MAX_BYTES)
    except FileNotFoundError:
        return "missing"
    except UnreadableFileError as error:
        return error.reason
    return hashlib.sha256(content).hexdigest()


def server_host(kubeconfig: Path) -> str:
    """Return the host of the API server that a kubeconfig names; nothing without a usable one. Runs no program."""
    try:
        cluster, _ = _Reading(kubeconfig, _NO_TRUST).context()
        return urlsplit(_server(_string(cluster, "server"))).hostname or ""
    except _UnusableError:
        return ""


async def load(
    kubeconfig: Path,
    *,
    trust: Trust = _NO_TRUST,
    programs: bool = True,
    seconds: float = PLUGIN_SECONDS,
    wall: Callable[[], float] = time.time,
) -> Loaded:
    """Read a kubeconfig, as far as it is trusted. Raises :class:`LoadingError`.

    ``programs`` False runs no plugin and reads no client key: enough to inspect the rest.
    """
    reading = _Reading(kubeconfig, trust)
    try:
        cluster, user = reading.context()
        plugin = _plugin(user, kubeconfig.parent)
        reading.depend_on_program(plugin, user)
        answer = await _run(plugin, kubeconfig.parent, seconds) if plugin and programs else {}
        credentials = reading.credentials(cluster, user, answer, keys=programs)
    except _UnusableError as error:
        raise LoadingError(f"{kubeconfig}{error}", files=reading.files, passing=error.passing) from None
    credentials = replace(credentials, expires_at=_expiry(credentials, answer, plugin, wall()))
    return Loaded(credentials, reading.files, tuple(reading.private), plugin.name if plugin else "")


class _Reading:
    """One reading of a kubeconfig and of the files that it names."""

    def __init__(self, kubeconfig: Path, trust: Trust) -> None:
        self.kubeconfig = kubeconfig
        self.trust = trust
        self.files: dict[Path, str] = {}
        self.private = [kubeconfig]

    def context(self) -> tuple[Json, Json]:
        """Return the cluster and the user of the current context."""
        data = self._parsed()
        context = _named(data, "contexts", data["current-context"], "its current-context is")
        cluster = _named(data, "clusters", context.get("cluster"), "its current context names")
        user = _named(data, "users", context["user"], "its current context names") if context.get("user") else {}
        if not cluster.get("server"):
            raise _UnusableError(": the cluster of its current context has no server")
        for key, reason in _UNSUPPORTED.items():
            if cluster.get(key) or user.get(key):
                raise _UnusableError(f": {key}: {reason}")
        return cluster, user

    def depend_on_program(self, plugin: _Plugin | None, user: Json) -> None:
        """Add the user's own plugin to the files that matter; one without a path is found by PATH.

        Refuse one that is not to run as root.
        """
        if plugin is None:
            return
        key = "exec" if user.get("exec") else "auth-provider"
        if not self.trust.programs:
            raise _UnusableError(f": {key}: programs that give credentials need the setting kubeconfigPrograms: true")
        paths = [self.kubeconfig]
        if plugin.stdin is None and "/" in plugin.argv[0]:
            paths.append(Path(plugin.argv[0]))
            self.files[paths[-1]] = digest(paths[-1])
        for path in paths:
            if writable := _writable_by_others(path):
                raise _UnusableError(f": {key}: not run as root, since users other than root can write {writable}")

    def credentials(self, cluster: Json, user: Json, answer: Json, *, keys: bool) -> ApiCredentials:
        """Return what the kubeconfig and a plugin's ``answer`` give."""
        insecure = cluster.get(_INSECURE, False)
        if not isinstance(insecure, bool):
            raise _UnusableError(f": {_INSECURE} must be true or false")
        ca = self._pem(cluster, "certificate-authority")
        server = _server(_string(cluster, "server").rstrip("/"))
        encrypted = server.startswith("https:")
        if encrypted and not (ca or insecure or self.trust.any_authority):
            raise _UnusableError(
                ": certificate-authority: missing, so every authority of the system could vouch for the server; name "
                "the cluster's own, or set kubeconfigWithoutAuthority: true"
            )
        certificate = answer.get("clientCertificateData") or self._pem(user, "client-certificate")
        key = answer.get("clientKeyData") or self._pem(user, "client-key", read=keys)
        token = answer.get("token") or self._token(user)
        if token and not _TOKEN.fullmatch(token):
            raise _UnusableError(": the token has characters that no token can have")
        if key and not certificate:
            raise _UnusableError(": a client-key without a client-certificate")
        if (token or certificate or answer) and not encrypted:
            raise _UnusableError(
                ": server: must be https, since credentials are not sent over an unencrypted connection"
            )
        return ApiCredentials(
            server=server,
            source=str(self.kubeconfig),
            ca=ca,
            token=Secret(token) if token else None,
            client_certificate=certificate,
            client_key=Secret(key) if key else None,
            server_name=_host_name(_string(cluster, "tls-server-name"), "tls-server-name"),
            verify=not insecure,
        )

    def _parsed(self) -> Json:
        self.files[self.kubeconfig] = digest(self.kubeconfig)
        try:
            content, _ = read_bounded(self.kubeconfig, MAX_BYTES)
            data = parse_yaml(content, str(self.kubeconfig)).data()
        except FileNotFoundError:
            raise _UnusableError(": does not exist") from None
        except UnreadableFileError as error:
            raise _UnusableError(f": {error.reason}") from None
        except InvalidYamlError as error:
            raise _UnusableError(str(error.problems[0]).removeprefix(str(self.kubeconfig))) from None
        if not isinstance(data, dict) or not data:
            raise _UnusableError(": is not a kubeconfig" if data else ": is empty")
        if not data.get("current-context"):
            raise _UnusableError(": has no current-context")
        return data

    def _token(self, user: Json) -> str:
        """Return the token. The file wins, as with Kubernetes' own clients: it is the one that is renewed."""
        path = self._file(user, "tokenFile")
        if path is None:
            return _string(user, "token").strip()
        token = self._content(path, "tokenFile").decode(errors="replace").strip()
        if not token:
            raise _UnusableError(f": the token file {path} is empty")
        return token

    def _pem(self, entry: Json, key: str, *, read: bool = True) -> str:
        """Return a certificate or key, "" for none. Inline data wins over a file. Comments may lose letters."""
        inline = _string(entry, f"{key}-data")
        path = None if inline else self._file(entry, key)
        if not read or not (inline or path):
            return ""
        try:
            content = self._content(path, key) if path else base64.b64decode(inline)
        except ValueError:
            raise _UnusableError(f": {key}-data is not base64") from None
        text = content.decode("ascii", errors="ignore")
        if "-----BEGIN " not in text:
            raise _UnusableError(f": its {key} is not PEM")
        return text

    def _file(self, entry: Json, key: str) -> Path | None:
        """Return the file that a key names: as written, else the one of that name beside the kubeconfig.

        A credentials proxy in a pod writes paths of its own file system (reference 8.6).
        """
        stated = _string(entry, key)
        if not stated:
            return None
        if not stated.isprintable():
            raise _UnusableError(f": {key} must be a path")
        path = self.kubeconfig.parent / stated
        beside = self.kubeconfig.parent / path.name
        inside = ".." not in path.parts and path.is_relative_to(beside.parent)
        candidates = dict.fromkeys((path, beside) if inside or self._is_free() else (beside,))
        self.files |= {candidate: digest(candidate) for candidate in candidates}
        found = next((candidate for candidate in candidates if os.access(candidate, os.F_OK)), None)
        if found is None:
            # What is not a path may be the token itself, in the wrong place.
            shown = stated if stated.startswith("/") else "a file"
            where = "which does not exist" if path == beside else f"which exists neither there nor in {beside.parent}"
            if path not in candidates:
                where = f"which does not exist in {beside.parent}, and other directories are not read"
            raise _UnusableError(f": {key} names {shown}, {where}")
        if not found.is_file():
            raise _UnusableError(f": {key} names {found}, which is not a regular file")
        if key in _PRIVATE_FILES:
            self.private.append(found)
        return found

    def _is_free(self) -> bool:
        """Whether the files may be in other directories than the kubeconfig's."""
        return self.trust.elsewhere and not _writable_by_others(self.kubeconfig)

    def _content(self, path: Path, key: str) -> bytes:
        try:
            return read_bounded(path, MAX_BYTES, within=None if self._is_free() else self.kubeconfig.parent)[0]
        except (OSError, UnreadableFileError) as error:
            reason = error.reason if isinstance(error, UnreadableFileError) else "does not exist"
            raise _UnusableError(f": {key} names {path}, which {reason}") from None


def _writable_by_others(path: Path) -> Path | None:
    """Return the first of a file and the directories above it that another user than root, or than us, can write."""
    try:
        real = path.resolve()
        for one in dict.fromkeys((path.absolute(), *path.absolute().parents, real, *real.parents)):
            found = one.stat()
            own = found.st_uid in (0, os.geteuid())
            shared = found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and found.st_gid != 0)
            # In a sticky directory no one else can replace what is ours.
            if not own or (shared and not (stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX)):
                return one
    except FileNotFoundError:
        # The program's own error says so.
        return None
    except (OSError, ValueError, RuntimeError):
        return path
    return None


def _named(data: Json, kind: str, name: object, relation: str) -> Json:
    """Return the entry of a name in ``clusters``, ``users`` or ``contexts``."""
    entries = data.get(kind) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _UnusableError(f": {kind} must be a list of named entries")
    for entry in entries:
        found = entry.get(kind.removesuffix("s"))
        if entry.get("name") == name and isinstance(found, dict):
            return found
    shown = f" {name!r}, which" if isinstance(name, str) else " what"
    raise _UnusableError(f": {relation}{shown} is not among its {kind}")


def _string(entry: Json, key: str) -> str:
    """Return a text, "" where there is none; YAML reads one of digits alone as a number."""
    value = entry.get(key)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _UnusableError(f": {key} must be a string")
    return str(value)


def _server(url: str) -> str:
    """Return an address that can be used. What is refused is not quoted: a password may be in it."""
    try:
        server = urlsplit(url)
        port = server.port
    except ValueError:
        raise _UnusableError(": server is not a URL") from None
    if server.scheme not in ("https", "http") or not server.hostname or port == 0:
        raise _UnusableError(": server must be https://HOST[:PORT]")
    if server.username or server.password:
        raise _UnusableError(": server must not have a user or password in it")
    if server.query or server.fragment or not url.isascii() or not url.isprintable():
        raise _UnusableError(": server is not a plain URL")
    _host_name(server.hostname, "server")
    return url


def _host_name(name: str, key: str) -> str:
    """Return a host name, or address, for which Python's resolver and TLS have an encoding; "" for none."""
    try:
        name.encode("idna")
    except UnicodeError:
        raise _UnusableError(f": {key} has a host name with an empty label, or one of more than 63 letters") from None
    if not name.isprintable():
        raise _UnusableError(f": {key} has a host name with control characters")
    return name


def _plugin(user: Json, directory: Path) -> _Plugin | None:
    """Return what gives the user's credentials, None where files do. A token of its own wins over a plugin."""
    if user.get("tokenFile") or user.get("token"):
        return None
    if user.get("exec"):
        return _exec_plugin(user["exec"], directory)
    provider = user.get("auth-provider")
    if not provider:
        return None
    if not isinstance(provider, dict):
        raise _UnusableError(": auth-provider has no name")
    name = _string(provider, "name") or "auth-provider"
    argv = (sys.executable, "-I", auth_provider.__file__)
    return _Plugin(name, f"auth-provider {name}", argv, auth_provider.VERSION, stdin=json.dumps(provider))


def _exec_plugin(given: Any, directory: Path) -> _Plugin:
    given = given if isinstance(given, dict) else {}
    command, version = _string(given, "command"), _string(given, "apiVersion")
    if not command or not version:
        raise _UnusableError(": exec needs a command and an apiVersion")
    arguments, variables = given.get("args") or [], given.get("env") or []
    if not isinstance(arguments, list) or not isinstance(variables, list):
        raise _UnusableError(": exec: args and env must be lists")
    if not all(isinstance(one, dict) and _string(one, "name") for one in variables):
        raise _UnusableError(": exec: env must be a list of names and values")
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    return _Plugin(
        command,
        f"the program {command}",
        (str(directory / command) if "/" in command else command, *map(str, arguments)),
        version,
        {
            **{_string(one, "name"): _string(one, "value") for one in variables},
            "KUBERNETES_EXEC_INFO": json.dumps(info),
        },
    )


async def _run(plugin: _Plugin, directory: Path, seconds: float) -> Json:
    """Return the ``status`` of the ExecCredential that a plugin prints."""
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    try:
        env = {**inherited, **plugin.env}
        done = await run_command(plugin.argv, seconds=seconds, stdin=plugin.stdin, env=env, cwd=directory)
        reason, status = _answer(done, plugin)
    except CommandTimeout:
        reason, status = f"it did not finish within {seconds:g} s", {}
    except (CommandMissing, CommandTooTalkative) as error:
        reason, status = str(error), {}
    except ValueError:
        # A NUL in an argument, or a variable's name that no environment can have.
        reason, status = "it cannot be started as the kubeconfig specifies", {}
    if reason:
        hint = "" if plugin.stdin else "; run it manually to see more"
        raise _UnusableError(f": {plugin.title} returned no credentials: {reason}{hint}", passing=True)
    return status


def _answer(done: Completed, plugin: _Plugin) -> tuple[str, Json]:
    """Return what is wrong with a plugin's answer, "" for nothing, and its status."""
    if done.returncode:
        # Only our own program's output is known to hold no secret.
        reason = done.stdout.strip() if plugin.stdin else ""
        return reason or f"it ended with code {done.returncode}", {}
    try:
        answer = json.loads(done.stdout)
    except (ValueError, RecursionError):
        return "its output is not JSON", {}
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict) or not {"apiVersion", "kind"} <= answer.keys():
        return "its answer is incomplete", {}
    if answer["apiVersion"] != plugin.version:
        return "its answer has another API version than the kubeconfig", {}
    found = {key: text.strip() if key == "token" else text for key, text in status.items() if isinstance(text, str)}
    if not found.get("token") and not (found.get("clientCertificateData") and found.get("clientKeyData")):
        return "its answer has neither a token nor a certificate with its key", {}
    return "", found


def _expiry(credentials: ApiCredentials, answer: Json, plugin: _Plugin | None, now: float) -> float | None:
    """Return when to load again: when something expires, and earlier when a plugin can give something newer."""
    token = credentials.token.reveal() if credentials.token else ""
    stated = (_moment(answer), token_expiry(token), certificate_expiry(credentials.client_certificate))
    end = min((moment for moment in stated if moment is not None), default=None)
    if end is None or plugin is None:
        return end
    return end - min(EARLY_SECONDS, max(0.0, (end - now) / 2))


def _moment(answer: Json) -> float | None:
    """Return when a plugin's credentials expire (RFC 3339), None where it does not say."""
    try:
        moment = datetime.fromisoformat(answer.get("expirationTimestamp", ""))
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
