"""The API server's credentials: usable, not expired, private? No program is run and no server is contacted."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Final

from actors.lib.kube.credentials import Loaded, LoadingError, Trust, kubeconfig_path, load
from actors.lib.kube.expiry import token_node
from config.settings import Settings
from supervisor.operations.node_configuration import node_name

from .files import File, read_file
from .findings import Finding, error, ok, warning
from .machine import Clock

#: For files on a slow disk; no program is run.
READING_SECONDS: Final = 25.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the kubeconfig at ``path`` gives.

    ``exists`` says whether it is there; ``problem`` why it cannot be used; ``private`` are the files with a secret in
    them and ``directories`` all those above them; ``program`` is the one that the daemon runs for credentials;
    ``expires_at`` is in Unix seconds. ``verified``: the server has to prove its identity. ``bound_to`` is the node for
    which a ServiceAccount's token was issued, "" for none, None without such a token; ``node_name`` is this node.
    """

    path: str
    exists: bool = False
    problem: str = ""
    server: str = ""
    program: str = ""
    expires_at: float | None = None
    verified: bool = True
    bound_to: str | None = None
    node_name: str = ""
    private: tuple[File, ...] = ()
    directories: tuple[File, ...] = ()


async def read_credentials(settings: Settings) -> Credentials:
    """Read the kubeconfig as the daemon would."""
    path = kubeconfig_path(settings)
    if read_file(path) is None:
        return Credentials(str(path))
    try:
        loaded = await load(path, trust=Trust.of(settings), programs=False, seconds=READING_SECONDS)
    except LoadingError as failure:
        return _credentials(path, (path,), problem=str(failure))
    return _credentials(path, loaded.private, loaded, name=node_name(settings))


def _credentials(
    path: Path, private: tuple[Path, ...], loaded: Loaded | None = None, problem: str = "", name: str = ""
) -> Credentials:
    directories = dict.fromkeys(parent for file in private for parent in file.parents)
    token = loaded.credentials.token if loaded else None
    return Credentials(
        str(path),
        exists=True,
        problem=problem,
        server=loaded.credentials.server if loaded else "",
        program=loaded.program if loaded else "",
        expires_at=loaded.credentials.expires_at if loaded else None,
        verified=loaded is None or loaded.credentials.verify,
        bound_to=token_node(token.reveal()) if token else None,
        node_name=name,
        private=_existing(private),
        directories=_existing(directories),
    )


def _existing(paths: Iterable[Path]) -> tuple[File, ...]:
    return tuple(file for path in paths if (file := read_file(path)) is not None)


def usable(settings: Settings, credentials: Credentials, clock: Clock | None = None) -> Iterator[Finding]:
    """Can the daemon use the credentials?"""
    found = credentials
    if not found.exists and settings.kubeconfig is None:
        yield ok("credentials", f"no {found.path}: the router works from its files alone")
    elif not found.exists:
        fix = "create it (the daemon detects it at once), or remove the key kubeconfig from the settings"
        yield warning("credentials", f"the settings name {found.path}, which does not exist", fix)
    elif found.problem:
        yield error("credentials", found.problem, "correct it; the daemon detects the change at once")
    elif clock is not None and found.expires_at is not None and found.expires_at <= clock.now:
        expired = datetime.fromtimestamp(found.expires_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        fix = (
            "replace them, which the daemon detects at once; if a proxy in the cluster writes them, check that it runs"
        )
        yield error("credentials", f"{found.path}: the credentials expired {expired}", fix)
    elif found.program:
        yield ok("credentials", f"{found.path}: for {found.server}, from the program {found.program}")
    else:
        yield ok("credentials", f"{found.path}: for {found.server}")


def private(credentials: Credentials) -> Iterator[Finding]:
    """Can other users read a token or a key, and so do in the cluster what the node may?"""
    for file in credentials.private:
        if file.mode & stat.S_IROTH and _reachable(file, credentials.directories):
            yield warning(
                "credentials",
                f"{file.path} has mode {file.mode:04o} and holds a token or a key: any local user can use it",
                f"chmod o-rwx {file.path}; if a proxy rewrites it: chmod 0750 {PurePath(file.path).parent}",
            )


def _reachable(file: File, directories: tuple[File, ...]) -> bool:
    """Whether every directory on the path lets others through."""
    above = {str(parent) for parent in PurePath(file.path).parents}
    return all(one.mode & stat.S_IXOTH for one in directories if one.path in above)


def verified(credentials: Credentials) -> Iterator[Finding]:
    """Can another server take the place of the API server?"""
    if not credentials.verified:
        yield warning(
            "credentials",
            f"{credentials.path} has insecure-skip-tls-verify: another server in place of {credentials.server} gets "
            "the node's token and decides what its networks are",
            "replace the key by certificate-authority or certificate-authority-data",
        )


def bound(credentials: Credentials) -> Iterator[Finding]:
    """Is the token this node's own?"""
    if credentials.bound_to is None or credentials.bound_to == credentials.node_name:
        return
    name = credentials.node_name
    if credentials.bound_to:
        message = f"the token in {credentials.path} is bound to the node {credentials.bound_to}, and this one is {name}"
    else:
        message = f"the token in {credentials.path} is bound to no node: the admission policies refuse all its writes"
    fix = (
        "let the credentials proxy run on this node, or: kubectl create token controller -n openperouter-system "
        f"--bound-object-kind Node --bound-object-name {name}"
    )
    yield warning("credentials", message, fix)


CHECKS = (usable, private, verified, bound)
