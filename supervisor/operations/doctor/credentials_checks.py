"""Are there credentials for the API server, are they still good, and are they nobody else's?"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import PurePath

from .facts import CredentialsFacts, Facts, FileFact
from .findings import Finding, error, ok, warning


def credentials(facts: Facts) -> Iterator[Finding]:
    """Can the daemon use what there is?"""
    found = facts.credentials
    if found is None:
        return
    if not found.there:
        yield _missing(facts, found)
    elif found.problem:
        yield error("credentials", found.problem, "mend it; it is noticed at once")
    elif facts.clock is not None and found.ends is not None and found.ends <= facts.clock.now:
        ended = datetime.fromtimestamp(found.ends, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        yield error(
            "credentials",
            f"{found.path}: the credentials ended {ended}",
            "replace them, they are noticed at once; where a proxy in the cluster writes them, look whether it runs",
        )
    elif found.program:
        yield ok("credentials", f"{found.path}: for {found.server}, given by the program {found.program}")
    else:
        yield ok("credentials", f"{found.path}: for {found.server}")


def _missing(facts: Facts, found: CredentialsFacts) -> Finding:
    if facts.settings.kubeconfig is None:
        return ok("credentials", f"no {found.path}: the router works from its files alone")
    cure = "put it there, it is noticed at once; or take the key kubeconfig out of the settings"
    return warning("credentials", f"the settings name {found.path}, which is not there", cure)


def secrecy(facts: Facts) -> Iterator[Finding]:
    """May others read a token or a key, and so do in the cluster what the node may?"""
    found = facts.credentials
    if found is None:
        return
    for file in found.private:
        if file.mode & stat.S_IROTH and _within_reach(file, found.directories):
            yield warning(
                "credentials",
                f"{file.path} has mode {file.mode:04o} and holds a token or a key: everybody here can use it",
                f"chmod o-rwx {file.path}; where a proxy makes it again: chmod 0750 {PurePath(file.path).parent}",
            )


def _within_reach(file: FileFact, directories: tuple[FileFact, ...]) -> bool:
    """Say whether no directory on the way keeps others out."""
    above = {str(parent) for parent in PurePath(file.path).parents}
    return all(one.mode & stat.S_IXOTH for one in directories if one.path in above)


CHECKS = (credentials, secrecy)
