"""Read the configuration as the daemon would, without writing anything.

The daemon's own functions do the work, so that ``validate`` and ``plan`` cannot disagree with it. API objects come from
the snapshot that the daemon has saved: the command line contacts no server.

    settings, node-config.yaml, openpe_*.yaml (or the given files)  ─┐
    saved API snapshot                                              ─┴─> merged, resolved ─> Configuration
"""

from __future__ import annotations

import difflib
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from actors.desired.reconcile import merge_and_resolve
from actors.static_config.node_identity import Identification, identify, read_identity
from config.desired import DesiredState, IPInterface, RememberedApi
from config.node import load_node_config
from config.outcomes import NodeIdentity, StaticSnapshot
from config.problems import Kind, Origin, Problem, Reason, Severity, errors
from config.resolve.grants import Grants
from config.resolve.host_networks import ANYWHERE, Surroundings, networks
from config.resolve.resolution import Resolution
from config.resources import Resource, UnknownContent
from config.settings import Settings, load_settings
from config.sources.naming import resource_name
from config.sources.router_file import FileContent, parse_router_file
from config.sources.static_files import combine, ignored_files, is_router_file, read_directory, read_remembered
from config.store.api_snapshot_file import SavedSnapshot, read_saved
from config.store.json_store import StoreError
from config.store.last_good import LastGood, read_texts
from config.syntax.files import UnreadableFileError, list_directory, read_bounded
from config.syntax.yaml_reader import MAX_BYTES

from ..runtime.faults import Fault
from .paths import conf_d

#: Names standard input, as for every tool.
STDIN: Final = Path("-")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What files and saved API objects result in.

    ``resources`` are those of the files; ``problems`` are all of them. ``desired`` is None when the underlay is not
    usable. ``api`` is None when there is no saved snapshot; then ``api_unusable`` may say why.
    """

    settings: Settings
    node: NodeIdentity
    resources: tuple[Resource, ...] = ()
    problems: tuple[Problem, ...] = ()
    desired: DesiredState | None = None
    api: SavedSnapshot | None = None
    api_unusable: str = ""


def read_all(settings_file: Path, *, remembered: bool) -> Configuration:
    """Read settings, node configuration and router configuration.

    With ``remembered`` the last good content of a broken file is used, as in the running daemon; without, none.
    """
    settings, problems = load_settings(settings_file, conf_d(settings_file))
    who = _identify(settings, remembered=remembered)
    node = who.node or NodeIdentity(socket.gethostname(), 0)
    memory = _last_good(settings) if remembered else LastGood()
    files = read_directory(settings.configs_dir, node.name, memory, namespace=settings.namespace)
    if files.resources or who.node is not None:
        problems += who.problems
    return resolved(settings, node, files.resources, (*problems, *files.problems))


def read_files(settings_file: Path, paths: Sequence[Path]) -> Configuration:
    """Read the named files only, together; each is recognised by its name, ``-`` is standard input.

    Of a directory those are read that the daemon would read.

    The node is this one as far as it is configured, else one with index 0: rules that concern the files alone are the
    same on every node.
    """
    settings, problems = load_settings(settings_file, conf_d(settings_file))
    who = _identify(settings, remembered=False)
    node = who.node or NodeIdentity(socket.gethostname(), 0)
    found: list[Problem] = []
    contents: list[FileContent] = []
    for path in paths:
        if path.is_dir():
            found += ignored_files(path, list_directory(path))
            names = filter(is_router_file, list_directory(path))
            contents += (_parse(path / name, node, settings) for name in names)
        elif path.name == settings.node_config_file.name:
            found += load_node_config(path)[1]
        elif path.name == settings_file.name or path.parent.name == conf_d(settings_file).name:
            found += load_settings(path, path / "none")[1] if path.exists() else [_absent(path)]
        else:
            contents.append(_parse(path, node, settings))
    resources, in_files = combine(contents)
    return resolved(settings, node, tuple(resources), (*errors(problems), *found, *in_files))


def _parse(path: Path, node: NodeIdentity, settings: Settings) -> FileContent:
    if path == STDIN:
        content = sys.stdin.buffer.read(MAX_BYTES + 1)
        return parse_router_file(content, Path("standard input"), node.name, namespace=settings.namespace)
    try:
        content, mode = read_bounded(path, MAX_BYTES)
    except FileNotFoundError:
        return FileContent(path, problems=(_absent(path),), usable=False)
    except UnreadableFileError as error:
        return FileContent(path, problems=(error.problem(),), usable=False)
    return parse_router_file(content, path, node.name, namespace=settings.namespace, mode=mode)


def _absent(path: Path) -> Problem:
    return Problem("does not exist", Origin(path=str(path)), reason=Reason.FILE_INVALID)


def resolved(
    settings: Settings, node: NodeIdentity, resources: tuple[Resource, ...], problems: tuple[Problem, ...]
) -> Configuration:
    """Return what these resources of files result in together with the saved API objects."""
    memory, unusable = remembered_api(settings, node.name)
    static = StaticSnapshot(node, resources, problems)
    resolution = resolve_with(memory, settings, static, _surroundings(memory, settings, node))
    desired = resolution.desired
    if desired is not None:
        desired = replace(desired, generation=1, problems=resolution.problems, remembered=_basis(memory))
    return Configuration(settings, node, resources, resolution.problems, desired, memory, unusable)


def problems_of_files(read: Configuration) -> tuple[Problem, ...]:
    """Return the problems that are in files, as they are before any of it was in force; those of a file by line.

    Without a saved API snapshot, a network that no file defines may still be an API object: a warning.
    """
    maybe = read.api is None or read.api.snapshot is None
    unknown = {one.id for one in read.resources if isinstance(one.spec, UnknownContent)}
    problems = [one for one in read.problems if one.origin.path and one.resource not in unknown]
    order = {path: number for number, path in enumerate(dict.fromkeys(one.origin.path for one in problems))}
    problems.sort(key=lambda one: (order[one.origin.path], one.origin.line, one.origin.column))
    fresh = (replace(one, in_force="") if one.reason is Reason.FILE_INVALID else one for one in problems)
    return tuple(_missing_from_files(one, read) if maybe else one for one in fresh)


def _missing_from_files(problem: Problem, read: Configuration) -> Problem:
    if problem.reason is not Reason.DEPENDENCY_FAILED:
        return problem
    labels = {resource.label: resource.name for resource in read.resources if resource.kind is Kind.L3VNI}
    for resource in read.resources:
        if resource.id == problem.resource:
            name = resource.spec.routing_domain.l3vni.name
            if not {name, resource_name(read.node.name, name)}.intersection(labels.values()):
                close = difflib.get_close_matches(name, labels, 1)
                hint = f'did you mean "{close[0]}"?' if close else "in force only when the API has one"
                message = f'the files have no L3VNI "{name}": {hint}'
                return replace(problem, message=message, severity=Severity.WARNING)
    return problem


def node_name(settings: Settings) -> str:
    """Return the node's name in Kubernetes."""
    config, _ = load_node_config(settings.node_config_file)
    return (config.node_name if config else None) or socket.gethostname()


def remembered_api(settings: Settings, node_name: str) -> tuple[SavedSnapshot | None, str]:
    """Return the saved API snapshot, or None and, if there is one, why it is not usable."""
    try:
        return read_saved((settings.run_dir, settings.state_dir), node_name), ""
    except StoreError as error:
        return None, str(error)


def resolve_with(
    memory: SavedSnapshot | None, settings: Settings, static: StaticSnapshot, surroundings: Surroundings = ANYWHERE
) -> Resolution:
    """Return the result of files and saved API objects together."""
    known = memory or SavedSnapshot(static.node.name)
    return merge_and_resolve(static, known.snapshot, known.standing, Grants.of(settings), surroundings)


def _surroundings(memory: SavedSnapshot | None, settings: Settings, node: NodeIdentity) -> Surroundings:
    """Return what tunnel endpoints must not take here: nothing on a machine that is not a node, or for anyone but root.

    The ranges in force are those of the files and objects that the daemon has saved.
    """
    if not settings.node_config_file.exists() or os.geteuid() != 0:
        return ANYWHERE
    from actors.netlink.preview import host_networks

    try:
        kept = read_texts(settings.state_dir / "in-force.json")
    except StoreError:
        return Surroundings(host_networks(settings), None)
    files = read_remembered(settings.configs_dir, node.name, kept, namespace=settings.namespace)
    before = resolve_with(memory, settings, StaticSnapshot(node, files.resources))
    underlay = before.desired.underlay if before.desired else None
    return Surroundings(host_networks(settings), networks(underlay.vtep_pools if underlay else ()))


def _basis(memory: SavedSnapshot | None) -> RememberedApi | None:
    snapshot = memory.snapshot if memory else None
    return RememberedApi(len(snapshot.objects), snapshot.synced_at) if snapshot else None


def _identify(settings: Settings, *, remembered: bool) -> Identification:
    known = read_identity(settings.state_dir / "node.json")
    return identify(
        settings.node_config_file,
        socket.gethostname(),
        settings.log_level,
        lambda name: _addresses(name, settings.netns),
        known if remembered else None,
        scheme=known.router_id_scheme if known else None,
    )


def _addresses(name: str, netns: str) -> Sequence[IPInterface]:
    """Return an interface's addresses; none without the privileges for it, which the caller reports."""
    from actors.netlink.preview import interface_addresses

    try:
        return interface_addresses(name, netns)
    except (Fault, OSError):
        return ()


def _last_good(settings: Settings) -> LastGood:
    try:
        return read_texts(settings.state_dir / "last-good.json")
    except StoreError:
        return LastGood()
