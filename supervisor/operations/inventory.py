"""The files of all nodes, generated from one inventory, and checked across all nodes.

    inventory.yaml (nodes: name, index, values) ─┐
    router files with ${value}                  ─┴─> NAME/node-config.yaml, NAME/configs/openpe_*.yaml, NAME/conf.d/...

The result has the layout of ``/etc/openperouter``. Each node's files are checked as the daemon would check them, with
its own name and index, and nothing is written unless all of them are valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final

from pydantic import Field

from config.desired import RouterIdScheme
from config.models.base import Model
from config.node import NEW_SCHEME
from config.outcomes import NodeIdentity, StaticSnapshot
from config.problems import Origin, Problem, Reason, errors
from config.settings import Settings
from config.sources.router_file import FileContent, parse_router_file
from config.sources.static_files import PREFIX, SUFFIX, combine, is_router_file
from config.syntax.files import UnreadableFileError, read_bounded
from config.syntax.model_errors import validate
from config.syntax.yaml_reader import MAX_BYTES, Document, InvalidYamlError, read_yaml
from supervisor.process.atomic_file import write_atomic

from .documents import to_yaml
from .exit_codes import CONFIG, USAGE, CommandError
from .node_configuration import Configuration, problems_of_files, resolve_with

NODE_CONFIG: Final = "node-config.yaml"
CONFIGS: Final = "configs"
#: The file of the inventory's settings, beside a node's own.
SETTINGS: Final = "conf.d/50-inventory.yaml"
CLOUD_CONFIG: Final = "#cloud-config\n"
INSTALLED: Final = PurePosixPath("/etc/openperouter")
#: Marks a directory as ours: files that are no longer in the inventory are removed from it.
MARKER: Final = ".openperouter-nodes"
#: Values that every node has.
_GIVEN: Final = ("name", "index")
_VALUE: Final = re.compile(r"\$(?:\$|\{([^{}\n]*)\})")
_VALUE_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,62}$"

Scalar = bool | int | float | str
Values = dict[
    Annotated[str, Field(pattern=_VALUE_NAME)],
    Scalar | list[Scalar] | list[dict[str, Scalar]] | dict[str, Scalar],
]
RouterFilePath = Annotated[str, Field(min_length=1, max_length=1000)]


class InventoryNode(Model):
    """One node."""

    name: str = Field(
        pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$", description="The node's name in Kubernetes, unique."
    )
    index: int = Field(strict=True, ge=0, le=2**63 - 1, description="The node's index, unique.")
    values: Values = Field(default_factory=dict, description="What the node's files have for ${NAME}.")
    files: tuple[RouterFilePath, ...] = Field(default=(), description="Router files of this node besides the common.")


class Inventory(Model):
    """All nodes, and what they have in common."""

    nodes: tuple[InventoryNode, ...] = Field(min_length=1, description="The nodes.")
    files: tuple[RouterFilePath, ...] = Field(
        default=(), description="Router files (openpe_*.yaml) of all nodes, relative to the inventory."
    )
    values: Values = Field(default_factory=dict, description="Values of all nodes; those of a node win.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Settings of all nodes (conf.d).")
    router_id_scheme: RouterIdScheme | None = Field(
        default=None, alias="routerIDScheme", description="routerIDScheme of all nodes."
    )


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """One node's files: their texts by their paths below ``/etc/openperouter``."""

    name: str
    texts: Mapping[str, str]

    def cloud_config(self) -> str:
        """Return user data for cloud-init that writes the files at the first boot."""
        files = [
            {"path": str(INSTALLED / path), "owner": "root:root", "permissions": "0600", "content": text}
            for path, text in sorted(self.texts.items())
        ]
        return CLOUD_CONFIG + to_yaml({"write_files": files})


def generate(path: Path) -> tuple[tuple[NodeFiles, ...], tuple[Problem, ...]]:
    """Return the files of all nodes of an inventory, and every problem; with an error there are no files.

    Raises FileNotFoundError for the inventory itself.
    """
    try:
        document = read_yaml(path)
    except InvalidYamlError as error:
        return (), error.problems
    inventory, problems = validate(Inventory, document.data(), document, reason=Reason.FILE_INVALID)
    if inventory is None:
        return (), problems
    reader = _Templates(path.parent)
    problems = (*problems, *_across_nodes(inventory, document), *_settings_problems(inventory, document))
    found = []
    for number, node in enumerate(inventory.nodes):
        files, wrong = _node_files(inventory, node, reader, document.origin(("nodes", number)))
        found.append(files)
        problems = (*problems, *wrong)
    return (() if errors(problems) else tuple(found)), tuple(dict.fromkeys(problems))


def _across_nodes(inventory: Inventory, document: Document) -> Iterator[Problem]:
    for field in _GIVEN:
        first: dict[str | int, int] = {}
        for number, node in enumerate(inventory.nodes):
            value = getattr(node, field)
            if first.setdefault(value, number) != number:
                other = document.origin(("nodes", first[value], field))
                place = f"nodes[{number}].{field}"
                yield _problem(f"is that of {other} as well", document.origin(("nodes", number, field)), place)
            if field in node.values:
                origin = document.origin(("nodes", number, "values", field))
                yield _problem("each node has this value: its own", origin, f"nodes[{number}].values.{field}")
        if field in inventory.values:
            origin = document.origin(("values", field))
            yield _problem("each node has this value: its own", origin, f"values.{field}")


def _settings_problems(inventory: Inventory, document: Document) -> tuple[Problem, ...]:
    problems = validate(Settings, dict(inventory.settings), document, ("settings",), reason=Reason.FILE_INVALID)[1]
    return problems if inventory.settings else ()


class _Templates:
    """Reads each router file of the inventory once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[str, str | Problem] = {}

    def path(self, name: str) -> Path:
        return self._directory / name

    def text(self, name: str) -> str | Problem:
        if name not in self._read:
            self._read[name] = self._text(self.path(name))
        return self._read[name]

    def _text(self, path: Path) -> str | Problem:
        origin = Origin(path=str(path))
        if not is_router_file(path.name):
            return _problem(f"is not a router file: its name must be {PREFIX}*{SUFFIX}", origin)
        try:
            return read_bounded(path, MAX_BYTES)[0].decode("utf-8-sig")
        except FileNotFoundError:
            return _problem("does not exist", origin)
        except UnreadableFileError as error:
            return error.problem()
        except UnicodeDecodeError:
            return _problem("is not UTF-8 text", origin)


def _problem(message: str, origin: Origin, field: str = "") -> Problem:
    return Problem(message, origin, field, reason=Reason.FILE_INVALID)


def _node_files(
    inventory: Inventory, node: InventoryNode, templates: _Templates, origin: Origin
) -> tuple[NodeFiles, tuple[Problem, ...]]:
    config: dict[str, Any] = {"nodeName": node.name, "nodeIndex": {"index": node.index}}
    if inventory.router_id_scheme:
        config["routerIDScheme"] = inventory.router_id_scheme
    texts = {NODE_CONFIG: to_yaml(config)}
    if inventory.settings:
        texts[SETTINGS] = to_yaml(inventory.settings)
    values = {**inventory.values, **node.values, "name": node.name, "index": node.index}
    problems: list[Problem] = []
    contents: list[FileContent] = []
    for name in (*inventory.files, *node.files):
        template = templates.text(name)
        if isinstance(template, Problem):
            problems.append(template)
            continue
        path, target = templates.path(name), f"{CONFIGS}/{Path(name).name}"
        text, missing = filled(template, values, path)
        problems += (_of_node(node, problem) for problem in missing)
        if target in texts:
            problems.append(_problem(f"two files are called {Path(name).name}", origin))
        texts[target] = text
        if not missing:
            contents.append(parse_router_file(text.encode(), path, node.name, namespace=_namespace(inventory)))
    if not problems:
        problems += (_of_node(node, problem) for problem in _checked(inventory, node, contents))
    return NodeFiles(node.name, texts), tuple(problems)


def filled(template: str, values: Mapping[str, Any], path: Path) -> tuple[str, list[Problem]]:
    """Return a text with ``${NAME}`` replaced, and what is wrong with it.

    ``$$`` is a dollar sign. Lists and mappings become YAML's flow style, which is JSON.
    """
    problems = []

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return "$"
        text = _as_text(values[name]) if name in values else ""
        if name not in values or "\n" in text:
            start = template.rfind("\n", 0, found.start()) + 1
            origin = Origin(str(path), template.count("\n", 0, found.start()) + 1, found.start() - start + 1)
            what = f"has more than one line: ${{{name}}}" if name in values else f"there is no value {name}"
            problems.append(_problem(what, origin))
        return text

    return _VALUE.sub(value, template), problems


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _of_node(node: InventoryNode, problem: Problem) -> Problem:
    return replace(problem, message=f"node {node.name}: {problem.message}")


def _namespace(inventory: Inventory) -> str:
    return str(inventory.settings.get("namespace", Settings().namespace))


def _checked(inventory: Inventory, node: InventoryNode, contents: Iterable[FileContent]) -> tuple[Problem, ...]:
    """Return the problems that the daemon would find in a node's files, apart from the API's objects."""
    resources, problems = combine(list(contents))
    identity = NodeIdentity(node.name, node.index, router_id_scheme=inventory.router_id_scheme or NEW_SCHEME)
    settings = Settings()
    resolution = resolve_with(None, settings, StaticSnapshot(identity, tuple(resources), tuple(problems)))
    return problems_of_files(Configuration(settings, identity, tuple(resources), resolution.problems))


def tree(nodes: Iterable[NodeFiles], *, cloud_init: bool = False) -> dict[str, str]:
    """Return all files by their paths below one directory: a directory of files, or one of user data, for each node."""
    if cloud_init:
        return {f"{node.name}.yaml": node.cloud_config() for node in nodes}
    return {f"{node.name}/{path}": text for node in nodes for path, text in node.texts.items()}


def differences(wanted: Mapping[str, str], directory: Path, present: Iterable[str]) -> list[str]:
    """Return a line for each file that differs; ``present`` are our files in the directory."""
    lines = [f"missing: {directory / name}" for name in wanted if not (directory / name).exists()]
    lines += (f"differs: {directory / name}" for name in wanted if _other_text(directory / name, wanted[name]))
    lines += (f"not of the inventory: {directory / name}" for name in present if name not in wanted)
    return sorted(lines)


def _other_text(path: Path, wanted: str) -> bool:
    try:
        return path.read_bytes() != wanted.encode()
    except FileNotFoundError:
        return False


def generated_files(directory: Path) -> list[str]:
    """Return the paths of all files below a directory that :func:`write` keeps."""
    files = (path.relative_to(directory) for path in directory.rglob("*") if path.is_symlink() or not path.is_dir())
    # The marker, and what tools keep there, such as .git.
    return sorted(str(path) for path in files if not path.parts[0].startswith("."))


def installed_files(directory: Path) -> list[str]:
    """Return the paths of a node's own files that could come from an inventory."""
    configs = (f"{CONFIGS}/{path.name}" for path in (directory / CONFIGS).glob(f"{PREFIX}*{SUFFIX}"))
    return sorted([*configs, *(SETTINGS for path in [directory / SETTINGS] if path.exists())])


def write(wanted: Mapping[str, str], directory: Path) -> list[str]:
    """Make a directory contain exactly these files; return a line for each change.

    Raises :class:`CommandError` for a directory with other content.
    """
    marker = directory / MARKER
    if directory.exists() and not marker.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise CommandError(f"{directory} contains other files: give a new or empty directory", USAGE)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    marker.touch()
    lines = []
    for name in generated_files(directory):
        if name not in wanted:
            (directory / name).unlink()
            lines.append(f"removed: {directory / name}")
    for name, text in sorted(wanted.items()):
        path = directory / name
        if path.is_symlink() or not path.exists() or _other_text(path, text):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(path, text)
            lines.append(f"written: {path}")
    _remove_empty(directory)
    return lines


def _remove_empty(directory: Path) -> None:
    for path in sorted((path for path in directory.rglob("*") if path.is_dir()), reverse=True):
        if not any(path.iterdir()) and not path.relative_to(directory).parts[0].startswith("."):
            path.rmdir()


def of_node(nodes: Iterable[NodeFiles], name: str) -> Mapping[str, str]:
    """Return one node's files by their paths. Raises :class:`CommandError` for an unknown node."""
    known = {node.name: node.texts for node in nodes}
    if name not in known:
        raise CommandError(f"the inventory has no node {name}", CONFIG)
    return known[name]
