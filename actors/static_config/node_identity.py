"""Find out who this node is, and remember it.

The index decides every address of the node, so it must not change because a file is broken for a moment or because the
interface that it derives from has moved or is late. What was last known good is kept on disk and stays in force, with a
problem that says so; only a node that never knew its index has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from config.desired import IPInterface
from config.node import IndexUnknownError, NodeConfig, load_node_config
from config.outcomes import NodeIdentity
from config.problems import Origin, Problem, Reason, errors
from config.store.json_store import JsonStore, StoreError

#: Returns the addresses of an interface, wherever it is now; empty when it is nowhere.
Addresses = Callable[[str], Sequence[IPInterface]]
STORE: Final = JsonStore(NodeIdentity, "node identity")


@dataclass(frozen=True, slots=True)
class Identification:
    """The outcome: ``node`` is None when nothing, now or earlier, told who this node is."""

    node: NodeIdentity | None
    problems: tuple[Problem, ...] = ()
    #: The node's own file names an interface that cannot be looked at yet: looking again may help.
    waiting_for: str = ""


def identify(
    path: Path, hostname: str, log_level: str, addresses: Addresses, known: NodeIdentity | None
) -> Identification:
    """Read the node configuration at ``path``; ``known`` is the identity that was last good."""
    config, problems = load_node_config(path)
    if config is None or errors(problems):
        return Identification(known, keeping(problems, known))
    try:
        node = config.identify(hostname, look_up(config, addresses), log_level)
    except IndexUnknownError as error:
        problem = Problem(str(error), Origin(path=str(path)), "nodeIndex.interfaceName", reason=Reason.FILE_INVALID)
        return Identification(known, keeping((*problems, problem), known), config.needs_interface or "")
    return Identification(node, problems)


def look_up(config: NodeConfig, addresses: Addresses) -> Sequence[IPInterface]:
    """Return the addresses that the configuration asks for, if it does."""
    return addresses(config.needs_interface) if config.needs_interface else ()


def keeping(problems: Sequence[Problem], known: NodeIdentity | None) -> tuple[Problem, ...]:
    """Say in each error what stays in force."""
    in_force = f"node {known.name}, index {known.index} stay in force" if known else ""
    return tuple(replace(problem, in_force=in_force) if errors([problem]) else problem for problem in problems)


def to_json(node: NodeIdentity) -> str:
    """Return an identity as the text that :func:`recall` reads, the same for equal ones."""
    return STORE.encode(node)


def recall(path: Path) -> NodeIdentity | None:
    """Return the last known identity; None when there is none or it is unusable."""
    try:
        known = STORE.read(path)
    except StoreError:
        return None
    return known if known is not None and known.index >= 0 else None
