"""Determine the node's identity: its name, its index, FRR's log level.

The index decides every address of the node, so it must not change because a file is broken for a moment or because the
interface that it derives from has moved or is late. The last good identity is on disk and stays in force, with a
problem that reports it; only a node that never had an index has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from config.desired import IPInterface, RouterIdScheme
from config.node import NEW_SCHEME, IndexUnknownError, NodeConfig, load_node_config
from config.outcomes import NodeIdentity
from config.problems import Origin, Problem, Reason, errors
from config.store.json_store import JsonStore, StoreError

#: Returns the addresses of an interface, wherever it is now; empty when it is nowhere.
Addresses = Callable[[str], Sequence[IPInterface]]
#: The file of the last good identity.
STORE: Final = JsonStore(NodeIdentity, "node identity")


@dataclass(frozen=True, slots=True)
class Identification:
    """The outcome: ``node`` is None when the node has no identity and never had one."""

    node: NodeIdentity | None
    problems: tuple[Problem, ...] = ()
    #: The interface from which the index derives, while it is absent: a later attempt may succeed.
    waiting_for: str = ""


def identify(
    path: Path,
    hostname: str,
    log_level: str,
    addresses: Addresses,
    known: NodeIdentity | None,
    *,
    scheme: RouterIdScheme | None = None,
) -> Identification:
    """Read the node configuration at ``path``; ``known`` is the identity that was last good.

    ``scheme`` is the router ID's unless the file has one; absent: the known identity's, else that of a new node.
    """
    config, problems = load_node_config(path)
    if config is None or errors(problems):
        return Identification(known, keeping(problems, known))
    try:
        scheme = scheme or (known.router_id_scheme if known else NEW_SCHEME)
        node = config.identify(hostname, look_up(config, addresses), log_level, scheme)
    except IndexUnknownError as error:
        problem = Problem(str(error), Origin(path=str(path)), "nodeIndex.interfaceName", reason=Reason.FILE_INVALID)
        return Identification(known, keeping((*problems, problem), known), config.needs_interface or "")
    return Identification(node, problems)


def look_up(config: NodeConfig, addresses: Addresses) -> Sequence[IPInterface]:
    """Return the addresses of the interface that the index derives from, if it derives from one."""
    return addresses(config.needs_interface) if config.needs_interface else ()


def keeping(problems: Sequence[Problem], known: NodeIdentity | None) -> tuple[Problem, ...]:
    """Add to each error what stays in force."""
    in_force = f"node {known.name}, index {known.index} stay in force" if known else ""
    return tuple(replace(problem, in_force=in_force) if errors([problem]) else problem for problem in problems)


def read_identity(path: Path) -> NodeIdentity | None:
    """Return the last known identity; None when there is none or it is unusable."""
    try:
        known = STORE.read(path)
    except StoreError:
        return None
    return known if known is not None and known.index >= 0 else None
