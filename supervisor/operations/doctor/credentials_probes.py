"""Looks at the credentials for the API server, without using them: no program is run, no key read, no server asked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from actors.lib.kube.credentials import Loaded, LoadingError, kubeconfig_path, load
from config.settings import Settings

from .facts import CredentialsFacts, FileFact
from .machine_probes import file_fact

#: The library needs six of them on an emulated machine.
READING_SECONDS: Final = 25.0


async def credentials(settings: Settings) -> CredentialsFacts:
    """Read the kubeconfig as the daemon would; one that cannot be read is a fact like any other."""
    path = kubeconfig_path(settings)
    if file_fact(path) is None:
        return CredentialsFacts(str(path))
    try:
        loaded = await load(path, programs=False, seconds=READING_SECONDS)
    except LoadingError as error:
        return _facts(path, (path,), problem=str(error))
    return _facts(path, loaded.private, loaded)


def _facts(path: Path, private: tuple[Path, ...], loaded: Loaded | None = None, problem: str = "") -> CredentialsFacts:
    directories = dict.fromkeys(parent for file in private for parent in file.parents)
    return CredentialsFacts(
        str(path),
        there=True,
        problem=problem,
        server=loaded.credentials.server if loaded else "",
        program=loaded.program if loaded else "",
        ends=loaded.credentials.expires_at if loaded else None,
        private=_file_facts(private),
        directories=_file_facts(directories),
    )


def _file_facts(paths: Iterable[Path]) -> tuple[FileFact, ...]:
    return tuple(fact for path in paths if (fact := file_fact(path)) is not None)
