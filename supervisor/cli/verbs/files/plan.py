"""``openperouter plan``: what the configuration would change in FRR and in the kernel, without doing it."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from supervisor.operations import exit_codes
from supervisor.operations.paths import load_usable_settings

from ...options import StoreFile, add_output, add_quiet, add_verb, complain, print_document, read_desired
from ...terminal import is_quiet, print_problems, say

if TYPE_CHECKING:
    from config.desired import DesiredState, DesiredUnderlay, RouterIdScheme
    from config.outcomes import Interruption
    from config.problems import Problem
    from config.settings import Settings
    from supervisor.operations.candidate import CandidateFiles

T = TypeVar("T")

SCHEMA_VERSION: Final = 1

DESCRIPTION: Final = (
    "Show what the configuration would add to and remove from FRR and the kernel, and which sessions, VNIs and NICs "
    "that would interrupt; nothing is changed. Without arguments this is the difference between the files, together "
    "with the API objects that the daemon has saved, and what runs. Give a directory or single files, as to "
    "'openperouter try', to see what they would change: a directory replaces the whole router configuration, single "
    "files are added to those in force or replace those of the same name. Files with errors are not planned. Exits "
    "with 0 when there is nothing to do, with 2 when there is, with 78 when the configuration has errors, and with 69 "
    "when FRR or the network namespace is not available."
)


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    summary = "show what the configuration, or a changed one, would do, without doing it"
    parser = add_verb(verbs, "plan", run, summary=summary, description=DESCRIPTION)
    output = add_output(parser, "json and yaml: one document (schemaVersion 1)")
    add_quiet(output, "print errors only: the exit code shows whether there is anything to do")
    parser.add_argument(
        "paths", nargs="*", type=Path, action=StoreFile, metavar="PATH", help="a directory, or openpe_*.yaml files"
    )


@dataclass
class _Document:
    """What is shown. Each difference is None where it could not be found out; then ``unavailable`` says why."""

    files: str = ""
    router_id: str = ""
    problems: Sequence[Problem] = ()
    frr: tuple[str, ...] | None = None
    kernel: tuple[str, ...] | None = None
    interrupts: list[Interruption] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unavailable: dict[str, str] = field(default_factory=dict)
    #: The parts of ``unavailable`` that only root can see.
    denied: set[str] = field(default_factory=set)

    @property
    def code(self) -> int:
        if self.unavailable:
            return exit_codes.NO_PERMISSION if self.denied == self.unavailable.keys() else exit_codes.UNAVAILABLE
        return exit_codes.PENDING if self.frr or self.kernel else exit_codes.OK


def run(arguments: argparse.Namespace) -> int:
    """Print both differences and what they interrupt."""
    settings = load_usable_settings(arguments.settings)
    if not arguments.paths:
        desired = read_desired(arguments.settings, all_problems=True)
        return show(_planned(desired, settings, _Document(problems=desired.problems)), arguments.output)
    from supervisor.operations.candidate import gather

    return show_candidate(gather(settings, arguments.paths), settings, arguments.settings, arguments.output)


def show_candidate(candidate: CandidateFiles, settings: Settings, settings_file: Path, output: str = "text") -> int:
    """Print what other files would change; return the exit code."""
    from config.problems import errors
    from supervisor.operations.candidate import read_candidate

    read = read_candidate(candidate, settings, settings_file)
    document = _Document(files=str(candidate), problems=read.problems)
    if output == "text":
        print_problems(read.problems)
    if errors(read.problems) or read.desired is None:
        if output == "text":
            say("not planned: the configuration has errors", "bold")
        else:
            print_document(_as_data(document), output)
        return exit_codes.CONFIG
    if output == "text":
        say(document.files or "these files are in force already")
    return show(_planned(read.desired, settings, document), output)


def show(document: _Document, output: str) -> int:
    """Print a document; return the exit code."""
    for title, why in document.unavailable.items():
        complain(f"{title} is not available: {why}")
    if output != "text":
        print_document(_as_data(document), output)
    elif not is_quiet():
        print("\n".join(_lines(document)))
    return document.code


def _planned(desired: DesiredState, settings: Settings, document: _Document) -> _Document:
    """Complete a document with what a desired state would change."""
    import actors.frr.preview
    import actors.netlink.preview

    if desired.underlay is not None:
        document.router_id = _router_ids(desired.underlay, desired.node_index)
    frr = _asked("FRR", lambda: actors.frr.preview.preview(desired, settings), document)
    if frr is not None:
        document.frr = frr.lines
        document.interrupts += frr.interrupted
        document.notes += [frr.note] if frr.note else []
    kernel = _asked("kernel", lambda: actors.netlink.preview.preview_interruptions(desired, settings), document)
    if kernel is not None:
        plan, interrupted = kernel
        document.kernel = tuple(plan.text.splitlines()) if plan.steps else ()
        document.interrupts += interrupted
    return document


def _router_ids(underlay: DesiredUnderlay, index: int) -> str:
    """Return the node's router ID and what the other scheme would give."""
    from config.resolve.ipam import PoolExhaustedError, router_id

    scheme = underlay.router_id_scheme
    other: RouterIdScheme = "v1" if scheme == "v2" else "v2"
    try:
        by_other = str(router_id(underlay.router_id_pool, index, other))
    except PoolExhaustedError as error:
        by_other = f"none: {error}"
    return f"{underlay.router_id} (routerIDScheme {scheme}; {other}: {by_other})"


def _asked(title: str, difference: Callable[[], Awaitable[T]], document: _Document) -> T | None:
    import trio

    from supervisor.runtime.faults import DependencyFault, PermissionFault

    try:
        return trio.run(difference)
    except DependencyFault as fault:
        document.unavailable[title] = str(fault)
        document.denied |= {title} if isinstance(fault, PermissionFault) else set()
        return None


def _lines(document: _Document) -> list[str]:
    lines = [f"router ID: {document.router_id}"] if document.router_id else []
    lines += [f"({note})" for note in document.notes]
    for title, found in (("FRR", document.frr), ("kernel", document.kernel)):
        lines.append(f"{title}:")
        lines += [f"  {line}" for line in (("not known",) if found is None else found or ("nothing to do",))]
    if document.frr or document.kernel:
        lines.append("interrupts:")
        lines += [f"  {text}" for text in [str(one) for one in document.interrupts] or ["nothing"]]
    return lines


def _as_data(document: _Document) -> dict[str, Any]:
    from supervisor.operations.documents import problem_document

    return {
        "schemaVersion": SCHEMA_VERSION,
        "files": document.files,
        "routerID": document.router_id,
        "problems": [problem_document(problem) for problem in document.problems],
        "frr": document.frr,
        "kernel": document.kernel,
        "interrupts": [{"subject": one.subject, "name": one.name, "effect": one.effect} for one in document.interrupts],
        "notes": document.notes,
        "unavailable": document.unavailable,
    }
