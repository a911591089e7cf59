"""Determine the node's identity: from its configuration, else the last known one.

The index decides every address of the node, so it must not change because a file is broken for a moment or because the
interface that it derives from has moved or is late. The last known one is kept on disk and stays in force, which a
problem reports; only a node that never had an index has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from config.desired import IPInterface
from config.node import IndexUnknownError, NodeConfig, load_node_config
from config.outcomes import NodeIdentity
from config.problems import Origin, Problem, Reason, errors

#: Returns the addresses of an interface, wherever it is now; empty when it is nowhere.
Addresses = Callable[[str], Sequence[IPInterface]]


@dataclass(frozen=True, slots=True)
class Identification:
    """The outcome: ``node`` is None when the node's index is unknown now and from before."""

    node: NodeIdentity | None
    problems: tuple[Problem, ...] = ()
    #: The interface that gives the index and has no address yet: polling it may help.
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
    """Return the addresses that the configuration needs, if any."""
    return addresses(config.needs_interface) if config.needs_interface else ()


def keeping(problems: Sequence[Problem], known: NodeIdentity | None) -> tuple[Problem, ...]:
    """Add to each error what stays in force."""
    in_force = f"node {known.name}, index {known.index} stay in force" if known else ""
    return tuple(replace(problem, in_force=in_force) if errors([problem]) else problem for problem in problems)


def to_json(node: NodeIdentity) -> str:
    """Return an identity as the text that :func:`recall` understands, the same for equal ones."""
    return json.dumps(asdict(node)) + "\n"


def recall(path: Path) -> NodeIdentity | None:
    """Return the stored identity; None when there is none or it is not valid."""
    try:
        data = json.loads(path.read_text())
        name, index, log_level = data["name"], data["index"], data["log_level"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not (isinstance(name, str) and isinstance(index, int) and index >= 0 and isinstance(log_level, str)):
        return None
    return NodeIdentity(name, index, log_level)
